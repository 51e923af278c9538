"""Lists workloads: Temporal's visibility, joined with what the ledger keeps for longer."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from headbay.activities.ledger import WorkloadPage, WorkloadQuery
from headbay.activities.ledger import WorkloadRow as LedgerRow
from headbay.client.connection import QUERY_TIMEOUT, answered, is_away
from headbay.client.models import Source, WorkloadList, WorkloadRow
from headbay.client.past import NO_LEDGER, Past
from headbay.client.reading import labels_of
from headbay.client.submission import LABELS, NAME, POOL, PRIORITY, QUEUE
from headbay.domain.ids import workload_of
from headbay.domain.lifecycle import WorkloadState

__all__ = ["ListFilter", "list_workloads", "visibility_query"]

AT_ONCE: Final = 8
MOST: Final = 1_000

_STATES: Final = {
    WorkflowExecutionStatus.RUNNING: WorkloadState.RUNNING,
    WorkflowExecutionStatus.COMPLETED: WorkloadState.SUCCEEDED,
    WorkflowExecutionStatus.CANCELED: WorkloadState.CANCELLED,
}
_HARD_ENDS: Final = {
    WorkflowExecutionStatus.TERMINATED: "TERMINATED",
    WorkflowExecutionStatus.TIMED_OUT: "WORKFLOW_TIMED_OUT",
}


@dataclass(frozen=True)
class ListFilter:
    """Which workloads to list; what is not given does not restrict.

    Attributes:
        labels: All of these pairs must be there.
        failed: Only failed ones. running: Only unfinished ones.
        limit: 1 to 1,000.
    """

    labels: dict[str, str] = field(default_factory=dict)
    failed: bool = False
    running: bool = False
    queue: str | None = None
    limit: int = 30


def visibility_query(wanted: ListFilter) -> str:
    """The filter in Temporal's list syntax.

    Keyword lists match without case, and a failed workflow may be a cancelled workload: the rows
    are checked again.
    """
    terms = ["WorkflowType = 'Workload'", "ExecutionStatus != 'ContinuedAsNew'"]
    if wanted.failed:
        terms.append("ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut')")
    if wanted.running:
        terms.append("ExecutionStatus = 'Running'")
    if wanted.queue is not None:
        terms.append(f"HeadbayQueue = {_quoted(wanted.queue)}")
    terms += [
        f"HeadbayLabels = {_quoted(f'{key}={value}')}" for key, value in wanted.labels.items()
    ]
    return " AND ".join(terms)


async def list_workloads(temporal: Client, past: Past, wanted: ListFilter) -> WorkloadList:
    """Workloads, newest first.

    1. What Temporal lists; 2. what the ledger lists, which knows reasons, and workloads that
    Temporal has forgotten; 3. for failed ones that the ledger does not know, Temporal's result.
    """
    wanted = replace(wanted, limit=min(max(1, wanted.limit), MOST))
    notes: list[str] = []
    rows = await _from_temporal(temporal, wanted, notes)
    page, why = WorkloadPage([]), ""
    if not wanted.running or notes:
        # What runs, Temporal knows: the ledger may not have heard of an end.
        page, why = await past.page(_ledger_query(wanted))
    if why and why != NO_LEDGER:
        notes.append(f"without the ledger's workloads: {why}")
    unsure = [row for row in rows.values() if row.status is WorkloadState.FAILED and not row.reason]
    await _correct(temporal, rows, unsure, page)
    for kept in page.rows:
        known = rows.get(kept.workload)
        if known is None:
            rows[kept.workload] = _of_ledger(kept)
        elif known.status.value == kept.state:
            # What is shown as submitted is the first run's start: continue-as-new begins later.
            update: dict[str, Any] = {"submitted_ms": kept.submitted_ms or known.submitted_ms}
            rows[kept.workload] = known.model_copy(
                update=update | {"reason": known.reason or kept.reason}
            )
    found = sorted(
        (row for row in rows.values() if _fits(row, wanted)),
        key=lambda row: (-row.submitted_ms, row.id),
    )
    more = len(found) > wanted.limit or bool(page.next)
    return WorkloadList(workloads=found[: wanted.limit], more=more, notes=notes)


async def _from_temporal(
    temporal: Client, wanted: ListFilter, notes: list[str]
) -> dict[str, WorkloadRow]:
    """The newest run of each workload that Temporal lists."""
    rows: dict[str, WorkloadRow] = {}
    limit = wanted.limit + 1
    executions = temporal.list_workflows(
        visibility_query(wanted), page_size=min(limit, MOST), rpc_timeout=QUERY_TIMEOUT
    )
    try:
        async for execution in executions:
            name = workload_of(execution.id)
            if name is None:
                continue
            row = _of_execution(execution, name)
            known = rows.get(row.id)
            if known is None or known.submitted_ms < row.submitted_ms:
                rows[row.id] = row
            if len(rows) > limit:
                break
    except RPCError as error:
        if not is_away(error):
            raise
        notes.append(f"Temporal does not answer ({error.message}): only the ledger's workloads")
    return rows


def _of_execution(execution: WorkflowExecution, workload: str) -> WorkloadRow:
    attributes = execution.typed_search_attributes
    status = execution.status or WorkflowExecutionStatus.RUNNING
    closed = execution.close_time
    return WorkloadRow(
        id=workload,
        name=attributes.get(NAME) or "",
        pool=attributes.get(POOL) or "",
        queue=attributes.get(QUEUE) or "",
        priority=attributes.get(PRIORITY) or 0,
        labels=labels_of(attributes.get(LABELS) or []),
        status=_STATES.get(status, WorkloadState.FAILED),
        reason=_HARD_ENDS.get(status, ""),
        submitted_ms=int(execution.start_time.timestamp() * 1_000),
        finished_ms=int(closed.timestamp() * 1_000) if closed else None,
    )


def _of_ledger(row: LedgerRow) -> WorkloadRow:
    return WorkloadRow(
        id=row.workload,
        name=row.name,
        pool=row.pool,
        queue=row.queue,
        priority=row.priority,
        labels=row.labels,
        status=WorkloadState(row.state),
        reason=row.reason,
        submitted_ms=row.submitted_ms,
        finished_ms=row.finished_ms,
        source=Source.LEDGER,
    )


async def _correct(
    temporal: Client,
    rows: dict[str, WorkloadRow],
    unsure: Iterable[WorkloadRow],
    page: WorkloadPage,
) -> None:
    """Tell cancelled workloads from failed ones: to Temporal both are failed workflows."""
    kept = {row.workload: row for row in page.rows}
    gate = asyncio.Semaphore(AT_ONCE)

    async def correct(row: WorkloadRow) -> None:
        known = kept.get(row.id)
        if known is not None and known.state in ("FAILED", "CANCELLED"):
            update = {"status": WorkloadState(known.state), "reason": known.reason}
        else:
            async with gate:
                update = await _from_result(temporal, row.id)
        rows[row.id] = row.model_copy(update=update)

    await asyncio.gather(*(correct(row) for row in unsure))


async def _from_result(temporal: Client, workload: str) -> dict[str, Any]:
    """Status and reason that a failed workflow's failure carries."""
    handle: Any = temporal.get_workflow_handle(f"headbay/w/{workload}")
    try:
        await answered(handle.result(follow_runs=False, rpc_timeout=QUERY_TIMEOUT))
    except WorkflowFailureError as failure:
        cause = failure.cause
        if not isinstance(cause, ApplicationError):
            return {}
        kind = cause.type or ""
        if not kind.startswith("WORKLOAD_"):
            return {"reason": kind}
        told = cause.details[0] if cause.details else {}
        reason = told.get("reason", "") if isinstance(told, dict) else ""
        return {"status": WorkloadState(kind.removeprefix("WORKLOAD_")), "reason": reason}
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND and not is_away(error):
            raise  # One whose retention ran out a moment ago is as it was listed.
    return {}


def _fits(row: WorkloadRow, wanted: ListFilter) -> bool:
    if wanted.failed and row.status is not WorkloadState.FAILED:
        return False
    if wanted.running and row.status is not WorkloadState.RUNNING:
        return False
    if wanted.queue is not None and row.queue != wanted.queue:
        return False
    return wanted.labels.items() <= row.labels.items()


def _ledger_query(wanted: ListFilter) -> WorkloadQuery:
    states: tuple[str, ...] = ()
    if wanted.failed:
        states = (WorkloadState.FAILED.value,)
    if wanted.running:
        states = (WorkloadState.RUNNING.value,)
    return WorkloadQuery(
        labels=wanted.labels, states=states, queue=wanted.queue, limit=wanted.limit
    )


def _quoted(text: str) -> str:
    """A string of Temporal's list syntax.

    Source: its parser is a SQL one: a quote is doubled, a backslash escapes.
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
