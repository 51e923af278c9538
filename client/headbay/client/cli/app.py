"""The command's grammar: every command, grouped as `headbay --help` shows them."""

from importlib.metadata import version
from typing import Final

from cyclopts import App, Group

from headbay.client.cli.commands import (
    doctor,
    documents,
    logs,
    nodes,
    operate,
    processes,
    run,
    shell,
    status,
)
from headbay.client.cli.exits import TABLE

__all__ = ["app"]

SUMMARY: Final = """\
Run workloads: controlled, durable, never lost.

Start here:
    headbay run -- make test          run a command, under admission and limits
    headbay init && headbay run headbay.yaml
    headbay list                      what runs and what ran
    headbay logs last                 output of the last one

A server is found as `temporal` finds it (TEMPORAL_ADDRESS, TEMPORAL_PROFILE);
where none is configured, `run` and `submit` start an embedded cluster here.
"""

RUN: Final = Group.create_ordered("Run")
LOOK: Final = Group.create_ordered("Look")
ACT: Final = Group.create_ordered("Act")
MACHINES: Final = Group.create_ordered("Nodes and queues")
WRITE: Final = Group.create_ordered("Documents")
SYSTEM: Final = Group.create_ordered("System")


def usage(command: str) -> str:
    """Both ways to hand a workload in."""
    start = f"headbay {command} [OPTIONS]"
    return f"Usage: {start} FILE\n       {start} -- COMMAND [ARGS]..."


app = App(
    name="headbay",
    help=SUMMARY,
    help_format="plaintext",
    version=lambda: f"headbay {version('headbay')}",
    version_flags=["--version"],
)
app["--help"].group = SYSTEM
app["--version"].group = SYSTEM

app.command(run.run, group=RUN, usage=usage("run"), help_epilogue=TABLE)
app.command(run.submit, group=RUN, usage=usage("submit"))
app.command(run.wait, group=RUN, help_epilogue=TABLE)
app.command(run.follow, group=RUN, help_epilogue=TABLE)

app.command(status.list_, name="list", group=LOOK)
app.command(status.status, group=LOOK)
app.command(logs.logs, group=LOOK)
app.command(status.explain, group=LOOK)
app.command(status.history, group=LOOK)
app.command(shell.ui, group=LOOK)

app.command(operate.cancel, group=ACT)
app.command(operate.resolve, group=ACT)

node = App(
    name="node",
    help="Show nodes; take them out of service and back; make this machine one.",
    group=MACHINES,
)
node.command(nodes.list_, name="list")
node.command(nodes.cordon)
node.command(nodes.uncordon)
node.command(nodes.drain)
node.command(processes.install, help_flags=[], version_flags=[])
node.command(processes.uninstall, help_flags=[], version_flags=[])
app.command(node)

queue = App(name="queue", help="Show queues and their waiting lines.", group=MACHINES)
queue.command(nodes.queues, name="list")
app.command(queue)

app.command(documents.validate, group=WRITE)
app.command(documents.init, group=WRITE)

app.command(doctor.doctor, group=SYSTEM)
app.command(processes.dev, group=SYSTEM, help_flags=[], version_flags=[])
worker = App(name="worker", help="Run a worker process of a production cluster.", group=SYSTEM)
worker.command(processes.control, help_flags=[], version_flags=[])
worker.command(processes.node, help_flags=[], version_flags=[])
app.command(worker)
app.command(shell.completion, group=SYSTEM)
