"""`python -m headbay.workers.node.install.remove`: take the node worker's service away."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from headbay.domain.errors import HeadbayError
from headbay.workers.node.install.files import ForeignFileError, Managed
from headbay.workers.node.install.target import Target
from headbay.workers.node.install.unit import UNIT

MODULE = "headbay.workers.node.install.remove"


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    options = argparse.ArgumentParser(
        prog="headbay node uninstall",
        description="Stop this machine's node worker and remove its service. State, logs and "
        "node.local.env are kept. Drain the node first: steps that run have nobody to renew "
        "their leases, and end with them.",
        epilog="For example:\n    headbay node drain node-3 && sudo headbay node uninstall\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_argument("--user", action="store_true", help="the service of your own")
    options.add_argument(
        "--force", action="store_true", help="remove files that Headbay did not write"
    )
    options.add_argument("--root", type=Path, metavar="DIR", help="remove below DIR")
    return options


def remove(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Do it; the exit code.

    Raises:
        HeadbayError: It cannot be done; nothing was removed then.
    """
    target = Target.find(os.environ, user=options.user, root=options.root)
    target.demand_rights(MODULE, arguments)
    found = [
        Managed(target.here(path), "", 0o600)
        for path in (target.unit, target.environment)
        if target.here(path).exists()
    ]
    if not found:
        print("nothing is installed")
        return 0
    for file in found:
        if file.state() == "foreign" and not options.force:
            raise ForeignFileError(file.path)
    if not target.elsewhere:
        target.call("disable", "--now", UNIT)
    for file in found:
        file.path.unlink()
        print(f"removed  {file.path}")
    if not target.elsewhere:
        target.call("daemon-reload")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    try:
        return remove(options, given)
    except HeadbayError as error:
        print(f"headbay: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"headbay: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
