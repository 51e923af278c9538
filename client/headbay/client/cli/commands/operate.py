"""cancel, resolve: act on workloads."""

from typing import Annotated, Literal

from cyclopts import Parameter

from headbay.client.cli.output import OutputOption

__all__ = ["cancel", "resolve"]

Reason = Annotated[str, Parameter(show_default=False, help="Kept in the journal.")]


def cancel(
    *workloads: str,
    reason: Reason = "",
    output: OutputOption = "table",
) -> int:
    """Cancel workloads.

    What runs is ended within its grace, what waits is not started. Cancelling twice,
    or something that has ended, changes nothing.

    For example:
        headbay cancel last
        headbay cancel ci-0a1b2c3d4e5f6g --reason "wrong branch"

    Args:
        workloads: Ids, or `last`.
    """
    from headbay.client.cli.orders import cancel_all

    return cancel_all(workloads, reason, output)


def resolve(
    workload: str,
    step: str,
    /,
    *,
    as_: Annotated[
        Literal["retry", "success", "failure"],
        Parameter(name="--as", help="What to make of it."),
    ],
    reason: Reason = "",
    output: OutputOption = "table",
) -> int:
    """Decide an UNRESOLVED step.

    Such a step may have run, must not be repeated by itself, and nobody saw its end.
    Look first at what it did; then say whether it counts as success or failure, or
    may run again.

    For example:
        headbay resolve last publish --as success --reason "it is on PyPI"

    Args:
        workload: Its id, or `last`.
        step: The step's name.
    """
    from headbay.client.cli.orders import resolve_step

    return resolve_step(workload, step, as_, reason, output)
