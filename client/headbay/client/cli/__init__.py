"""The `headbay` command.

Nothing here is imported before it is needed: `headbay --help` must not wait for Temporal's client.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main", "run_cli"]


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    try:
        from headbay.client.cli.dispatch import dispatch
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("headbay"):
            raise
        print(
            f"headbay: error: the command needs the package {error.name}: "
            "pip install 'headbay[cli]'",
            file=sys.stderr,
        )
        return 125
    return dispatch(list(arguments))


def _open_what_is_closed() -> None:
    """Whoever closed a standard stream wants nothing of it; nobody else's file gets its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number: this one.
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def main() -> NoReturn:
    """Entry point of the `headbay` script.

    Everything is closed and flushed by then; the SDK may abort in the interpreter's own exit.
    Source: temporalio/sdk-python#300.
    """
    _open_what_is_closed()
    try:
        code = run_cli(sys.argv[1:])
    except KeyboardInterrupt:  # While it was still being imported.
        code = 130
    if "temporalio" in sys.modules:
        os._exit(code)
    sys.exit(code)
