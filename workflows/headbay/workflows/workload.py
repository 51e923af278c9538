"""The `Workload` workflow: carries out what `headbay.domain.workload` decides.

Everything that arrives becomes an event in the inbox; the machine answers with instructions;
instructions become activities, timers and messages to the pool. Never in here: a rule, a run id.
"""

import asyncio
import base64
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TimeoutType,
)
from temporalio.exceptions import (
    TimeoutError as ActivityTimeoutError,
)

from headbay.domain.attempt import AttemptResult, LaunchSpec
from headbay.domain.document import DocumentRefusedError, compile_document, digest, validate
from headbay.domain.exchange import Exchange, ExchangeAnswer, Grant, Refusal, StepRequest
from headbay.domain.ids import WORKLOAD_ID, node_queue, workload_workflow_id
from headbay.domain.journal import JournalEvent
from headbay.domain.lifecycle import WorkloadState
from headbay.domain.operation import CancelOrder, ResolveOrder, WorkloadContext
from headbay.domain.status import WorkloadStatus, markdown, to_json
from headbay.domain.workload import events, instructions
from headbay.domain.workload.machine import Machine
from headbay.workflows.calls import (
    ASK_TIMEOUT,
    EXCHANGE,
    EXECUTE,
    NO_RETRY,
    STOP,
    Asked,
    ExchangeOrder,
)
from headbay.workflows.operations import Mailbox, argument, now_ms
from headbay.workflows.payloads import readable, unpacked
from headbay.workflows.portions import Portions
from headbay.workflows.tasks import Tasks

__all__ = ["Workload"]

FAIL_AFTER_BYTES = 40 * 1024 * 1024
"""Below Temporal's 50 MiB, at which the server terminates a workflow without a word."""

BUSY = 8
LINGER_MS = 80
"""Where at least `BUSY` attempts ended since the last message (more than about a hundred a second),
what ends within this time is gathered into one: the engine's cost follows messages, and the next
steps start a moment later."""

ASK_AGAIN = (1, 2, 5, 10)
"""Seconds between tries to reach a pool that does not answer."""

LARGE = 60
DESCRIBE_EVERY_MS = 5_000
"""Rendering a thousand steps at every turn would cost more than running them."""

STOP_TIMEOUT = timedelta(seconds=10)

KILL_SLACK = timedelta(seconds=60)
"""The shim enforces the step's timeout; this backstop lies behind its kill ladder."""

FOREVER = timedelta(days=3650)
SCHEDULE_TO_START_MS = 30_000

AttemptKey = tuple[str, int, int]
TimerKey = tuple[instructions.TimerKind, str, int, int]


