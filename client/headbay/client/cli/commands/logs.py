"""logs: what steps printed."""

from typing import Annotated, Literal

from cyclopts import Parameter

__all__ = ["logs"]


def logs(
    workload: str = "last",
    step: str | None = None,
    /,
    *,
    follow: Annotated[
        bool,
        Parameter(
            name=["--follow", "-f"],
            negative=(),
            show_default=False,
            help="Go on until it has ended.",
        ),
    ] = False,
    attempt: Annotated[
        int | None, Parameter(help="Which attempt. [default: each step's last]")
    ] = None,
    output: Annotated[
        Literal["text", "jsonl"],
        Parameter(name=["--output", "-o"], help="jsonl: one object a piece, naming its step."),
    ] = "text",
) -> int:
    """Print what a workload's steps printed, both streams as they came.

    With several steps each line names its step. Logs stay on the node that ran the
    step; those of another machine are named, not fetched.

    For example:
        headbay logs last
        headbay logs -f last test-3
        headbay logs last build --attempt 1

    Args:
        workload: Its id, or `last`.
        step: Only this step, or all tasks of this matrix step.
    """
    from headbay.client.cli.logtext import print_logs

    return print_logs(workload, step, follow=follow, attempt=attempt, output=output)
