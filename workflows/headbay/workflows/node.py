"""The `Node` workflow: identity, presence and cordon of one machine.

Presence is one long activity on the node's own queue: its heartbeats cost no history. The
workflow continues as new only between presences, which would otherwise be ended by it.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

from headbay.domain import node as rules
from headbay.domain.attempt import StopOrder
from headbay.domain.exchange import Inventory, NodeRegistration, PresenceOrder
from headbay.domain.ids import node_queue
from headbay.domain.node import NodeState, NodeStatus
from headbay.domain.operation import DrainOrder, NodeOrder
from headbay.domain.outcome import Outcome
from headbay.workflows.calls import (
    ASK_TIMEOUT,
    INVENTORY,
    NO_RETRY,
    PRESENCE,
    REPORT,
    STOP,
    ReportOrder,
    presence_id,
)
from headbay.workflows.operations import Mailbox, answer, argument, now_ms
from headbay.workflows.tasks import Tasks

__all__ = ["Node"]

FOREVER = timedelta(days=3650)
HEARD_WITHIN = timedelta(seconds=5)
REPORT_AGAIN = timedelta(seconds=1)

MOVED_DEADLINE = "drain-deadline-moves"
"""Patch: before it, a drain's deadline was waited for even if another one replaced it."""


@workflow.defn(name="Node")
class Node:
    """One machine. Arg of a start: its former state (continue-as-new only)."""

    @workflow.init
    def __init__(self, state: NodeState | None = None) -> None:
        name = workflow.info().workflow_id.rpartition("/")[2]
        self._state = state or NodeState(name=name)
        self._mailbox = Mailbox()
        self._tasks = Tasks()
        self._presence: asyncio.Task[None] | None = None
        self._present_epoch = 0
        self._report_due = state is not None
        self._reporting = False
        self._ask_due = False
        self._asking: asyncio.Task[None] | None = None
        self._inventory: Inventory | None = None
        self._drain_until: int | None = None
        workflow.register_random_seed_callback(self._on_reset)

    @workflow.run
    async def run(self, state: NodeState | None = None) -> None:  # noqa: ARG002 - taken by __init__
        """Keep the presence going and the pool informed."""
        drainer = self._tasks.start(self._drain_loop())
        while True:
            await workflow.wait_condition(
                lambda: (
                    self._report_due
                    or self._tasks.broken is not None
                    or (self._ask_due and self._asking is None)
                    or self._presence_due()
                    or self._may_end()
                )
            )
            self._tasks.check()
            if self._presence_due():
                if self._presence is not None:
                    self._presence.cancel()  # A paused one would stay for ever.
                self._present_epoch = self._state.epoch
                self._presence = self._tasks.start(self._keep_presence(self._state.epoch))
            if self._ask_due and self._asking is None:
                self._ask_due = False
                self._asking = self._tasks.start(self._ask_and_report())
            if self._report_due:
                await self._report()
            if self._may_end():
                break
        drainer.cancel()
        if self._state.state != "retired":
            workflow.continue_as_new(self._state)

    def _presence_due(self) -> bool:
        return self._state.state == "up" and self._present_epoch != self._state.epoch

    def _may_end(self) -> bool:
        asking = self._ask_due or self._asking is not None
        if self._report_due or asking or not workflow.all_handlers_finished():
            return False
        if self._state.state == "retired":
            return True
        between = self._state.state == "lost" and self._presence is None
        events = workflow.info().get_current_history_length()
        return between and events >= self._state.continue_after_events

    def _on_reset(self, _seed: int) -> None:
        """The presence of before the reset is dead: the node is asked for a new registration."""
        self._ask_due = self._state.state == "up"

    async def _keep_presence(self, epoch: int) -> None:
        try:
            await workflow.execute_activity(
                PRESENCE,
                PresenceOrder(node=self._state.name, epoch=epoch, ttl_ms=rules.PRESENCE_TTL_MS),
                task_queue=node_queue(self._state.name, epoch),
                heartbeat_timeout=timedelta(milliseconds=rules.PRESENCE_TTL_MS),
                schedule_to_start_timeout=timedelta(milliseconds=rules.PRESENCE_TTL_MS),
                start_to_close_timeout=FOREVER,
                retry_policy=NO_RETRY,
                activity_id=presence_id(epoch),
                summary=f"{self._state.name} is alive",
            )
        except ActivityError as error:
            workflow.logger.warning("presence of %s ended: %s", self._state.name, error.cause)
        if self._present_epoch == epoch:
            self._presence = None
        self._gone(epoch)

    def _gone(self, epoch: int) -> None:
        if self._state.epoch == epoch and self._state.state == "up":
            self._state = rules.lose(self._state, now_ms())
            self._report_due = True
            self._ask_due = False
            if self._asking is not None:
                self._asking.cancel()
                self._asking = None

    async def _ask_and_report(self) -> None:
        """Beside the loop: a dead node's silence must not hold up the news of its loss."""
        await self._ask_inventory()
        self._report_due = True
        self._asking = None

    async def _ask_inventory(self) -> None:
        try:
            self._inventory = await workflow.execute_activity(
                INVENTORY,
                {},
                task_queue=node_queue(self._state.name, self._state.epoch),
                schedule_to_close_timeout=timedelta(milliseconds=rules.PRESENCE_TTL_MS),
                retry_policy=NO_RETRY,
                result_type=Inventory,
            )
        except ActivityError as error:
            workflow.logger.warning("%s shows no inventory: %s", self._state.name, error.cause)

    async def _report(self) -> None:
        """Tell the pool until it has heard; what changes meanwhile is told next."""
        self._report_due = False
        inventory, self._inventory = self._inventory, None
        report = self._state.report(inventory)
        if report is None:
            return
        self._reporting = True
        try:
            await workflow.execute_local_activity(
                REPORT,
                ReportOrder(pool=report.facts.pool, report=report),
                start_to_close_timeout=ASK_TIMEOUT,
                schedule_to_close_timeout=ASK_TIMEOUT,
                retry_policy=NO_RETRY,
            )
        except FailureError:  # A local activity's comes bare, or not, or not so in a replay.
            if self._inventory is None:
                self._inventory = inventory
            self._report_due = True
            await workflow.sleep(REPORT_AGAIN)
        finally:
            self._reporting = False

    async def _drain_loop(self) -> None:
        while True:
            await workflow.wait_condition(lambda: self._state.drain_until_ms is not None)
            until = self._state.drain_until_ms
            if until is None:
                continue
            await self._until(until)
            if self._state.drain_until_ms == until:
                self._state = self._state.model_copy(update={"drain_until_ms": None})
                await self._evict()

    async def _until(self, deadline_ms: int) -> None:
        """Wait for a drain's deadline, or until another order replaced it."""
        left = timedelta(milliseconds=deadline_ms - now_ms())
        if left <= timedelta(0):
            return
        if not workflow.patched(MOVED_DEADLINE):
            await workflow.sleep(left)
            return
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._state.drain_until_ms != deadline_ms, timeout=left
            )

    async def _evict(self) -> None:
        """End what still runs; the steps are repeated elsewhere as their `repeat` allows."""
        await self._ask_inventory()
        live = self._inventory.live if self._inventory else []
        self._report_due = True
        for grant in live:
            try:
                await workflow.execute_activity(
                    STOP,
                    StopOrder(
                        workload=grant.workload,
                        step=grant.step,
                        attempt=grant.attempt,
                        fence=grant.fence,
                        reason=Outcome.PREEMPTED,
                    ),
                    task_queue=node_queue(self._state.name, self._state.epoch),
                    schedule_to_close_timeout=timedelta(milliseconds=rules.PRESENCE_TTL_MS),
                    retry_policy=NO_RETRY,
                )
            except ActivityError as error:
                workflow.logger.warning("stop of %s failed: %s", grant.allocation, error.cause)

    # -- what it is told -----------------------------------------------------------------------

    @workflow.update(name="register", description="A node worker says who it is and what it runs")
    def register(self, *raw: Any) -> Any:
        """Answer a NodeRegistration with a Registered."""
        registration, refusal = self._mailbox.parse("register", NodeRegistration, raw)
        if registration is None:
            return {"accepted": False, "code": refusal["code"], "message": refusal["message"]}
        self._state, registered = rules.register(self._state, registration, now_ms())
        if registered.accepted:
            self._inventory = registration.inventory.model_copy(
                update={"epoch": registered.epoch, "node": self._state.name}
            )
            self._report_due = True
        return registered.model_dump(mode="json")

    @workflow.signal(name="presence_stale", description="Seen from outside: nobody heartbeats")
    def presence_stale(self, *raw: Any) -> None:
        """A paused presence never times out by itself; the control worker says when it is stale."""
        named = argument(raw)
        epoch = named.get("epoch") if isinstance(named, dict) else None
        if isinstance(epoch, int):
            self._gone(epoch)

    @workflow.signal(name="report", description="A new pool wants to hear from this node")
    def report(self, *raw: Any) -> None:  # noqa: ARG002 - operations carry an argument
        """Ask the node for its inventory and tell the pool."""
        self._ask_due = self._state.state == "up"
        self._report_due = True

    @workflow.signal(name="retire", description="Forget this node")
    def retire(self, *raw: Any) -> None:
        """The machine is not coming back."""
        self._operate("retire", NodeOrder, raw)

    @workflow.signal(name="cordon", description="Take no new work")
    def cordon(self, *raw: Any) -> None:
        """{by, reason}."""
        self._operate("cordon", NodeOrder, raw)

    @workflow.update(name="cordon", description="Take no new work")
    async def cordon_update(self, *raw: Any) -> Any:
        """{by, reason}."""
        return await self._heard(self._operate("cordon", NodeOrder, raw))

    @workflow.signal(name="uncordon", description="Take work again; ends a drain")
    def uncordon(self, *raw: Any) -> None:
        """{by, reason}."""
        self._operate("uncordon", NodeOrder, raw)

    @workflow.update(name="uncordon", description="Take work again; ends a drain")
    async def uncordon_update(self, *raw: Any) -> Any:
        """{by, reason}."""
        return await self._heard(self._operate("uncordon", NodeOrder, raw))

    @workflow.signal(name="drain", description="Cordon, and end what runs at the deadline")
    def drain(self, *raw: Any) -> None:
        """{by, reason, deadline_s}."""
        self._operate("drain", DrainOrder, raw)

    @workflow.update(name="drain", description="Cordon, and end what runs at the deadline")
    async def drain_update(self, *raw: Any) -> Any:
        """{by, reason, deadline_s}."""
        return await self._heard(self._operate("drain", DrainOrder, raw))

    def _operate(
        self, operation: str, model: type[NodeOrder], raw: Sequence[Any]
    ) -> dict[str, Any]:
        order, answered = self._mailbox.parse(operation, model, raw)
        if order is None:
            return answered
        if operation == "retire" and self._state.state == "up":
            return self._mailbox.refuse(operation, "NODE_ALIVE", "stop its worker first")
        match order:
            case DrainOrder():
                self._state = rules.drain(self._state, order, now_ms())
            case _ if operation == "retire":
                self._state = self._state.model_copy(update={"state": "retired"})
            case _:
                self._state = rules.cordon(self._state, order, cordoned=operation == "cordon")
        self._report_due = True
        return answer(accepted=True)

    async def _heard(self, answered: dict[str, Any]) -> dict[str, Any]:
        """Answer once the pool knows: what follows a cordon is not placed there any more."""
        try:
            await workflow.wait_condition(
                lambda: not self._report_due and not self._reporting, timeout=HEARD_WITHIN
            )
        except TimeoutError:
            return answered | {"message": "recorded; the pool has not heard of it yet"}
        return answered

    # -- what it shows -------------------------------------------------------------------------

    @workflow.query(name="state", description="Identity, life and cordon")
    def state(self) -> Any:
        """NodeStatus."""
        return NodeStatus.of(self._state).model_dump(mode="json")

    @workflow.query(name="refusals", description="Operations that were refused, and why")
    def refusals(self) -> Any:
        """The last refused operations."""
        return self._mailbox.refusals()
