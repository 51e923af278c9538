"""list, status, explain, history: look at workloads."""

from typing import Annotated

from cyclopts import Parameter, validators

from headbay.client.cli.output import OutputOption

__all__ = ["explain", "history", "list_", "status"]


def list_(
    *,
    label: Annotated[
        list[str],
        Parameter(
            name=["--label", "-l"],
            negative=(),
            show_default=False,
            help="Only with this KEY=VALUE; repeatable.",
        ),
    ] = [],  # noqa: B006 - never changed
    failed: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Only failed ones.")
    ] = False,
    running: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Only unfinished ones.")
    ] = False,
    queue: Annotated[str | None, Parameter(help="Only of this queue.")] = None,
    limit: Annotated[
        int,
        Parameter(
            name=["--limit", "-n"],
            help="At most so many.",
            validator=validators.Number(gte=1),
        ),
    ] = 30,
    output: OutputOption = "table",
) -> int:
    """List workloads, newest first; also those that only the ledger still knows.

    For example:
        headbay list --failed
        headbay list -l project=headbay --queue nightly
        headbay list --running -o quiet | xargs -n1 headbay cancel
    """
    from headbay.client.cli.intake import key_values
    from headbay.client.cli.session import with_client
    from headbay.client.cli.views import show_workloads
    from headbay.client.listing import ListFilter

    wanted = ListFilter(
        labels=key_values("--label", label),
        failed=failed,
        running=running,
        queue=queue,
        limit=limit,
    )
    filtered = bool(label or failed or running or queue)
    show_workloads(with_client(lambda client: client.list(wanted)), output, filtered=filtered)
    return 0


def status(workload: str = "last", /, *, output: OutputOption = "table") -> int:
    """Show where a workload stands: its steps and their attempts.

    Answers within seconds even when no worker runs: then from the ledger, and says so.

    For example:
        headbay status
        headbay status ci-0a1b2c3d4e5f6g -o json | jq .workload.status

    Args:
        workload: Its id, or `last`.
    """
    from headbay.client.cli.session import resolve_id, with_client
    from headbay.client.cli.views import show_reading

    chosen = resolve_id(workload)
    show_reading(with_client(lambda client: client.status(chosen)), output)
    return 0


def explain(
    workload: str = "last", step: str | None = None, /, *, output: OutputOption = "table"
) -> int:
    """Say why a workload, or one of its steps, is not further, and what would help.

    For example:
        headbay explain last
        headbay explain last train-3

    Args:
        workload: Its id, or `last`.
        step: Only this step, also if it has ended.
    """
    from headbay.client.cli.session import resolve_id, with_client
    from headbay.client.cli.views import show_explanation

    chosen = resolve_id(workload)
    show_explanation(with_client(lambda client: client.explain(chosen, step)), output)
    return 0


def history(workload: str = "last", /, *, output: OutputOption = "table") -> int:
    """Show everything that happened to a workload, in order.

    Read from the ledger, which keeps it longer than Temporal does.

    For example:
        headbay history last
        headbay history last -o jsonl | jq 'select(.kind == "AttemptEnded")'

    Args:
        workload: Its id, or `last`.
    """
    from headbay.client.cli.session import resolve_id, with_client
    from headbay.client.cli.views import show_history

    chosen = resolve_id(workload)
    show_history(with_client(lambda client: client.history(chosen)), output)
    return 0
