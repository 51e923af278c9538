"""What the end of an attempt means for its step.

Every end is proven: by the node's own word, by the pool, or by the lease's running out. Until
then the attempt is in doubt, its capacity stays taken and its step is not requested again.
"""

import zlib
from typing import Final

from headbay.domain.attempt import AttemptResult
from headbay.domain.lease import reassign_after_ms
from headbay.domain.lifecycle import AttemptState, StateReason, StepState
from headbay.domain.outcome import Outcome
from headbay.domain.retry import NODE_FAULTS, Decision, Verdict, after_attempt, count
from headbay.domain.workload.books import Books
from headbay.domain.workload.instructions import (
    AbandonAttempt,
    ReleaseCapacity,
    TimerKind,
)
from headbay.domain.workload.records import AttemptRecord, StepRecord
from headbay.domain.workload.stopping import give_up_retry, withdraw

__all__ = ["closed_unproven", "ended", "fail", "lease_ran_out", "never_started"]

PRESUMPTIONS: Final = frozenset({Outcome.LEASE_LOST, Outcome.NODE_LOST, Outcome.UNKNOWN})
"""Ends that someone other than the node may have concluded, and that its word may correct."""


def closed_unproven(books: Books, step: StepRecord, attempt: AttemptRecord, cause: str) -> None:
    """The activity closed without the node's word: wait for proof, or for TTL plus grace."""
    grant = attempt.grant
    if attempt.state is not AttemptState.RUNNING or grant is None:
        books.note(f"ignored: {step.name} attempt {attempt.number} is {attempt.state}")
        return
    books.move_attempt(step, attempt, AttemptState.IN_DOUBT)
    books.record("AttemptInDoubt", step, attempt.number, state=attempt.state, reason=cause)
    at_ms = reassign_after_ms(books.now_ms, grant.lease_ms, grant.grace_ms)
    books.arm(TimerKind.LEASE, step, attempt.number, attempt.fence, at_ms)


def lease_ran_out(books: Books, step: StepRecord, attempt: AttemptRecord) -> None:
    """TTL plus grace after the closure are over: whatever ran was killed by its own shim."""
    if attempt.state is AttemptState.IN_DOUBT and books.take_due(
        TimerKind.LEASE, step.name, attempt.number
    ):
        result = _concluded(
            books,
            step,
            attempt,
            Outcome.LEASE_LOST,
            "its activity closed without the node's word, and its lease ran out",
        )
        _end(books, step, attempt, result, presumed=True)


def never_started(books: Books, step: StepRecord, attempt: AttemptRecord) -> None:
    """No worker took the activity in time: proof that nothing was executed."""
    if attempt.state in (AttemptState.RUNNING, AttemptState.IN_DOUBT):
        result = _concluded(
            books, step, attempt, Outcome.NOT_STARTED, "no worker of the node took it in time"
        )
        _end(books, step, attempt, result, presumed=False)


def ended(
    books: Books,
    step: StepRecord,
    attempt: AttemptRecord,
    result: AttemptResult,
    *,
    by_node: bool,
    activity_closed: bool,
) -> None:
    """Someone proved the end of an attempt.

    Args:
        books: The books.
        step: Its step.
        attempt: The attempt that holds or held the result's fence.
        result: How it ended.
        by_node: It is the node's own word, not the pool's conclusion.
        activity_closed: The activity that ran it is closed for sure.
    """
    if attempt.state is AttemptState.ENDED:
        if attempt.presumed and (by_node or result.outcome not in PRESUMPTIONS):
            _correct(books, step, attempt, result)
        else:
            books.note(f"ignored: {step.name} attempt {attempt.number} has ended before")
        return
    if attempt.state is AttemptState.RUNNING and not activity_closed:
        books.instruct(AbandonAttempt(step.name, attempt.number, attempt.fence))
    presumed = not by_node and result.outcome in PRESUMPTIONS
    _end(books, step, attempt, result, presumed=presumed)


def _concluded(
    books: Books, step: StepRecord, attempt: AttemptRecord, outcome: Outcome, message: str
) -> AttemptResult:
    """The result of an attempt that its node said nothing about."""
    if attempt.grant is None:
        raise books.broken(f"{step.name} attempt {attempt.number} ends without an allocation")
    return AttemptResult(
        workload=books.id,
        step=step.name,
        attempt=attempt.number,
        fence=attempt.fence,
        allocation=attempt.grant.allocation,
        node=attempt.node,
        outcome=outcome,
        message=message,
        began=outcome is not Outcome.NOT_STARTED,
    )


