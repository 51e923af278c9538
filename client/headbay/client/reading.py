"""Reads one workload's status from whoever can answer, best source first.

1. Open: the workflow's query ``state``, within three seconds.
2. Closed: the result that Temporal keeps; where there is none (terminated, timed out), the query,
   corrected by how the workflow closed.
3. The ledger, if there is one. 4. Temporal's description: open or closed, without steps.
Every answer says where it came from.
"""

import time
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError
from temporalio.exceptions import TimeoutError as WorkflowTimeoutError
from temporalio.service import RPCError, RPCStatusCode

from headbay.client.connection import QUERY_TIMEOUT, answered, is_away
from headbay.client.errors import NotFoundError
from headbay.client.models import Reading, Source
from headbay.client.past import Past
from headbay.client.submission import LABELS, NAME, POOL, PRIORITY, QUEUE
from headbay.domain.ids import workload_workflow_id
from headbay.domain.lifecycle import WorkloadState
from headbay.domain.status import WorkloadStatus

__all__ = ["Reader", "from_description", "is_final", "labels_of"]

_OPEN = WorkflowExecutionStatus.RUNNING

NOBODY_ANSWERED = (
    f"no control worker answered within {QUERY_TIMEOUT.seconds} s (`headbay doctor` looks for one)"
)


def is_final(reading: Reading) -> bool:
    """Whether the workload has ended."""
    return reading.workload.status is not WorkloadState.RUNNING


class Reader:
    """Reads statuses with one Temporal client and, if there is one, one ledger."""

    def __init__(self, temporal: Client, past: Past) -> None:
        self._temporal = temporal
        self._past = past

    async def read(self, workload: str) -> Reading:
        """The best answer that there is.

        Raises:
            NotFoundError: Neither Temporal nor the ledger knows the workload.
            RPCError: The server does not answer, and there is no ledger that knows it.
        """
        handle = self._handle(workload)
        try:
            described = await answered(handle.describe(rpc_timeout=QUERY_TIMEOUT))
        except RPCError as error:
            return await self._read_past(workload, error)
        pinned = self._handle(workload, described.run_id)
        if described.status is _OPEN:
            return await self._read_open(workload, described, pinned)
        return await self._read_closed(workload, described, pinned)

    async def glance(self, workload: str) -> Reading | None:
        """What the workflow itself says: one message; None if nobody answers in time.

        Raises:
            NotFoundError: Temporal does not know the workload.
        """
        try:
            return await self._query(self._handle(workload))
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise NotFoundError("workload", workload) from error
            raise

    def _handle(self, workload: str, run: str | None = None) -> WorkflowHandle[Any, Any]:
        return self._temporal.get_workflow_handle(workload_workflow_id(workload), run_id=run)

    async def _query(self, handle: WorkflowHandle[Any, Any]) -> Reading | None:
        try:
            raw = await answered(handle.query("state", rpc_timeout=QUERY_TIMEOUT))
        except WorkflowQueryFailedError:
            return None
        except RPCError as error:
            if is_away(error):
                return None
            raise
        return _reading(Source.WORKFLOW, WorkloadStatus.model_validate(raw)) if raw else None

    async def _read_open(
        self,
        workload: str,
        described: WorkflowExecutionDescription,
        handle: WorkflowHandle[Any, Any],
    ) -> Reading:
        found = await self._query(handle)
        if found is not None:
            return found
        status, note = await self._past.status(workload)
        if status is not None:
            note = f"{NOBODY_ANSWERED}: this is what the ledger last heard"
            return _reading(Source.LEDGER, status, note)
        note = ", and the ".join(part for part in (NOBODY_ANSWERED, note) if part)
        return _reading(Source.DESCRIPTION, await from_description(workload, described), note)

    async def _read_closed(
        self,
        workload: str,
        described: WorkflowExecutionDescription,
        handle: WorkflowHandle[Any, Any],
    ) -> Reading:
        try:
            raw = await answered(handle.result(follow_runs=False, rpc_timeout=QUERY_TIMEOUT))
            return _reading(Source.RESULT, WorkloadStatus.model_validate(raw))
        except WorkflowFailureError as failure:
            cause = failure.cause
        except RPCError as error:
            return await self._read_past(workload, error)
        kept = _kept_status(cause)
        if kept is not None:
            return _reading(Source.RESULT, kept)
        if isinstance(cause, ApplicationError) and cause.type == "DOCUMENT_REFUSED":
            last, source, note = None, Source.RESULT, ""
        else:
            last, source, note = await self._last_known(workload, handle)
        if last is None:
            last = await from_description(workload, described)
        finished = described.close_time
        return _reading(
            source,
            last.model_copy(
                update=_closed_as(cause)
                | {"finished_ms": int(finished.timestamp() * 1_000) if finished else None}
            ),
            note,
        )

    async def _last_known(
        self, workload: str, handle: WorkflowHandle[Any, Any]
    ) -> tuple[WorkloadStatus | None, Source, str]:
        """The last state of a workflow that closed without telling it."""
        found = await self._query(handle)
        if found is not None:
            return found.workload, Source.WORKFLOW, ""
        status, note = await self._past.status(workload)
        if status is not None:
            note = f"{NOBODY_ANSWERED}: its steps are what the ledger last heard"
            return status, Source.LEDGER, note
        note = ", and the ".join(part for part in (NOBODY_ANSWERED, note) if part)
        return None, Source.DESCRIPTION, note

    async def _read_past(self, workload: str, error: RPCError) -> Reading:
        """Temporal does not know it, or does not answer."""
        unknown = error.status is RPCStatusCode.NOT_FOUND
        if not unknown and not is_away(error):
            raise error
        status, _ = await self._past.status(workload)
        if status is None:
            if unknown:
                raise NotFoundError("workload", workload) from error
            raise error
        said = "Temporal no longer keeps it" if unknown else "Temporal does not answer"
        return _reading(Source.LEDGER, status, f"{said}: this is what the ledger has")


