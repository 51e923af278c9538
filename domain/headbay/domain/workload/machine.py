"""The workload's state machine: events in, instructions out. No clock, no randomness, no I/O.

The final status: any FAILED step makes the workload FAILED; else any CANCELLED one CANCELLED;
else it SUCCEEDED (skips are success). So a cancel that came when nothing was left to be cancelled
leaves a SUCCEEDED workload, with the request shown in its status.
"""

from headbay.domain.dag import DagDef
from headbay.domain.exchange import Grant
from headbay.domain.journal import JournalEvent
from headbay.domain.lifecycle import (
    WORKLOAD_TRANSITIONS,
    AttemptState,
    StateReason,
    StepState,
    WorkloadState,
    check_transition,
)
from headbay.domain.status import WorkloadStatus, to_json
from headbay.domain.workload import endings, operations
from headbay.domain.workload.books import Books
from headbay.domain.workload.check import sanity_check
from headbay.domain.workload.events import (
    CancelRequested,
    Closed,
    ClosedUnproven,
    ClosureCause,
    Continued,
    DrainStarted,
    Event,
    Gone,
    Granted,
    LateExit,
    LeaseRanOut,
    NeverStarted,
    PoolRestarted,
    QueueTimedOut,
    Refused,
    Resolved,
    RetryDue,
    Started,
    describe,
)
from headbay.domain.workload.instructions import (
    Answer,
    Finish,
    Instruction,
    ReleaseCapacity,
    StartAttempt,
    TimerKind,
    WithdrawRequest,
)
from headbay.domain.workload.orders import launch_spec
from headbay.domain.workload.readiness import ask, evaluate, request_ready, settle
from headbay.domain.workload.records import StepRecord
from headbay.domain.workload.snapshot import dump, load
from headbay.domain.workload.stopping import withdraw
from headbay.domain.workload.view import status_of

__all__ = ["Machine"]