def _end(
    books: Books, step: StepRecord, attempt: AttemptRecord, result: AttemptResult, *, presumed: bool
) -> None:
    if attempt.grant is None:
        raise books.broken(f"{step.name} attempt {attempt.number} ends without an allocation")
    books.disarm(TimerKind.LEASE, step)
    books.instruct(ReleaseCapacity(attempt.grant.allocation))
    books.move_attempt(step, attempt, AttemptState.ENDED)
    attempt.result = result
    attempt.presumed = presumed
    attempt.counts_before = step.counts
    _record_end(books, step, attempt, result)
    step.counts = count(step.counts, result.outcome)
    _carry_out(books, step, attempt, result, _decide(books, step, attempt, result))


def _record_end(
    books: Books, step: StepRecord, attempt: AttemptRecord, result: AttemptResult
) -> None:
    books.record(
        "AttemptEnded",
        step,
        attempt.number,
        state=AttemptState.ENDED,
        reason=result.outcome,
        data=result.model_dump(mode="json"),
    )


def _decide(
    books: Books, step: StepRecord, attempt: AttemptRecord, result: AttemptResult
) -> Decision:
    """The retry rules, below cancellation.

    Under a cancel request nothing is repeated or left open: what succeeded succeeded, what failed
    by itself failed, and all other ends are the cancellation's.
    """
    outcome = result.outcome
    if books.cancel is not None and outcome is not Outcome.SUCCEEDED:
        if outcome in NODE_FAULTS or outcome in (Outcome.CANCELLED, Outcome.PREEMPTED):
            return Decision(verdict=Verdict.CANCEL, reason=StateReason.CANCEL_REQUESTED)
        return Decision(verdict=Verdict.FAIL, reason=outcome)
    draw = zlib.crc32(f"{books.id}/{step.name}/{attempt.number}".encode()) % 1_000
    return after_attempt(
        step.definition.retry,
        step.definition.repeat,
        outcome,
        began=result.began,
        counts=step.counts,
        jitter_draw=draw,
    )


def _carry_out(
    books: Books,
    step: StepRecord,
    attempt: AttemptRecord,
    result: AttemptResult,
    decision: Decision,
) -> None:
    match decision.verdict:
        case Verdict.SUCCEED:
            step.output, step.artifacts = result.output, result.artifacts
            books.move_step(step, StepState.SUCCEEDED)
            books.record("StepSucceeded", step, attempt.number, state=step.state)
        case Verdict.FAIL:
            fail(books, step, decision.reason, result.message)
        case Verdict.CANCEL:
            books.move_step(step, StepState.CANCELLED, decision.reason, result.message)
            books.record("StepCancelled", step, state=step.state, reason=step.reason)
        case Verdict.UNRESOLVED:
            message = "may have run, and must not be repeated: resolve it"
            books.move_step(step, StepState.UNRESOLVED, decision.reason, message)
            books.record("StepUnresolved", step, state=step.state, reason=step.reason)
        case Verdict.RETRY:
            _retry(books, step, decision)


def fail(books: Books, step: StepRecord, reason: str, message: str) -> None:
    """The step failed for good."""
    books.move_step(step, StepState.FAILED, reason, message)
    books.record("StepFailed", step, state=step.state, reason=step.reason)


def _retry(books: Books, step: StepRecord, decision: Decision) -> None:
    books.move_step(step, StepState.PENDING, StateReason.RETRY_SCHEDULED, decision.reason)
    if books.stopping:
        give_up_retry(books, step)
        return
    number = len(step.attempts) + 1
    at_ms = books.now_ms + decision.delay_ms
    books.record(
        "StepRetryScheduled",
        step,
        number,
        state=step.state,
        reason=decision.reason,
        data={"at_ms": at_ms},
    )
    if decision.delay_ms:
        books.arm(TimerKind.RETRY, step, number, 0, at_ms)
    else:
        books.make_ready(step)


def _correct(books: Books, step: StepRecord, attempt: AttemptRecord, result: AttemptResult) -> None:
    """The node's word on an end that was presumed: accepted if no newer fence was granted.

    The step is decided anew as if the presumption had never been; a retry that is already on its
    way stays on its way if that decision is a retry again.
    """
    movable = (StepState.PENDING, StepState.QUEUED, StepState.UNRESOLVED)
    if step.fence != attempt.fence or step.state not in movable or attempt.counts_before is None:
        books.note(f"ignored: late exit of {step.name} attempt {attempt.number}")
        return
    attempt.result = result
    attempt.presumed = False
    _record_end(books, step, attempt, result)
    step.counts = count(attempt.counts_before, result.outcome)
    decision = _decide(books, step, attempt, result)
    unresolved = step.state is StepState.UNRESOLVED
    if decision.verdict is (Verdict.UNRESOLVED if unresolved else Verdict.RETRY):
        return
    books.disarm(TimerKind.RETRY, step)
    pending = step.live
    if pending is not None:
        withdraw(books, step, pending, StateReason.LATE_EXIT)
    _carry_out(books, step, attempt, result, decision)