@workflow.defn(name="Workload")
class Workload:
    """One submitted document.

    Args of a start: the document as JSON; optionally a WorkloadContext.
    """

    def __init__(self) -> None:
        self._machine: Machine | None = None
        self._mailbox = Mailbox()
        self._inbox: list[events.Event] = []
        self._requests: dict[tuple[str, int], StepRequest] = {}
        self._withdraws: list[tuple[str, int]] = []
        self._releases: list[str] = []
        self._handles: dict[AttemptKey, workflow.ActivityHandle[Any]] = {}
        self._attempts: dict[AttemptKey, asyncio.Task[None]] = {}
        self._timers: dict[TimerKey, asyncio.Task[None]] = {}
        self._tasks = Tasks()
        self._finished: WorkloadStatus | None = None
        self._called_in = False
        self._told_pool = False
        self._closed = False
        self._draining = False
        self._continue_after = WorkloadContext().continue_after_events
        self._cancelled_natively = False
        self._submission: dict[str, Any] = {}
        self._described_ms = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._tickets = 0
        self._seq = 0
        self._journaled = 0
        self._portions = Portions()

    @workflow.run
    async def run(self, document: Any = None, context: Any = None, *rest: Any) -> dict[str, Any]:
        """Run the document to its end; the result is a WorkloadStatus.

        Raises:
            ApplicationError: DOCUMENT_REFUSED with the problems, WORKLOAD_FAILED or
                WORKLOAD_CANCELLED with the WorkloadStatus, BAD_CONTEXT, HISTORY_TOO_LARGE.
        """
        if rest:
            raise ApplicationError(
                f"a workload takes a document and a context, {2 + len(rest)} arguments came",
                type="BAD_CONTEXT",
                non_retryable=True,
            )
        self._begin(document, context)
        pump = self._tasks.start(self._pump())
        while not self._closed:
            try:
                await workflow.wait_condition(self._awake)
            except asyncio.CancelledError:
                if workflow.cancellation_reason() is None:
                    raise
                self._cancelled_natively = True
                reason = workflow.cancellation_reason() or ""
                self._inbox.append(events.CancelRequested("temporal", reason))
            self._tasks.check()
            self._take_inbox()
            self._watch_history()
        pump.cancel()
        if self._draining and self._finished is None:
            self._continue(document, context)
        return self._result()

    def _awake(self) -> bool:
        return bool(self._inbox) or self._closed or self._tasks.broken is not None

    # -- beginning and end ---------------------------------------------------------------------

    def _begin(self, document: Any, raw_context: Any) -> None:
        if workload_workflow_id(_workload_id()) != workflow.info().workflow_id or (
            WORKLOAD_ID.fullmatch(_workload_id()) is None
        ):
            raise ApplicationError(
                f"workflow id {workflow.info().workflow_id!r} names no workload: use "
                f"{workload_workflow_id('ID')} with 1 to 100 of the characters A-Za-z0-9._-",
                type="BAD_WORKLOAD_ID",
                non_retryable=True,
            )
        try:
            context = WorkloadContext.model_validate(raw_context or {})
            self._continue_after = context.continue_after_events
            if context.previous is not None:
                self._machine = unpacked(context.previous)
                self._inbox.append(events.Continued())
                return
            dag = compile_document(
                validate(readable(document)), base_dir=context.base_dir, pin_node=context.pin_node
            )
        except DocumentRefusedError as error:
            raise ApplicationError(
                str(error),
                [problem.model_dump(mode="json") for problem in error.problems],
                type="DOCUMENT_REFUSED",
                non_retryable=True,
            ) from error
        except ValidationError as error:
            raise ApplicationError(
                f"second argument (context): {error}", type="BAD_CONTEXT", non_retryable=True
            ) from error
        self._machine = Machine.new(_workload_id(), dag, now_ms())
        self._submission = {
            "document": document,
            "digest": digest(document),
            "submitted_by": context.submitted_by,
        }
        self._inbox.append(events.Started())

    def _continue(self, document: Any, raw_context: Any) -> None:
        """Start a new run with the machine's state; nothing is in flight."""
        context = WorkloadContext.model_validate(raw_context or {})
        packed = base64.b64encode(self.machine.dump()).decode()
        workflow.continue_as_new(
            args=[document, context.model_copy(update={"previous": packed})],
        )

    def _result(self) -> dict[str, Any]:
        status = self._finished
        if status is None:
            raise RuntimeError("a workload ended without a status")
        result = to_json(status)
        if status.status == WorkloadState.SUCCEEDED:
            return result
        if status.status == WorkloadState.CANCELLED and self._cancelled_natively:
            raise asyncio.CancelledError
        failed = [step for step in status.steps if step.state.value == status.status.value]
        named = ", ".join(f"{step.name} ({step.reason or step.state})" for step in failed[:5])
        raise ApplicationError(
            f"{status.status}: {named}" + (" and more" if len(failed) > 5 else ""),
            result,
            type=f"WORKLOAD_{status.status}",
            non_retryable=True,
        )

    @property
    def machine(self) -> Machine:
        """The machine, once the document was accepted."""
        if self._machine is None:
            raise RuntimeError("the workload has not begun")
        return self._machine

    # -- turns ---------------------------------------------------------------------------------

    def _take_inbox(self) -> None:
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            self._carry_out(self.machine.handle(event, now_ms()))
        self._describe()

    def _describe(self) -> None:
        """Tell the story in Temporal's UI; of large workloads now and then, and at the end."""
        now = now_ms()
        large = len(self.machine.dag.steps) > LARGE
        if large and self._finished is None and now - self._described_ms < DESCRIBE_EVERY_MS:
            return
        self._described_ms = now
        workflow.set_current_details(markdown(self._finished or self.machine.status))

    def _carry_out(self, orders: list[instructions.Instruction]) -> None:
        for order in orders:
            match order:
                case instructions.RequestCapacity(request):
                    self._requests[request.step, request.attempt] = request
                case instructions.WithdrawRequest(step, attempt):
                    if self._requests.pop((step, attempt), None) is None:
                        self._withdraws.append((step, attempt))
                case instructions.ReleaseCapacity(allocation):
                    self._releases.append(allocation)
                case instructions.StartAttempt(spec):
                    key = (spec.step, spec.attempt, spec.fence)
                    self._attempts[key] = self._tasks.start(self._attempt(key, spec))
                case instructions.StopAttempt():
                    self._stop(order)
                case instructions.AbandonAttempt(step, attempt, fence):
                    self._attempts.pop((step, attempt, fence), None)
                case instructions.StartTimer():
                    timer_key = (order.kind, order.step, order.attempt, order.fence)
                    self._timers[timer_key] = self._tasks.start(self._timer(timer_key, order.at_ms))
                case instructions.CancelTimer(kind, step, attempt, fence):
                    timer = self._timers.pop((kind, step, attempt, fence), None)
                    if timer is not None:
                        timer.cancel()
                case instructions.Answer(ticket, acceptance):
                    self._answer(ticket, acceptance)
                case instructions.Finish(status):
                    self._finished = status

    def _watch_history(self) -> None:
        info = workflow.info()
        if info.get_current_history_size() > FAIL_AFTER_BYTES:
            raise ApplicationError(
                f"the history reached {FAIL_AFTER_BYTES >> 20} MiB; split the workload, or keep "
                "large outputs in artifacts",
                type="HISTORY_TOO_LARGE",
                non_retryable=True,
            )
        if info.get_current_history_length() > self._continue_after and not self._draining:
            self._draining = True
            self._inbox.append(events.DrainStarted())

    # -- attempts ------------------------------------------------------------------------------

    async def _attempt(self, key: AttemptKey, spec: LaunchSpec) -> None:
        """Run one attempt on its node and tell how its activity closed."""
        lease = timedelta(milliseconds=spec.lease_ms)
        ends = (
            FOREVER
            if spec.timeout_ms is None
            else timedelta(milliseconds=spec.timeout_ms + spec.grace_ms) + KILL_SLACK
        )
        await self._portions.take(spec)
        handle = workflow.start_activity(
            EXECUTE,
            spec,
            task_queue=node_queue(spec.node, spec.epoch),
            heartbeat_timeout=lease,
            schedule_to_start_timeout=timedelta(
                milliseconds=min(spec.lease_ms, SCHEDULE_TO_START_MS)
            ),
            start_to_close_timeout=ends,
            retry_policy=NO_RETRY,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            result_type=AttemptResult,
            summary=f"{spec.step} #{spec.attempt} on {spec.node}",
        )
        self._handles[key] = handle
        try:
            result = await handle  # Before the inbox is looked up: every turn replaces it.
            self._inbox.append(events.Closed(result))
        except ActivityError as error:
            self._inbox.append(_closure(key, error))
        finally:
            self._handles.pop(key, None)
            self._attempts.pop(key, None)

    def _stop(self, order: instructions.StopAttempt) -> None:
        """Cancel the activity, and push: the next heartbeat may be a quarter of a lease away."""
        stop = order.order
        self._tasks.start(self._cancel_attempt((stop.step, stop.attempt, stop.fence)))
        self._tasks.start(self._push_stop(order))

    async def _cancel_attempt(self, key: AttemptKey) -> None:
        # An attempt of this very turn has a task, but not yet an activity.
        await workflow.wait_condition(lambda: key in self._handles or key not in self._attempts)
        if key in self._handles:
            self._handles[key].cancel()

    async def _push_stop(self, order: instructions.StopAttempt) -> None:
        try:
            await workflow.execute_activity(
                STOP,
                order.order,
                task_queue=node_queue(order.node, order.epoch),
                schedule_to_close_timeout=STOP_TIMEOUT,
                retry_policy=NO_RETRY,
            )
        except ActivityError as error:
            workflow.logger.warning("stop of %s was not heard: %s", order.order.step, error.cause)

    async def _timer(self, key: TimerKey, at_ms: int) -> None:
        await workflow.sleep(timedelta(milliseconds=max(1, at_ms - now_ms())))
        self._timers.pop(key, None)
        kind, step, attempt, fence = key
        match kind:
            case instructions.TimerKind.LEASE:
                self._inbox.append(events.LeaseRanOut(step, attempt, fence))
            case instructions.TimerKind.RETRY:
                self._inbox.append(events.RetryDue(step, attempt))
            case instructions.TimerKind.QUEUE:
                self._inbox.append(events.QueueTimedOut(step, attempt))

    # -- the pool ------------------------------------------------------------------------------

    async def _pump(self) -> None:
        """Send what there is to say, one message in flight, until the last one was heard."""
        while not self._closed:
            await workflow.wait_condition(self._has_mail)
            final = self._finished is not None and not self._inbox
            order = self._compose(final=final)
            asked = await self._ask(order)
            if asked.journaled and order.events:
                self._journaled = order.events[-1].seq + 1
            if asked.answer is not None:
                self._take_answer(asked.answer)
            self._closed = final or self._may_continue()

    def _has_mail(self) -> bool:
        if self._inbox:
            return False  # First the machine has its say: it may add to the message.
        return (
            self._finished is not None
            or self._called_in
            or bool(self._withdraws)
            or bool(self._releases)
            or (bool(self._requests) and not self._draining)
            or self._may_continue()
        )

    def _may_continue(self) -> bool:
        return self._draining and not self._attempts and not self._inbox

    def _compose(self, *, final: bool) -> ExchangeOrder:
        machine = self.machine
        requests = [] if self._draining else list(self._requests.values())
        talk = bool(requests or self._withdraws or self._releases or self._called_in)
        exchange: Exchange | None = None
        if talk or (final and self._told_pool):
            self._seq += 1
            self._told_pool = True
            exchange = Exchange(
                workload=_workload_id(),
                run="",
                seq=self._seq,
                requests=requests,
                releases=self._releases,
                withdraws=self._withdraws,
                holds=machine.holds() if self._called_in else [],
                done=final,
            )
        if requests:
            self._requests = {}
        busy = not final and len(self._releases) >= BUSY
        self._releases, self._withdraws, self._called_in = [], [], False
        return ExchangeOrder(
            pool=machine.dag.pool,
            linger_ms=LINGER_MS if busy else 0,
            exchange=exchange,
            events=self._journal_since(self._journaled),
        )

    def _journal_since(self, seq: int) -> list[JournalEvent]:
        """Journal events from ``seq`` on; the first one carries what was submitted."""
        found = self.machine.journal_since(seq)
        if found and found[0].kind == "WorkloadSubmitted":
            first = found[0].model_copy(update={"data": found[0].data | self._submission})
            return [first, *found[1:]]
        return found

    async def _ask(self, order: ExchangeOrder) -> Asked:
        """Say it until it is answered; the sequence number makes repeats harmless."""
        tries = 0
        while True:
            try:
                asked: Asked = await workflow.execute_local_activity(
                    EXCHANGE,
                    order,
                    start_to_close_timeout=ASK_TIMEOUT,
                    schedule_to_close_timeout=ASK_TIMEOUT,
                    retry_policy=NO_RETRY,
                    result_type=Asked,
                )
            except FailureError as error:
                # A local activity's failure comes with or without an ActivityError around it, and
                # not the same way in a replay.
                workflow.logger.warning("pool %s did not answer: %r", order.pool, error)
                await workflow.sleep(ASK_AGAIN[min(tries, len(ASK_AGAIN) - 1)])
                tries += 1
            else:
                return asked

    def _take_answer(self, answered: ExchangeAnswer) -> None:
        self._inbox.extend(events.Granted(grant) for grant in answered.grants)
        self._inbox.extend(
            events.Refused(r.step, r.attempt, r.code, r.message) for r in answered.refusals
        )

    # -- what it is told -----------------------------------------------------------------------

    @workflow.signal(name="grants", description="Allocations, from the pool")
    def grants(self, *raw: Any) -> None:
        """A list of Grant."""
        grants = self._mailbox.parse_all("grants", Grant, raw)
        self._inbox.extend(events.Granted(grant) for grant in grants)

    @workflow.signal(name="refused", description="Requests that can never be met, from the pool")
    def refused(self, *raw: Any) -> None:
        """A list of Refusal."""
        self._inbox.extend(
            events.Refused(refusal.step, refusal.attempt, refusal.code, refusal.message)
            for refusal in self._mailbox.parse_all("refused", Refusal, raw)
        )

    @workflow.signal(name="gone", description="Attempts that are proven gone, from the pool")
    def gone(self, *raw: Any) -> None:
        """A list of AttemptResult."""
        results = self._mailbox.parse_all("gone", AttemptResult, raw)
        self._inbox.extend(events.Gone(result) for result in results)

    @workflow.signal(name="late_exit", description="How an attempt ended after its activity did")
    def late_exit(self, *raw: Any) -> None:
        """An AttemptResult, straight from a node."""
        result, _ = self._mailbox.parse("late_exit", AttemptResult, raw)
        if result is not None:
            self._inbox.append(events.LateExit(result))

    @workflow.signal(name="call_in", description="A new pool wants to know what is outstanding")
    def call_in(self, *raw: Any) -> None:
        """{"pool": name}."""
        named = argument(raw)
        pool = named.get("pool") if isinstance(named, dict) else None
        if self._machine is not None and pool in (None, self._machine.dag.pool):
            self._called_in = True
            self._inbox.append(events.PoolRestarted())

    @workflow.signal(name="cancel", description="Cancel: {by, reason}")
    def cancel(self, *raw: Any) -> None:
        """A CancelOrder."""
        order, _ = self._mailbox.parse("cancel", CancelOrder, raw)
        if order is not None:
            self._inbox.append(events.CancelRequested(order.by, order.reason))

    @workflow.update(name="cancel", description="Cancel: {by, reason}")
    async def cancel_update(self, *raw: Any) -> Any:
        """A CancelOrder."""
        order, answered = self._mailbox.parse("cancel", CancelOrder, raw)
        if order is None:
            return answered
        self._tickets += 1
        event = events.CancelRequested(order.by, order.reason, self._tickets)
        return await self._decide(event, self._tickets)

    @workflow.signal(name="resolve", description="Decide an UNRESOLVED step: {step, verdict, …}")
    def resolve(self, *raw: Any) -> None:
        """A ResolveOrder."""
        order, _ = self._mailbox.parse("resolve", ResolveOrder, raw)
        if order is not None:
            self._inbox.append(events.Resolved(order.step, order.verdict, order.by, order.reason))

    @workflow.update(name="resolve", description="Decide an UNRESOLVED step: {step, verdict, …}")
    async def resolve_update(self, *raw: Any) -> Any:
        """A ResolveOrder."""
        order, answered = self._mailbox.parse("resolve", ResolveOrder, raw)
        if order is None:
            return answered
        self._tickets += 1
        event = events.Resolved(order.step, order.verdict, order.by, order.reason, self._tickets)
        return await self._decide(event, self._tickets)

    async def _decide(self, event: events.Event, ticket: int) -> dict[str, Any]:
        """Let the machine answer an operation."""
        self._inbox.append(event)
        await workflow.wait_condition(lambda: ticket in self._answers)
        return self._answers.pop(ticket)

    def _answer(self, ticket: int | None, acceptance: instructions.Acceptance) -> None:
        if ticket is not None:
            self._answers[ticket] = acceptance.model_dump(mode="json")
        elif not acceptance.accepted:
            self._mailbox.refuse("operation", acceptance.code, acceptance.message)

    # -- what it shows -------------------------------------------------------------------------

    @workflow.query(name="state", description="WorkloadStatus: steps and their attempts")
    def state(self) -> Any:
        """WorkloadStatus."""
        return None if self._machine is None else to_json(self._machine.status)

    @workflow.query(name="journal", description="Journal events of this run, from a seq on")
    def journal(self, raw: Any = None) -> Any:
        """A list of JournalEvent, ``run`` left empty."""
        start = raw if isinstance(raw, int) else 0
        if self._machine is None:
            return []
        return [event.model_dump(mode="json") for event in self._journal_since(start)]

    @workflow.query(name="refusals", description="Operations that were refused, and why")
    def refusals(self) -> Any:
        """The last refused operations."""
        return self._mailbox.refusals()


def _workload_id() -> str:
    return workflow.info().workflow_id.rpartition("/")[2]


def _closure(key: AttemptKey, error: ActivityError) -> events.Event:
    """What an activity's failure says about its attempt.

    The node itself never fails an activity: it always completes it with an AttemptResult. A
    cancelled activity is one that the server withdrew before any node had it.
    """
    cause = error.cause
    if isinstance(cause, CancelledError):
        return events.NeverStarted(*key)
    if isinstance(cause, ActivityTimeoutError):
        if cause.type == TimeoutType.SCHEDULE_TO_START:
            return events.NeverStarted(*key)
        heartbeat = cause.type == TimeoutType.HEARTBEAT
        return events.ClosedUnproven(
            *key,
            events.ClosureCause.HEARTBEAT_TIMEOUT
            if heartbeat
            else events.ClosureCause.START_TO_CLOSE_TIMEOUT,
        )
    return events.ClosedUnproven(*key, events.ClosureCause.FAILED)
