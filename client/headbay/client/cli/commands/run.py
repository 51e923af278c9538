"""run, submit, wait, follow: hand workloads in and stay with them."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headbay.client.cli.output import OutputOption

__all__ = ["follow", "run", "submit", "wait"]

Cpu = Annotated[str | None, Parameter(help="CPUs to reserve: 2, 0.5, 250m. [default: 1]")]
Memory = Annotated[str | None, Parameter(help="Memory to reserve: 512Mi, 4Gi. [default: 1Gi]")]
Env = Annotated[
    list[str],
    Parameter(
        name=["--env", "-e"],
        negative=(),
        show_default=False,
        help="KEY=VALUE for the command; repeatable. Kept in the workload's history: secrets "
        "belong into a file, as {secret: NAME}.",
    ),
]
Name = Annotated[str | None, Parameter(help="Name of the workload. [default: the program's]")]
Queue = Annotated[str | None, Parameter(help="Queue to wait in. [default: default]")]
Priority = Annotated[int | None, Parameter(help="Higher goes first. [default: 0]")]
Timeout = Annotated[str | None, Parameter(help="End the command after 30s, 5m, 1h30m.")]
Label = Annotated[
    list[str],
    Parameter(
        name=["--label", "-l"],
        negative=(),
        show_default=False,
        help="KEY=VALUE to find it by; repeatable.",
    ),
]
Id = Annotated[
    str | None,
    Parameter(
        name="--id",
        help="Idempotency key: the same id and document are the same workload, however often "
        "they are handed in.",
    ),
]
Command = Annotated[tuple[str, ...] | None, Parameter(parse=False)]
"""What follows ``--``; the dispatcher fills it in."""


def run(
    file: Path | None = None,
    /,
    *,
    cpu: Cpu = None,
    memory: Memory = None,
    env: Env = [],  # noqa: B006 - never changed
    name: Name = None,
    queue: Queue = None,
    priority: Priority = None,
    timeout: Timeout = None,
    label: Label = [],  # noqa: B006 - never changed
    id: Id = None,  # noqa: A002 - the option's name
    output: OutputOption = "table",
    command: Command = None,
) -> int:
    """Run a workload and stay with it until it ends.

    A command runs in the current directory, with your PATH, locale and virtual
    environment, on a node of this machine. A file is a workload document
    (`headbay init` writes one). Ctrl-C cancels the workload; a second one leaves
    it alone and detaches.

    For example:
        headbay run -- make test
        headbay run --cpu 4 --memory 8Gi -e CI=1 -- pytest -n 4
        headbay run ci.yaml
        generate-workload | headbay run -

    Args:
        file: Workload document, YAML or JSON; - reads standard input.
    """
    from headbay.client.cli.intake import CommandOptions, take
    from headbay.client.cli.stay import submit_and_stay

    options = CommandOptions(cpu, memory, env, name, queue, priority, timeout, label)
    return submit_and_stay(take(file, command, options), workload=id, output=output)


def submit(
    file: Path | None = None,
    /,
    *,
    cpu: Cpu = None,
    memory: Memory = None,
    env: Env = [],  # noqa: B006 - never changed
    name: Name = None,
    queue: Queue = None,
    priority: Priority = None,
    timeout: Timeout = None,
    label: Label = [],  # noqa: B006 - never changed
    id: Id = None,  # noqa: A002 - the option's name
    output: OutputOption = "table",
    command: Command = None,
) -> int:
    """Hand a workload in and return at once; prints its id.

    Takes what `headbay run` takes.

    For example:
        headbay submit nightly.yaml
        id=$(headbay submit -o quiet --id nightly-2030-01-31 nightly.yaml)
        headbay submit -- ./long-job && headbay follow last

    Args:
        file: Workload document, YAML or JSON; - reads standard input.
    """
    from headbay.client.cli.intake import CommandOptions, take
    from headbay.client.cli.stay import submit_only

    options = CommandOptions(cpu, memory, env, name, queue, priority, timeout, label)
    return submit_only(take(file, command, options), workload=id, output=output)


def wait(
    workload: str,
    /,
    *,
    timeout: Annotated[
        str | None, Parameter(help="Give up after 30s, 5m, …; the workload goes on. Exit code 124.")
    ] = None,
    output: OutputOption = "table",
) -> int:
    """Wait until a workload has ended; ends with the workload's exit code.

    For example:
        headbay wait last --timeout 10m
        headbay submit a.yaml && headbay submit b.yaml && headbay wait last

    Args:
        workload: Its id, or `last`.
    """
    from headbay.client.cli.stay import wait_for

    return wait_for(workload, timeout, output)


def follow(workload: str, /, *, output: OutputOption = "table") -> int:
    """Watch a workload until it has ended; ends with the workload's exit code.

    Ctrl-C only stops watching.

    For example:
        headbay follow last
        headbay follow last -o jsonl | jq .workload.counts

    Args:
        workload: Its id, or `last`.
    """
    from headbay.client.cli.stay import follow_to_end

    return follow_to_end(workload, output)