class Machine:
    """One workload. `handle` is the only way to change it."""

    def __init__(self, books: Books) -> None:
        self._books = books

    @classmethod
    def new(cls, workload: str, dag: DagDef, submitted_ms: int) -> "Machine":
        """A workload that nothing has happened to; handle `Started` first."""
        return cls(Books(workload, dag, submitted_ms))

    @classmethod
    def load(cls, packed: bytes) -> "Machine":
        """What `dump` packed; handle `Continued` first. The journal starts anew."""
        return cls(load(packed))

    def dump(self) -> bytes:
        """The whole state but the journal, packed for continue-as-new."""
        return dump(self._books)

    # -- what others see -----------------------------------------------------------------------

    @property
    def dag(self) -> DagDef:
        """What it runs."""
        return self._books.dag

    @property
    def status(self) -> WorkloadStatus:
        """The status as of the last event."""
        return status_of(self._books)

    @property
    def state(self) -> WorkloadState:
        """The workload's state alone, cheaply."""
        return self._books.status

    @property
    def finished(self) -> bool:
        """Whether `Finish` was instructed."""
        return self._books.status is not WorkloadState.RUNNING

    @property
    def holding(self) -> bool:
        """Whether any attempt holds an allocation: then the run must not continue as new."""
        return any(
            step.live is not None and step.live.grant is not None for step in self._books.steps
        )

    def holds(self) -> list[Grant]:
        """The grants it holds, in document order: what a pool that forgot everything is told."""
        return [
            step.live.grant
            for step in self._books.steps
            if step.live is not None and step.live.grant is not None
        ]

    def journal_since(self, seq: int) -> list[JournalEvent]:
        """What this run recorded from ``seq`` on; ``run`` is left empty."""
        return self._books.journal[seq:]

    @property
    def journal(self) -> list[JournalEvent]:
        """Everything that this run recorded."""
        return list(self._books.journal)

    def next_due_ms(self) -> int | None:
        """When the next timer is due; None if there is none."""
        return min((timer.at_ms for timer in self._books.timers.values()), default=None)

    def due(self, now_ms: int) -> list[Event]:
        """The events of all timers that are due, in the order in which they are.

        An alternative to carrying out `StartTimer` and `CancelTimer` one by one: wait until
        `next_due_ms`, and handle these.
        """
        timers = sorted(
            (timer for timer in self._books.timers.values() if timer.at_ms <= now_ms),
            key=lambda timer: (timer.at_ms, timer.kind, timer.step),
        )
        events: list[Event] = []
        for timer in timers:
            match timer.kind:
                case TimerKind.LEASE:
                    events.append(LeaseRanOut(timer.step, timer.attempt, timer.fence))
                case TimerKind.RETRY:
                    events.append(RetryDue(timer.step, timer.attempt))
                case TimerKind.QUEUE:
                    events.append(QueueTimedOut(timer.step, timer.attempt))
        return events

    def sanity_check(self) -> None:
        """Recount everything; raise `BrokenInvariantError` if the books do not add up."""
        sanity_check(self._books)

    @property
    def story(self) -> list[str]:
        """The last things that happened, oldest first."""
        return list(self._books.story)

    # -- events --------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """Take one event.

        1. The event's own rule; 2. joins and skips that follow; 3. requests for what became
        ready; 4. the end of the workload, if nothing is left.

        Args:
            event: What happened.
            now_ms: Unix milliseconds.
        """
        books = self._books
        books.open(describe(event), now_ms)
        if books.status is WorkloadState.RUNNING:
            self._apply(event)
            settle(books)
            request_ready(books)
            self._finish_if_over()
        else:
            self._apply_after_end(event)
        return books.close()

    def _apply(self, event: Event) -> None:  # noqa: C901, PLR0912 - one line for each event
        books = self._books
        match event:
            case Started():
                self._start()
            case Granted(grant):
                self._granted(grant)
            case Refused(name, number, code, message):
                self._refused(name, number, code, message)
            case Closed(result):
                held = books.find_held(result.step, result.attempt, result.fence)
                if held is not None:
                    endings.ended(books, *held, result, by_node=True, activity_closed=True)
            case LateExit(result):
                held = books.find_held(result.step, result.attempt, result.fence)
                if held is not None:
                    endings.ended(books, *held, result, by_node=True, activity_closed=False)
            case Gone():
                self._gone(event)
            case ClosedUnproven(name, number, fence, cause):
                held = books.find_held(name, number, fence)
                if held is not None:
                    endings.closed_unproven(books, *held, cause)
            case NeverStarted(name, number, fence):
                held = books.find_held(name, number, fence)
                if held is not None:
                    endings.never_started(books, *held)
            case LeaseRanOut(name, number, fence):
                held = books.find_held(name, number, fence)
                if held is not None:
                    endings.lease_ran_out(books, *held)
            case RetryDue(name, number):
                step = books.find(name)
                if step is not None and books.take_due(TimerKind.RETRY, name, number):
                    books.make_ready(step)
            case QueueTimedOut(name, number):
                self._queue_timed_out(name, number)
            case CancelRequested():
                books.instruct(Answer(event.ticket, operations.cancel(books, event)))
            case Resolved():
                books.instruct(Answer(event.ticket, operations.resolve(books, event)))
            case PoolRestarted():
                self._ask_again()
            case DrainStarted():
                self._drain()
            case Continued():
                self._continue()

    def _apply_after_end(self, event: Event) -> None:
        """The workload is over: grants are given back, operations refused."""
        books = self._books
        match event:
            case Granted(grant):
                books.instruct(ReleaseCapacity(grant.allocation))
            case CancelRequested():
                books.instruct(Answer(event.ticket, operations.cancel(books, event)))
            case Resolved():
                books.instruct(Answer(event.ticket, operations.resolve(books, event)))
            case _:
                books.note("ignored: the workload is over")

    def _start(self) -> None:
        books = self._books
        if books.begun:
            return
        books.begun = True
        dag = books.dag
        books.record(
            "WorkloadSubmitted",
            state=books.status,
            data={
                "name": dag.name,
                "queue": dag.queue,
                "pool": dag.pool,
                "priority": dag.priority,
                "labels": dict(dag.labels),
                "steps": len(dag.steps),
                "submitted_ms": books.submitted_ms,
            },
        )
        for step in books.steps:
            evaluate(books, step)

    def _granted(self, grant: Grant) -> None:
        """Start what was granted; give back what nobody waits for.

        1. The same allocation again changes nothing. 2. A grant with a fence that is not higher
        than all before is dead or stale; the request still stands and is asked again.
        """
        books = self._books
        step = books.find(grant.step)
        attempt = None if step is None else step.attempt(grant.attempt)
        if attempt is not None and attempt.fence == grant.fence:
            books.note(f"ignored: {grant.allocation} was granted before")
            return
        waits = attempt is not None and attempt.state is AttemptState.REQUESTED and attempt.asked
        if step is None or attempt is None or not waits:
            books.instruct(ReleaseCapacity(grant.allocation))
            return
        if grant.fence <= step.fence:
            books.instruct(ReleaseCapacity(grant.allocation))
            ask(books, step, attempt)
            return
        books.disarm(TimerKind.QUEUE, step)
        step.fence = attempt.fence = grant.fence
        attempt.grant, attempt.node, attempt.granted_ms = grant, grant.node, books.now_ms
        if books.started_ms is None:
            books.started_ms = books.now_ms
        if books.dag.workspace == "shared" and books.pinned is None:
            books.pinned = grant.node
        books.move_attempt(step, attempt, AttemptState.RUNNING)
        books.move_step(step, StepState.RUNNING)
        books.record(
            "StepGranted",
            step,
            attempt.number,
            state=step.state,
            data={
                "allocation": grant.allocation,
                "pool": books.dag.pool,
                "node": grant.node,
                "fence": grant.fence,
                "resources": dict(grant.resources),
                "queued_ms": attempt.queued_ms,
            },
        )
        books.instruct(StartAttempt(launch_spec(books, step, grant)))

    def _refused(self, name: str, number: int, code: str, message: str) -> None:
        books = self._books
        step = books.find(name)
        attempt = None if step is None else step.attempt(number)
        if step is None or attempt is None or attempt.state is not AttemptState.REQUESTED:
            return
        books.disarm(TimerKind.QUEUE, step)
        attempt.reason = code
        books.move_attempt(step, attempt, AttemptState.ENDED)
        endings.fail(books, step, code, message)

    def _gone(self, event: Gone) -> None:
        """The pool's word; for a grant that never arrived it means to ask again."""
        books, result = self._books, event.result
        step = books.find(result.step)
        attempt = None if step is None else step.attempt(result.attempt)
        if (
            step is not None
            and attempt is not None
            and attempt.state is AttemptState.REQUESTED
            and result.fence > step.fence
        ):
            step.fence = result.fence
            if attempt.asked:
                ask(books, step, attempt)
            return
        held = books.find_held(result.step, result.attempt, result.fence)
        if held is not None:
            endings.ended(books, *held, result, by_node=False, activity_closed=False)

    def _queue_timed_out(self, name: str, number: int) -> None:
        books = self._books
        step = books.find(name)
        if step is None or not books.take_due(TimerKind.QUEUE, name, number):
            return
        attempt = step.live
        if attempt is None or attempt.state is not AttemptState.REQUESTED:
            raise books.broken(f"{name}: a queue timer without a request")
        withdraw(books, step, attempt, StateReason.QUEUE_TIMEOUT)
        endings.fail(
            books, step, StateReason.QUEUE_TIMEOUT, "no capacity was granted within queueTimeout"
        )

    # -- the pool and the run change -----------------------------------------------------------

    def _requested(self) -> list[StepRecord]:
        return [step for step in self._books.steps if step.state is StepState.QUEUED]

    def _ask_again(self) -> None:
        books = self._books
        if books.draining:
            return
        for step in self._requested():
            ask(books, step, step.attempts[-1])

    def _drain(self) -> None:
        books = self._books
        books.draining = True
        for step in self._requested():
            attempt = step.attempts[-1]
            if attempt.asked:
                attempt.asked = False
                books.instruct(WithdrawRequest(step.name, attempt.number))

    def _continue(self) -> None:
        """A new run: its former run's requests, activities and timers are void."""
        books = self._books
        books.draining = False
        for timer in list(books.timers.values()):
            books.rearm(timer)
        for step in books.steps:
            attempt = step.live
            if attempt is not None and attempt.state is AttemptState.RUNNING:
                endings.closed_unproven(books, step, attempt, ClosureCause.OTHER)
        self._ask_again()

    # -- the end -------------------------------------------------------------------------------

    def _finish_if_over(self) -> None:
        books = self._books
        if not books.begun or books.terminal < len(books.steps):
            return
        if books.active:
            raise books.broken(f"all steps are terminal, {books.active} attempts are not")
        status, reason = self._final()
        check_transition(
            WORKLOAD_TRANSITIONS, books.status, status, f"workload {books.id}", books.story
        )
        books.status, books.reason = status, reason
        books.finished_ms = books.now_ms
        for timer in list(books.timers.values()):
            raise books.broken(f"timer left at the end: {timer}")
        final = status_of(books)
        books.record(
            "WorkloadFinished", state=status, reason=reason, data={"status": to_json(final)}
        )
        books.instruct(Finish(final))

    def _final(self) -> tuple[WorkloadState, str]:
        books = self._books
        states = {step.state for step in books.steps}
        if StepState.FAILED in states:
            failed = [s.name for s in books.steps if s.state is StepState.FAILED]
            more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
            books.message = f"failed: {', '.join(failed[:5])}{more}"
            return WorkloadState.FAILED, StateReason.STEP_FAILED
        if StepState.CANCELLED in states:
            asked = books.cancel is not None
            reason = StateReason.CANCEL_REQUESTED if asked else StateReason.STEP_CANCELLED
            return WorkloadState.CANCELLED, reason
        return WorkloadState.SUCCEEDED, ""
