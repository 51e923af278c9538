"""Taking work back: cancellation, and ``onFailure: stop``."""

from headbay.domain.attempt import StopOrder
from headbay.domain.lifecycle import AttemptState, StateReason, StepState
from headbay.domain.outcome import Outcome
from headbay.domain.retry import NODE_FAULTS
from headbay.domain.status import CancelStatus
from headbay.domain.workload.books import Books
from headbay.domain.workload.instructions import StopAttempt, TimerKind, WithdrawRequest
from headbay.domain.workload.records import AttemptRecord, StepRecord

__all__ = ["cancel_all", "give_up_retry", "stop_after_failure", "withdraw"]


def withdraw(books: Books, step: StepRecord, attempt: AttemptRecord, reason: str) -> None:
    """End a request that has not become an allocation."""
    books.disarm(TimerKind.QUEUE, step)
    books.instruct(WithdrawRequest(step.name, attempt.number))
    attempt.reason = reason
    books.move_attempt(step, attempt, AttemptState.ENDED)


def cancel_all(books: Books, by: str, reason: str) -> None:
    """Cancel whatever has not ended.

    What runs is told to stop and awaited: it may still succeed. What is in doubt is awaited too:
    its process may still run. Everything else is CANCELLED at once.
    """
    books.cancel = CancelStatus(by=by, reason=reason, at_ms=books.now_ms)
    books.record("CancelRequested", data={"by": by, "reason": reason})
    for step in books.steps:
        attempt = step.live
        if step.state is StepState.RUNNING and attempt is not None:
            _stop(books, step, attempt)
            continue
        if step.state in (StepState.PENDING, StepState.QUEUED, StepState.UNRESOLVED):
            _take_back(books, step, StateReason.CANCEL_REQUESTED)
            books.move_step(step, StepState.CANCELLED, StateReason.CANCEL_REQUESTED)
            books.record("StepCancelled", step, state=step.state, reason=step.reason)


def _stop(books: Books, step: StepRecord, attempt: AttemptRecord) -> None:
    if attempt.state is not AttemptState.RUNNING or attempt.grant is None:
        return
    attempt.stop = Outcome.CANCELLED
    order = StopOrder(
        workload=books.id, step=step.name, attempt=attempt.number, fence=attempt.fence
    )
    books.instruct(StopAttempt(order, attempt.grant.node, attempt.grant.epoch))


def _take_back(books: Books, step: StepRecord, reason: str) -> None:
    """No request and no retry timer is left."""
    books.disarm(TimerKind.RETRY, step)
    attempt = step.live
    if attempt is not None:
        withdraw(books, step, attempt, reason)


def stop_after_failure(books: Books, failed: StepRecord) -> None:
    """``onFailure: stop``: nothing new begins; what runs may finish."""
    books.stopping = True
    books.note(f"stopping after the failure of {failed.name}")
    for step in books.steps:
        if step.state in (StepState.PENDING, StepState.QUEUED):
            _take_back(books, step, StateReason.STOPPED_AFTER_FAILURE)
            give_up_retry(books, step)


def give_up_retry(books: Books, step: StepRecord) -> None:
    """End a step that is not to be begun (again): failed if it failed by itself, else skipped."""
    last = next((a.result for a in reversed(step.attempts) if a.result is not None), None)
    if last is None or last.outcome in NODE_FAULTS or last.outcome is Outcome.PREEMPTED:
        books.move_step(step, StepState.SKIPPED, StateReason.STOPPED_AFTER_FAILURE)
        books.record("StepSkipped", step, state=step.state, reason=step.reason)
    else:
        books.move_step(step, StepState.FAILED, last.outcome, last.message)
        books.record("StepFailed", step, state=step.state, reason=step.reason)
