"""`python -m headbay.workers.dev`: run, start, status, stop, restart or reset the dev cluster."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from headbay.activities.executor import AUTO
from headbay.activities.places import Places
from headbay.domain.errors import HeadbayError
from headbay.workers.dev import commands
from headbay.workers.dev.files import ClusterFiles
from headbay.workers.dev.layout import NodeShape
from headbay.workers.dev.process import is_running
from headbay.workers.dev.record import ChildRecord, ClusterRecord
from headbay.workers.dev.steps import running_steps
from headbay.workers.dev.supervisor import Options, Supervisor
from headbay.workers.logs import configure

NOT_RUNNING = 3
"""Exit code of ``status``, as systemctl's."""

DEGRADED = 1


def parser() -> argparse.ArgumentParser:
    """Options of all commands."""
    options = argparse.ArgumentParser(
        prog="headbay dev",
        description="A whole cluster on this machine: Temporal with its UI, a control worker and "
        "a node. State is kept under $HEADBAY_STATE (default: ~/.local/state/headbay).",
    )
    actions = options.add_subparsers(dest="action", metavar="COMMAND")
    for name, what in (
        ("run", "run in the foreground until Ctrl-C (the default)"),
        ("start", "start in the background, and wait until it is ready"),
        ("restart", "stop, then start; running steps go on under their lease"),
    ):
        action = actions.add_parser(name, help=what, description=what)
        _add_cluster_options(action)
    status = actions.add_parser("status", help="what runs (exit code 3: nothing)")
    status.add_argument("-o", "--output", choices=("table", "json"), default="table")
    stop = actions.add_parser("stop", help="stop cleanly; state is kept, work is resumed later")
    stop.add_argument("--kill", action="store_true", help="end running steps first")
    reset = actions.add_parser("reset", help="stop, and delete all state but secrets")
    reset.add_argument("--kill", action="store_true", help="end running steps first")
    reset.add_argument("--yes", action="store_true", help="do not ask")
    _add_cluster_options(options)
    return options


def _add_cluster_options(options: argparse.ArgumentParser) -> None:
    """The same before and after the command's name: the latter wins where both are given."""
    absent = argparse.SUPPRESS
    options.add_argument("--nodes", type=int, default=absent, help="how many nodes (default 1)")
    options.add_argument("--cpu", default=absent, help="CPUs that each node offers")
    options.add_argument("--memory", default=absent, help="memory that each node offers")
    options.add_argument(
        "--executor",
        default=absent,
        help="systemd, systemd-user or process (default: the first that proves itself); null: "
        "benchmarks",
    )
    options.add_argument("--ledger", default=absent, help="sqlite:///PATH or postgresql://…")


def _shape(arguments: argparse.Namespace) -> Options:
    given = vars(arguments)
    shape = NodeShape(
        nodes=given.get("nodes", 1),
        cpu=given.get("cpu"),
        memory=given.get("memory"),
        executor=given.get("executor", AUTO),
    )
    return Options(shape=shape, ledger=given.get("ledger", os.environ.get("HEADBAY_LEDGER")))


def _words(arguments: argparse.Namespace) -> list[str]:
    """The cluster options again, for the supervisor's command line."""
    given = vars(arguments)
    names = ("nodes", "cpu", "memory", "executor", "ledger")
    return [word for n in names if n in given for word in (f"--{n}", str(given[n]))]


def run(files: ClusterFiles, arguments: argparse.Namespace) -> int:
    """Supervise in the foreground."""
    configure(process="dev")
    with files.lock() as locked:
        if not locked:
            record = commands.running(files)
            where = f": {record.ui} (process {record.pid})" if record else ""
            commands.tell(f"headbay dev: already running{where}")
            return commands.LOCKED_OUT
        show = _print_line if sys.stdout.isatty() else None
        if show is not None:
            os.environ.setdefault("HEADBAY_LOG_FORMAT", "console")
        asyncio.run(Supervisor(files, _shape(arguments), show).run())
    return 0


def _print_line(child: str, line: str) -> None:
    print(f"{child:>10} | {line}", flush=True)


def start(files: ClusterFiles, arguments: argparse.Namespace) -> int:
    """Start in the background."""
    began = time.monotonic()
    before = commands.running(files)
    record = commands.start(files, _words(arguments))
    how = "is running" if before else f"is ready after {time.monotonic() - began:.1f} s"
    commands.tell(f"headbay dev {how}: Temporal UI {record.ui}, server {record.address}")
    return 0


def restart(files: ClusterFiles, arguments: argparse.Namespace) -> int:
    """Stop and start."""
    commands.stop(files, kill=False)
    return start(files, arguments)


