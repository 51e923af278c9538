"""The status that the books show."""

from dataclasses import dataclass

from headbay.domain.attempt import OutputRef
from headbay.domain.outcome import Outcome
from headbay.domain.status import (
    AttemptStatus,
    StepStatus,
    WorkloadStatus,
    count_states,
)
from headbay.domain.workload.books import Books
from headbay.domain.workload.records import AttemptRecord, StepRecord

__all__ = ["status_of"]

RESULT_FIELDS = (
    "outcome",
    "exit_code",
    "signal",
    "flags",
    "started_ms",
    "ended_ms",
    "log",
    "isolation",
)
"""What a status repeats of an `AttemptResult`, under the same names."""

LARGE_STEPS = 250
LARGE_ATTEMPTS = 400
"""Beyond either, a status leaves out what the ledger tells as well: what a step runs, when its
attempts were queued and granted, what they used, what a success had to say, long texts and
lists."""

LISTED_ATTEMPTS = 1_100
"""With more attempts in all, only the last one of each step is listed."""

INLINE_BUDGET_BYTES = 64 * 1024
LARGE_INLINE_BUDGET_BYTES = 16 * 1024
"""Output values that a status carries in all, in document order."""


@dataclass(slots=True, frozen=True)
class _Detail:
    """How much a status tells."""

    full: bool
    all_attempts: bool

    def cut(self, text: str) -> str:
        """A text that fits."""
        chars = 200 if self.full else 80
        return text if len(text) <= chars else text[: chars - 1] + "…"


def status_of(books: Books) -> WorkloadStatus:
    """The workload's status, bounded in size."""
    made = sum(len(step.attempts) for step in books.steps)
    detail = _Detail(
        full=len(books.steps) <= LARGE_STEPS and made <= LARGE_ATTEMPTS,
        all_attempts=made <= LISTED_ATTEMPTS,
    )
    budget = INLINE_BUDGET_BYTES if detail.full else LARGE_INLINE_BUDGET_BYTES
    steps = []
    for step in books.steps:
        output = step.output
        if output is not None and output.inline:
            budget -= output.size_bytes
            if budget < 0:
                output = OutputRef(sha256=output.sha256, size_bytes=output.size_bytes)
        steps.append(_step(books, step, output, detail))
    dag = books.dag
    return WorkloadStatus(
        id=books.id,
        name=dag.name,
        pool=dag.pool,
        queue=dag.queue,
        priority=dag.priority,
        labels=dag.labels,
        status=books.status,
        reason=books.reason,
        message=books.message,
        submitted_ms=books.submitted_ms,
        started_ms=books.started_ms,
        finished_ms=books.finished_ms,
        cancel=books.cancel,
        counts=count_states(step.state for step in books.steps),
        steps=steps,
    )


def _step(books: Books, step: StepRecord, output: OutputRef | None, detail: _Detail) -> StepStatus:
    bases = list(
        dict.fromkeys(books.steps[i].definition.base for i in books.graph.upstreams[step.index])
    )
    shown = step.attempts if detail.all_attempts else step.attempts[-1:]
    return StepStatus(
        name=step.name,
        base=step.definition.base,
        display=detail.cut(step.definition.display) if detail.full else "",
        state=step.state,
        reason=step.reason,
        message=detail.cut(step.message),
        depends_on=bases if detail.full else bases[:16],
        attempts=[_attempt(attempt, detail) for attempt in shown],
        attempts_made=len(step.attempts),
        output=output,
        artifacts=step.artifacts,
    )


def _attempt(attempt: AttemptRecord, detail: _Detail) -> AttemptStatus:
    told: dict[str, object] = {
        "attempt": attempt.number,
        "fence": attempt.fence,
        "node": attempt.node,
        "state": attempt.state,
        "reason": attempt.reason,
    }
    if detail.full:
        told |= {"queued_ms": attempt.queued_ms, "granted_ms": attempt.granted_ms}
    result = attempt.result
    if result is not None:
        told |= {name: getattr(result, name) for name in RESULT_FIELDS}
        if detail.full:
            told["usage"] = result.usage
        if detail.full or result.outcome is not Outcome.SUCCEEDED:
            told["message"] = detail.cut(result.message)
    return AttemptStatus.model_validate(told)
