"""Operations of people and orchestrators, and the answers they get."""

from headbay.domain.lifecycle import StateReason, StepState, WorkloadState
from headbay.domain.retry import Counts
from headbay.domain.workload.books import Books
from headbay.domain.workload.events import CancelRequested, Resolved
from headbay.domain.workload.instructions import Acceptance
from headbay.domain.workload.stopping import cancel_all

__all__ = ["cancel", "resolve"]

VERDICTS = ("retry", "success", "failure")


def cancel(books: Books, event: CancelRequested) -> Acceptance:
    """Cancel the workload; the first request counts, later ones change nothing."""
    if books.status is not WorkloadState.RUNNING:
        return Acceptance(
            accepted=False,
            code="ALREADY_FINISHED",
            message=f"the workload is {books.status} already; nothing was changed",
        )
    if books.cancel is not None:
        return Acceptance(
            accepted=True,
            code="ALREADY_CANCELLED",
            message=f"{books.cancel.by} cancelled it before; it ends as its steps stop",
        )
    cancel_all(books, event.by, event.reason)
    return Acceptance(accepted=True, code="ACCEPTED", message="cancelling")


def resolve(books: Books, event: Resolved) -> Acceptance:
    """Take an operator's word on an UNRESOLVED step."""
    step = books.find(event.step)
    if step is None:
        return _refusal("UNKNOWN_STEP", f"there is no step {event.step!r}; see the status")
    if event.verdict not in VERDICTS:
        return _refusal("UNKNOWN_VERDICT", f"{event.verdict!r} is none of {', '.join(VERDICTS)}")
    if step.state is not StepState.UNRESOLVED:
        return _refusal(
            "NOT_UNRESOLVED",
            f"{step.name} is {step.state}; only an UNRESOLVED step needs an operator's word",
        )
    if event.verdict == "retry" and books.stopping:
        return _refusal(
            "STOPPED_AFTER_FAILURE",
            "the workload begins nothing after a failure (onFailure: stop); "
            f"resolve {step.name} as success or failure",
        )
    state = {
        "retry": StepState.PENDING,
        "success": StepState.SUCCEEDED,
        "failure": StepState.FAILED,
    }[event.verdict]
    why = f": {event.reason}" if event.reason else ""
    books.move_step(step, state, StateReason.RESOLVED, f"resolved by {event.by}{why}")
    books.record(
        "StepResolved",
        step,
        state=step.state,
        reason=step.reason,
        data={"by": event.by, "verdict": event.verdict, "reason": event.reason},
    )
    if state is StepState.PENDING:
        step.counts = Counts(own=step.counts.own)
        books.make_ready(step)
    return Acceptance(accepted=True, code="ACCEPTED", message=f"{step.name} is {state}")


def _refusal(code: str, message: str) -> Acceptance:
    return Acceptance(accepted=False, code=code, message=message)
