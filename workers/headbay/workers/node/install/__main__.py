"""`python -m headbay.workers.node.install`: write the node worker's unit, and start it if asked."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from headbay.domain.errors import HeadbayError
from headbay.workers.node.install.files import ForeignFileError, Managed
from headbay.workers.node.install.target import Target
from headbay.workers.node.install.unit import UNIT, Service, environment_text, unit_text
from headbay.workers.node.options import (
    BadOptionError,
    add_options,
    capacity,
    labels,
    taints,
    words,
)
from headbay.workers.node.registration import machine

MODULE = "headbay.workers.node.install"
STATE = Path("/var/lib/headbay")
BAD_OPTION_EXIT = 2

EPILOG = """\
For example:
    headbay node install --server temporal.example:7233 --dry-run
    sudo headbay node install --server temporal.example:7233 --label zone=eu --start
    headbay node install --server temporal.example:7233 --user --start

The same again changes nothing, other options replace what was written, and a file that
somebody else wrote or changed is left alone unless --force is given. Settings of your own go
into a drop-in (`systemctl edit headbay-node`); credentials into node.local.env beside the
written node.env. A stop, an upgrade or a new installation does not end running steps.
"""


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    options = argparse.ArgumentParser(
        prog="headbay node install",
        description="Make this machine a node: write a systemd service that runs its worker.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    service = options.add_argument_group("service")
    service.add_argument(
        "--server", required=True, metavar="ADDRESS", help="Temporal's address, HOST:PORT"
    )
    service.add_argument("--namespace", default="default", help="default: %(default)s")
    service.add_argument(
        "--state",
        type=Path,
        help=f"state directory (default: {STATE}; with --user the user's own)",
    )
    service.add_argument(
        "--user",
        action="store_true",
        help="a service of your own, without root: limits are cooperative",
    )
    service.add_argument(
        "--start", action="store_true", help="start it, now and at boot; wait until it is ready"
    )
    service.add_argument("--dry-run", action="store_true", help="print what would be written")
    service.add_argument(
        "--force", action="store_true", help="replace files that Headbay did not write"
    )
    service.add_argument(
        "--root", type=Path, metavar="DIR", help="write below DIR, such as an image's root"
    )
    add_options(options)
    return options


def files(options: argparse.Namespace, target: Target) -> list[Managed]:
    """What is to be written.

    Raises:
        BadOptionError: An option cannot be meant, or not be written into a unit.
    """
    _check(options, here=not target.elsewhere)
    state = options.state
    if state is None and not target.user:
        state = STATE
    executor = "systemd-user" if target.user else "systemd"
    command = [sys.executable, "-m", "headbay.workers.node", "--executor", executor]
    service = Service(
        command=[*command, *words(options)],
        environment=target.environment,
        local=target.local,
        state=state,
        user=target.user,
    )
    variables = {"TEMPORAL_ADDRESS": options.server, "TEMPORAL_NAMESPACE": options.namespace}
    if state is not None:
        variables["HEADBAY_STATE"] = str(state)
    # Where a worker hung is in the journal when its watchdog has ended it.
    variables["PYTHONFAULTHANDLER"] = "1"
    return [
        Managed(target.here(target.environment), environment_text(variables), 0o600),
        Managed(target.here(target.unit), unit_text(service), 0o644),
    ]


def _check(options: argparse.Namespace, *, here: bool) -> None:
    """Refuse now what the worker would refuse at its start."""
    host, separator, port = options.server.rpartition(":")
    if not (host and separator and port.isdecimal()):
        raise BadOptionError(f"--server {options.server!r}: write it as HOST:PORT")
    for name in ("state", "artifacts"):
        path = getattr(options, name)
        if path is not None:
            setattr(options, name, Path(path).absolute())
    labels(options)
    taints(options)
    if here:  # Another machine may have more.
        capacity(options, machine())


def install(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Do it; the exit code.

    Raises:
        HeadbayError: It cannot be done; nothing was written then, unless it could not be started.
    """
    target = Target.find(os.environ, user=options.user, root=options.root)
    wanted = files(options, target)
    if options.dry_run:
        for file in wanted:
            print(f"# {file.path}, mode {file.mode:04o}\n{file.text}")
        return 0
    target.demand_rights(MODULE, arguments)
    states = {file.path: file.state() for file in wanted}
    for path, state in states.items():
        if state == "foreign" and not options.force:
            raise ForeignFileError(path)
    for file in wanted:
        if states[file.path] == "unchanged":
            print(f"unchanged  {file.path}")
            continue
        file.write()
        print(f"{'written' if states[file.path] == 'absent' else 'replaced'}  {file.path}")
    if not target.elsewhere:
        _go_on(target, start=options.start, changed=set(states.values()) != {"unchanged"})
    return 0


def _go_on(target: Target, *, start: bool, changed: bool) -> None:
    if target.user and not target.lingers():
        print("next: `loginctl enable-linger`, or it ends when you log out, and its steps with it")
    steps = [("daemon-reload",), ("enable", UNIT), ("restart" if changed else "start", UNIT)]
    if start:
        for step in steps:
            target.call(*step)
        print(f"{UNIT} runs; look with `headbay node list`")
    else:
        print("next: " + " && ".join(shlex.join(target.command(*step)) for step in steps))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    try:
        return install(options, given)
    except HeadbayError as error:
        print(f"headbay: error: {error}", file=sys.stderr)
        return BAD_OPTION_EXIT if isinstance(error, BadOptionError) else 1
    except OSError as error:
        print(f"headbay: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
