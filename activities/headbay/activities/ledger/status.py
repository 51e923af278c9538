"""A workload's status out of the ledger, for when Temporal no longer knows it or is away."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields

from headbay.activities.ledger.port import Ledger
from headbay.activities.ledger.rows import AttemptRow, StepRow, WorkloadRow
from headbay.domain.attempt import Usage
from headbay.domain.status import (
    AttemptStatus,
    CancelStatus,
    StepStatus,
    WorkloadStatus,
    count_states,
)

__all__ = ["read_status", "status_from_rows"]

SAME_NAMES = (AttemptStatus.model_fields.keys() & {f.name for f in fields(AttemptRow)}) - {
    "isolation"
}
USAGE = Usage.model_fields.keys() - {"wall_ms"}


async def read_status(ledger: Ledger, workload: str) -> WorkloadStatus | None:
    """What the ledger knows of a workload; None if nothing.

    A finished one is told as it finished. Of an unfinished one, steps that nothing has happened
    to are missing.
    """
    row = await ledger.workload(workload)
    if row is None:
        return None
    final = await ledger.final_status(workload)
    if final is not None:
        return WorkloadStatus.model_validate(final)
    return status_from_rows(row, await ledger.steps(workload), await ledger.attempts(workload))


def status_from_rows(
    row: WorkloadRow, steps: Iterable[StepRow], attempts: Iterable[AttemptRow]
) -> WorkloadStatus:
    """The status that the read model shows."""
    tried: dict[str, list[AttemptRow]] = defaultdict(list)
    for attempt in attempts:
        tried[attempt.step].append(attempt)
    told = [_step(step, tried[step.step]) for step in steps]
    granted = [a.granted_ms for rows in tried.values() for a in rows if a.granted_ms is not None]
    cancel = None
    if row.cancel_ms is not None:
        cancel = CancelStatus(by=row.cancel_by, reason=row.cancel_reason, at_ms=row.cancel_ms)
    return WorkloadStatus.model_validate(
        {
            "id": row.workload,
            "name": row.name or row.workload,
            "pool": row.pool or "default",
            "queue": row.queue or "default",
            "priority": row.priority,
            "labels": row.labels,
            "status": row.state,
            "reason": row.reason,
            "submitted_ms": row.submitted_ms,
            "started_ms": min(granted, default=None),
            "finished_ms": row.finished_ms,
            "cancel": cancel,
            "counts": count_states(step.state for step in told),
            "steps": told,
        }
    )


def _step(row: StepRow, attempts: list[AttemptRow]) -> StepStatus:
    won = next((a for a in reversed(attempts) if a.outcome == "SUCCEEDED"), None)
    return StepStatus.model_validate(
        {
            "name": row.step,
            "base": row.step,
            "state": row.state,
            "reason": row.reason,
            "attempts": [_attempt(attempt) for attempt in attempts],
            "attempts_made": row.attempts,
            "output": won.output if won else None,
            "artifacts": won.artifacts if won else None,
        }
    )


def _attempt(row: AttemptRow) -> AttemptStatus:
    told = {name: getattr(row, name) for name in SAME_NAMES}
    told["usage"] = {name: getattr(row, name) for name in USAGE} | {"wall_ms": row.run_ms}
    if row.log_path is not None:
        told["log"] = {
            "path": row.log_path,
            "seen_bytes": row.log_seen_bytes or 0,
            "kept_bytes": row.log_kept_bytes or 0,
        }
    if row.isolation is not None:
        told["isolation"] = row.isolation
    return AttemptStatus.model_validate(told)
