"""The `Pool` workflow: carries out what `headbay.domain.pool` decides.

Handlers only append and wait for their answer; the loop takes the whole inbox once per workflow
task. Never in here: policy, a comparison of run ids, a signal to another workflow.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from headbay.domain.attempt import AttemptResult
from headbay.domain.exchange import Exchange, Inventory, NodeReport
from headbay.domain.ids import node_queue
from headbay.domain.pool import (
    CALL_INS,
    AttemptsGone,
    DeliveryOutcome,
    ExchangeArrived,
    HolderState,
    Message,
    NodeReported,
    PoolMachine,
    snapshot,
    views,
)
from headbay.domain.wire import Wire
from headbay.workflows.calls import (
    CENSUS,
    DELIVER,
    HOLDERS,
    INVENTORY,
    NO_RETRY,
    CensusOrder,
    DeliveryBatch,
    HolderBatch,
    HolderQuery,
)
from headbay.workflows.operations import Mailbox, answer, argument, now_ms
from headbay.workflows.tasks import Tasks

ANSWERS_ALL = "answers-carry-all-grants"
"""Patch: before it, an answer carried grants for the requests of that very message alone."""

Model = TypeVar("Model", bound=BaseModel)

__all__ = ["Pool", "PoolSettings"]

AUDIT_EVERY = timedelta(seconds=60)
DELIVER_LIMIT = 200
CALL_IN_AGAIN = timedelta(seconds=10)
"""Visibility lags behind: who was missed by the first census is called in by the second."""


class PoolSettings(Wire):
    """Limits of one run.

    Attributes:
        continue_after_events: History length at which the pool continues as new, besides the
            server's own suggestion.
    """

    continue_after_events: int = 4_000


@workflow.defn(name="Pool")
class Pool:
    """One pool's single writer.

    Args of a start: name; packed state (continue-as-new only); settings.
    """

    @workflow.init
    def __init__(
        self, name: str, packed: bytes | None = None, settings: PoolSettings | None = None
    ) -> None:
        self._machine = snapshot.load(packed) if packed else PoolMachine(name)
        self._settings = settings or PoolSettings()
        self._mailbox = Mailbox()
        self._inbox: list[Message] = []
        self._answers: dict[int, Any] = {}
        self._tickets = 0
        self._dirty = True
        if packed is None:
            self._machine.reset()
        self._calling = False
        self._census: asyncio.Task[None] | None = None
        self._delivering: asyncio.Task[None] | None = None
        self._tasks = Tasks()
        self._auditing = False
        self._wake_at: int | None = None
        workflow.register_random_seed_callback(self._on_reset)

    @workflow.run
    async def run(
        self,
        name: str,
        packed: bytes | None = None,  # noqa: ARG002 - taken by __init__
        settings: PoolSettings | None = None,  # noqa: ARG002 - taken by __init__
    ) -> None:
        """Take turns until it is time to continue as new."""
        self._machine.answers_all = workflow.patched(ANSWERS_ALL)
        auditor = self._tasks.start(self._audit_loop())
        waker = self._tasks.start(self._wake_loop())
        while True:
            await workflow.wait_condition(self._awake)
            self._tasks.check()
            self._turn()
            if self._spent() and await self._drained():
                break
        auditor.cancel()
        waker.cancel()
        if self._census is not None:
            self._census.cancel()
        workflow.continue_as_new(args=[name, snapshot.dump(self._machine), self._settings])

    def _awake(self) -> bool:
        inbox = bool(self._inbox) or self._dirty
        return inbox or self._spent() or self._tasks.broken is not None

    # -- turns ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        inbox, self._inbox = self._inbox, []
        self._dirty = False
        turn = self._machine.turn(inbox, now_ms())
        for ticket, answered in turn.answers.items():
            self._answers[ticket] = answered.model_dump(mode="json")
        self._wake_at = self._machine.books.wake_at_ms()
        if self._machine.call_ins > 0 and self._census is None:
            self._census = self._tasks.start(self._call_in())
        if self._delivering is None and not self._spent() and len(self._machine.outbox):
            self._delivering = self._tasks.start(self._deliver())
        if turn.more and self._delivering is None:
            self._dirty = True

    def _spent(self) -> bool:
        info = workflow.info()
        return (
            info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= self._settings.continue_after_events
            or info.is_target_worker_deployment_version_changed()
        )

    async def _drained(self) -> bool:
        """Nothing in flight and nothing unread: only then may this run end."""
        await workflow.wait_condition(
            lambda: (
                bool(self._inbox)
                or self._dirty
                or (
                    self._delivering is None
                    and not self._calling
                    and not self._auditing
                    and workflow.all_handlers_finished()
                )
            )
        )
        return not self._inbox and not self._dirty

    def _on_reset(self, _seed: int) -> None:
        self._machine.reset()
        self._dirty = True

    # -- what it sends -------------------------------------------------------------------------

    async def _deliver(self) -> None:
        try:
            batch = self._machine.outbox.take(DELIVER_LIMIT)
            outcomes: list[str]
            try:
                outcomes = await workflow.execute_activity(
                    DELIVER,
                    DeliveryBatch(deliveries=batch),
                    start_to_close_timeout=timedelta(seconds=5),
                    schedule_to_start_timeout=timedelta(seconds=60),
                    retry_policy=NO_RETRY,
                    result_type=list[str],
                )
            except ActivityError:
                outcomes = [DeliveryOutcome.UNKNOWN] * len(batch)
            for delivery, outcome in zip(batch, outcomes, strict=True):
                self._machine.delivered(delivery, DeliveryOutcome(outcome))
        finally:
            self._delivering = None
            self._dirty = True

    async def _call_in(self) -> None:
        """Call in everyone, twice; a run that ends in between leaves the second to its heir."""
        try:
            while self._machine.call_ins > 0:
                if self._machine.call_ins < CALL_INS:
                    await workflow.sleep(CALL_IN_AGAIN)
                self._calling = True
                fence = await workflow.execute_activity(
                    CENSUS,
                    CensusOrder(pool=self._machine.name),
                    start_to_close_timeout=timedelta(seconds=60),
                    result_type=int,
                )
                self._machine.called_in(fence)
                self._calling = False
        finally:
            self._calling = False
            self._census = None
            self._dirty = True

    async def _wake_loop(self) -> None:
        while True:
            await workflow.wait_condition(lambda: self._wake_at is not None)
            if self._wake_at is None:
                continue
            await workflow.sleep(timedelta(milliseconds=max(1, self._wake_at - now_ms())))
            self._wake_at = None
            self._dirty = True

    async def _audit_loop(self) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self._machine.books.workloads))
            await workflow.sleep(AUDIT_EVERY)
            if self._spent():
                continue
            self._auditing = True
            try:
                await self._audit()
            finally:
                self._auditing = False
                self._dirty = True

    async def _audit(self) -> None:
        """1. Ask the nodes; 2. look up the holders of what they did not name."""
        names = self._machine.audit_nodes(now_ms())
        await asyncio.gather(*(self._take_inventory(name) for name in names))
        holders = self._machine.suspects(now_ms())[:DELIVER_LIMIT]
        if not holders:
            return
        try:
            states = await workflow.execute_activity(
                HOLDERS,
                HolderBatch(holders=[HolderQuery(workload=w, run=r) for w, r in holders]),
                start_to_close_timeout=timedelta(seconds=30),
                retry_policy=NO_RETRY,
                result_type=list[str],
            )
        except ActivityError:
            return  # The next audit asks again.
        for (workload, run), state in zip(holders, states, strict=True):
            self._machine.holder(workload, run, HolderState(state), now_ms())

    async def _take_inventory(self, name: str) -> None:
        try:
            inventory = await workflow.execute_activity(
                INVENTORY,
                {},
                task_queue=node_queue(name, self._machine.books.nodes[name].epoch),
                schedule_to_close_timeout=timedelta(seconds=15),
                retry_policy=NO_RETRY,
                result_type=Inventory,
            )
        except ActivityError:
            self._machine.unanswered(name)
            return
        self._machine.take_inventory(inventory, now_ms())

    # -- what it is told -----------------------------------------------------------------------

    @workflow.update(name="exchange", description="Requests and releases of workloads")
    async def exchange(self, *raw: Any) -> Any:
        """Answer a list of Exchange with a list of ExchangeAnswer, in order."""
        messages = self._parse("exchange", Exchange, raw)
        tickets = range(self._tickets + 1, self._tickets + 1 + len(messages))
        self._tickets += len(messages)
        self._inbox.extend(
            ExchangeArrived(message, ticket)
            for message, ticket in zip(messages, tickets, strict=True)
        )
        await workflow.wait_condition(lambda: all(t in self._answers for t in tickets))
        return [self._answers.pop(t) for t in tickets]

    @workflow.update(name="report", description="What `Node` workflows say of their nodes")
    async def report(self, *raw: Any) -> Any:
        """Take a list of NodeReport."""
        messages = self._parse("report", NodeReport, raw)
        self._inbox.extend(NodeReported(message) for message in messages)
        return answer(accepted=True)

    def _parse(self, operation: str, model: type[Model], raw: Sequence[Any]) -> list[Model]:
        if len(raw) > 1:
            many = f"takes one list, {len(raw)} arguments came"
            refusal = self._mailbox.refuse(operation, "BAD_ARGUMENT", many)
            raise ApplicationError(refusal["message"], type="BAD_ARGUMENT", non_retryable=True)
        only = argument(raw)
        try:
            return [
                model.model_validate(item) for item in (only if isinstance(only, list) else [only])
            ]
        except ValidationError as error:
            refusal = self._mailbox.refuse(operation, "BAD_ARGUMENT", str(error))
            raise ApplicationError(
                refusal["message"], type="BAD_ARGUMENT", non_retryable=True
            ) from error

    @workflow.signal(name="gone", description="Attempts whose processes are proven gone")
    def gone(self, *raw: Any) -> None:
        """Take a list of AttemptResult, straight from a node."""
        results = self._mailbox.parse_all("gone", AttemptResult, raw)
        self._inbox.extend(AttemptsGone([result]) for result in results)

    # -- what it shows -------------------------------------------------------------------------

    @workflow.query(name="state", description="Nodes, queues and counts")
    def state(self) -> Any:
        """Summary of the whole pool."""
        return views.state(self._machine)

    @workflow.query(name="nodes", description="Every node with what is used of it")
    def nodes(self) -> Any:
        """Rows of nodes."""
        return views.nodes(self._machine)

    @workflow.query(name="queues", description="Every queue with its usage and its waiting line")
    def queues(self) -> Any:
        """Rows of queues."""
        return views.queues(self._machine, now_ms())

    @workflow.query(name="allocations", description="Everything that is granted now")
    def allocations(self) -> Any:
        """Rows of allocations."""
        return views.allocations(self._machine)

    @workflow.query(name="explain", description='Why {"workload", "step"?} waits')
    def explain(self, raw: Any = None) -> Any:
        """Every reason, for each request that waits."""
        return views.explain(self._machine, raw, now_ms())

    @workflow.query(name="refusals", description="Messages that were refused, and why")
    def refusals(self) -> Any:
        """The last refused messages."""
        return self._mailbox.refusals()

    @workflow.query(name="story", description="The last decisions, for finding faults")
    def story(self) -> Any:
        """The last decisions."""
        return list(self._machine.books.story)