def stop(files: ClusterFiles, arguments: argparse.Namespace) -> int:
    """Stop; says what runs on."""
    left = commands.stop(files, kill=arguments.kill)
    if left is None:
        commands.tell("headbay dev: not running")
    elif not left.known:
        commands.tell("headbay dev: stopped; steps that ran end when their lease runs out")
    elif left.count:
        commands.tell(
            f"headbay dev: stopped; {left.count} running steps go on until their lease runs out, "
            f"{commands.until_text(left)} at the latest; start again before, and nothing is lost "
            "(or `stop --kill`)"
        )
    else:
        commands.tell("headbay dev: stopped")
    return 0


def reset(files: ClusterFiles, arguments: argparse.Namespace) -> int:
    """Stop and delete."""
    if not arguments.kill and (what := _still_running(files)):
        commands.tell(f"headbay dev: {what}; nothing was deleted (end them with --kill)")
        return 1
    if not arguments.yes and not _agreed(files):
        commands.tell("headbay dev: nothing was deleted")
        return 1
    commands.stop(files, kill=arguments.kill)
    with files.lock() as locked:
        if not locked:
            commands.tell("headbay dev: somebody started it again; nothing was deleted")
            return 1
        if arguments.kill:
            commands.end_what_runs(files)
        elif what := _still_running(files):
            commands.tell(f"headbay dev: {what}; stopped, but nothing was deleted")
            return 1
        for path in files.delete():
            commands.tell(f"deleted {path}")
    return 0


def _still_running(files: ClusterFiles) -> str:
    """What would be orphaned by deleting the state; "" if nothing."""
    record = commands.running(files)
    if record is not None:
        left = commands.live(record)
        if not left.known:
            return "the pool does not say what runs"
        if left.count:
            return f"{left.count} steps run"
    shims = running_steps(files.places)
    return f"{len(shims)} steps run under their lease" if shims else ""


def _agreed(files: ClusterFiles) -> bool:
    if not sys.stdin.isatty():
        commands.tell("headbay dev: reset asks first; without a terminal give --yes")
        return False
    question = (
        f"Delete all workloads, history, logs and artifacts under {files.places.root}? [y/N] "
    )
    return input(question).strip().lower() in ("y", "yes")


def status(files: ClusterFiles, arguments: argparse.Namespace) -> int:
    """Show what runs."""
    record = commands.running(files)
    if record is None:
        if arguments.output == "json":
            print(json.dumps({"running": False, "state": str(files.places.root)}))
        else:
            print(f"not running; state: {files.places.root}; start it with: headbay dev start")
        return NOT_RUNNING
    left = commands.live(record)
    down = [child.name for child in record.children if not _up(child)]
    if arguments.output == "json":
        shown = record.model_dump(mode="json") | {
            "running": True,
            "state": str(files.places.root),
            "live_attempts": left.count if left.known else None,
            "down": down,
        }
        print(json.dumps(shown, indent=2))
    else:
        _print_table(files, record, left.count if left.known else None)
    return 0 if record.phase == "ready" and not down else DEGRADED


def _up(child: ChildRecord) -> bool:
    return child.pid is not None and child.ticks is not None and is_running(child.pid, child.ticks)


def _print_table(files: ClusterFiles, record: ClusterRecord, live: int | None) -> None:
    for label, value in (
        ("phase", record.phase + (f": {record.doing}" if record.doing else "")),
        ("UI", record.ui),
        ("server", f"{record.address}, namespace {record.namespace}"),
        ("ledger", record.ledger),
        ("state", str(files.places.root)),
        ("running steps", "not known" if live is None else str(live)),
    ):
        print(f"{label:<14} {value}")
    print(f"\n{'PROCESS':<14} {'PID':>8}  {'UP':<10} {'DIED':>4}  LAST EXIT")
    print(f"{'supervisor':<14} {record.pid:>8}  {_age(record.started_ms):<10} {'':>4}")
    for child in record.children:
        up = _age(child.started_ms) if _up(child) else "down"
        pid = child.pid or "-"
        print(f"{child.name:<14} {pid:>8}  {up:<10} {child.deaths:>4}  {child.last_exit}")


def _age(started_ms: int | None) -> str:
    if started_ms is None:
        return "-"
    return str(timedelta(seconds=int(time.time() - started_ms / 1_000)))


def main(words: Sequence[str] | None = None) -> int:
    """Entry point."""
    arguments = parser().parse_args(words)
    actions = {
        None: run,
        "run": run,
        "start": start,
        "restart": restart,
        "status": status,
        "stop": stop,
        "reset": reset,
    }
    try:
        return actions[arguments.action](ClusterFiles.find(os.environ), arguments)
    except HeadbayError as error:
        commands.tell(f"headbay dev: {error}")
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        commands.tell(
            f"headbay dev: {error.filename}: {error.strerror}; the cluster keeps its state in "
            f"{Places.find(os.environ).root}; set HEADBAY_STATE to a folder that can be written to"
        )
        return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The SDK may abort at interpreter exit (temporalio/sdk-python#300).
    os._exit(code)