async def from_description(
    workload: str, described: WorkflowExecutionDescription
) -> WorkloadStatus:
    """What Temporal's own description of a workflow says of the workload."""
    attributes = described.typed_search_attributes
    closed = described.close_time
    states = {
        WorkflowExecutionStatus.RUNNING: WorkloadState.RUNNING,
        WorkflowExecutionStatus.COMPLETED: WorkloadState.SUCCEEDED,
        WorkflowExecutionStatus.CANCELED: WorkloadState.CANCELLED,
    }
    return WorkloadStatus(
        id=workload,
        name=attributes.get(NAME) or workload,
        pool=attributes.get(POOL) or "default",
        queue=attributes.get(QUEUE) or "default",
        priority=attributes.get(PRIORITY) or 0,
        labels=labels_of(attributes.get(LABELS) or []),
        status=states.get(described.status or _OPEN, WorkloadState.FAILED),
        submitted_ms=int(described.start_time.timestamp() * 1_000),
        finished_ms=int(closed.timestamp() * 1_000) if closed else None,
    )


def labels_of(pairs: object) -> dict[str, str]:
    """Labels from their search attribute, a list of ``key=value``."""
    found = pairs if isinstance(pairs, list | tuple) else []
    return {key: value for key, _, value in (str(pair).partition("=") for pair in found)}


def _kept_status(cause: BaseException) -> WorkloadStatus | None:
    """The status that a failed or cancelled workload's failure carries."""
    if not isinstance(cause, ApplicationError) or not cause.details:
        return None
    if not (cause.type or "").startswith("WORKLOAD_"):
        return None
    return WorkloadStatus.model_validate(cause.details[0])


def _closed_as(cause: BaseException) -> dict[str, Any]:
    """How a workflow closed that did not decide its own end."""
    if isinstance(cause, CancelledError):
        return {"status": WorkloadState.CANCELLED, "reason": "CANCEL_REQUESTED"}
    if isinstance(cause, TerminatedError):
        message = f"its workflow was terminated: {cause.message}"
        return {"status": WorkloadState.FAILED, "reason": "TERMINATED", "message": message}
    if isinstance(cause, WorkflowTimeoutError):
        message = "its workflow reached Temporal's timeout"
        return {"status": WorkloadState.FAILED, "reason": "WORKFLOW_TIMED_OUT", "message": message}
    if isinstance(cause, ApplicationError):
        reason = cause.type or "WORKFLOW_FAILED"
        return {"status": WorkloadState.FAILED, "reason": reason, "message": cause.message}
    return {
        "status": WorkloadState.FAILED,
        "reason": "WORKFLOW_FAILED",
        "message": str(cause),
    }


def _reading(source: Source, status: WorkloadStatus, note: str = "") -> Reading:
    return Reading(source=source, note=note, read_ms=time.time_ns() // 1_000_000, workload=status)
