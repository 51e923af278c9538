"""The workload's journal: what happened, in order, as data."""

from pydantic import JsonValue

from headbay.domain.wire import Wire

__all__ = ["JournalEvent"]


class JournalEvent(Wire):
    """One transition. Key in the ledger: (workload, run, seq); appending is idempotent.

    Attributes:
        run: Temporal run id of the run that recorded it.
        seq: 0, 1, 2, … without gaps within a run.
        at_ms: Time of the workflow task that decided it.
        kind: Past tense: WorkloadSubmitted, StepQueued, StepGranted, StepStarted, AttemptEnded,
            StepRetryScheduled, StepSucceeded, StepFailed, StepSkipped, StepCancelled,
            StepUnresolved, StepResolved, CancelRequested, WorkloadFinished, …
        step, attempt: What it is about, if not the workload as a whole.
        state: The state after it. reason: Stable upper-case code, "" if none applies.
        data: Details; for AttemptEnded the whole AttemptResult, for WorkloadSubmitted
            {document, digest, name, queue, pool, priority, labels}, for WorkloadFinished {status}.
    """

    workload: str
    run: str
    seq: int
    at_ms: int
    kind: str
    step: str | None = None
    attempt: int | None = None
    state: str = ""
    reason: str = ""
    data: dict[str, JsonValue] = {}
