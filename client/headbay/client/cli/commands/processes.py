"""dev …, worker …, node install: processes of Headbay itself. Replaces this process by theirs."""

import os
import sys
from typing import Annotated, NoReturn

from cyclopts import Parameter

__all__ = ["control", "dev", "install", "node", "uninstall"]

Arguments = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]


def dev(*arguments: Arguments) -> None:
    """Run a whole cluster on this machine.

    For example:
        headbay dev                 in the foreground, until Ctrl-C
        headbay dev start           in the background
        headbay dev --help          all commands and options
    """
    _become("headbay.workers.dev", arguments)


def control(*arguments: Arguments) -> None:
    """Host the workflows of workloads, pools and nodes; `--help` shows its options."""
    _become("headbay.workers.control", arguments)


def node(*arguments: Arguments) -> None:
    """Run steps on this machine; `--help` shows its options."""
    _become("headbay.workers.node", arguments)


def install(*arguments: Arguments) -> None:
    """Make this machine a node: a systemd service; `--help` shows its options."""
    _become("headbay.workers.node.install", arguments)


def uninstall(*arguments: Arguments) -> None:
    """Take this machine's node service away; `--help` shows its options."""
    _become("headbay.workers.node.install.remove", arguments)


def _become(module: str, arguments: tuple[str, ...]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell wanted
