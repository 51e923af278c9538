"""Journals of workloads, as workflows write them."""

from collections.abc import Iterable
from typing import Any

from headbay.domain.attempt import AttemptResult, LogRef, Usage
from headbay.domain.journal import JournalEvent
from headbay.domain.outcome import Flag, Outcome

__all__ = ["Journal", "one_step"]


class Journal:
    """Writes the events of one run, in order."""

    def __init__(self, workload: str, run: str = "run-1", at_ms: int = 1_000_000) -> None:
        self.workload = workload
        self.run = run
        self.at_ms = at_ms
        self.events: list[JournalEvent] = []

    def add(
        self,
        kind: str,
        step: str | None = None,
        attempt: int | None = None,
        *,
        state: str = "",
        reason: str = "",
        after_ms: int = 1,
        data: dict[str, Any] | None = None,
    ) -> JournalEvent:
        self.at_ms += after_ms
        event = JournalEvent(
            workload=self.workload,
            run=self.run,
            seq=len(self.events),
            at_ms=self.at_ms,
            kind=kind,
            step=step,
            attempt=attempt,
            state=state,
            reason=reason,
            data=data or {},
        )
        self.events.append(event)
        return event

    def submitted(self, **data: Any) -> JournalEvent:
        told = {
            "name": "ci",
            "queue": "default",
            "pool": "default",
            "priority": 0,
            "labels": {},
            "steps": 1,
        }
        return self.add("WorkloadSubmitted", state="RUNNING", data=told | data)

    def queued(self, step: str = "build", attempt: int = 1) -> JournalEvent:
        return self.add("StepQueued", step, attempt, state="QUEUED")

    def granted(self, step: str = "build", attempt: int = 1, fence: int = 1) -> JournalEvent:
        data = {
            "allocation": f"alloc-{fence}",
            "node": "n1",
            "fence": fence,
            "resources": {"cpu": 1_000},
        }
        return self.add("StepGranted", step, attempt, state="RUNNING", data=data, after_ms=40)

    def ended(
        self,
        step: str = "build",
        attempt: int = 1,
        fence: int = 1,
        outcome: Outcome = Outcome.SUCCEEDED,
        **result: Any,
    ) -> JournalEvent:
        told = AttemptResult(
            workload=self.workload,
            step=step,
            attempt=attempt,
            fence=fence,
            allocation=f"alloc-{fence}",
            node="n1",
            outcome=outcome,
            began=True,
            **result,
        )
        return self.add(
            "AttemptEnded",
            step,
            attempt,
            state="ENDED",
            reason=outcome,
            after_ms=500,
            data=told.model_dump(mode="json"),
        )

    def finished(self, state: str = "SUCCEEDED", reason: str = "") -> JournalEvent:
        status = {"id": self.workload, "name": "ci", "status": state, "reason": reason}
        return self.add("WorkloadFinished", state=state, reason=reason, data={"status": status})

    def continued(self, run: str) -> "Journal":
        """The journal of the next run."""
        return Journal(self.workload, run, self.at_ms)

    def replayed(self, run: str, events: Iterable[JournalEvent], after_ms: int) -> "Journal":
        """The journal of a run that a reset made: it tells again what it replays."""
        journal = Journal(self.workload, run, self.at_ms + after_ms)
        journal.events = [event.model_copy(update={"run": run}) for event in events]
        return journal


def one_step(workload: str, **submission: Any) -> list[JournalEvent]:
    """A workload of one step that succeeds."""
    journal = Journal(workload)
    journal.submitted(**submission)
    journal.queued()
    journal.granted()
    journal.ended(
        exit_code=0,
        flags=[Flag.LEFTOVERS_KILLED],
        started_ms=journal.at_ms + 7,
        ended_ms=journal.at_ms + 480,
        usage=Usage(wall_ms=473, cpu_user_us=5_000, cpu_system_us=700, memory_peak_bytes=1 << 20),
        log=LogRef(path="/logs/x", seen_bytes=10, kept_bytes=9),
    )
    journal.add("StepSucceeded", "build", 1, state="SUCCEEDED")
    journal.finished()
    return journal.events
