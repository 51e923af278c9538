"""A node's identity, life and cordon, as its `Node` workflow keeps them.

A new epoch at every registration after a boot or a loss: its task queue is new, so nothing that
was meant for the node's former life is ever started.
"""

from typing import Literal

from headbay.domain.exchange import (
    Inventory,
    NodeFacts,
    NodeRegistration,
    NodeReport,
    Registered,
)
from headbay.domain.fence import next_fence
from headbay.domain.operation import DrainOrder, NodeOrder
from headbay.domain.taint import Taint
from headbay.domain.wire import Wire

__all__ = ["PRESENCE_TTL_MS", "NodeState", "NodeStatus", "cordon", "drain", "lose", "register"]

PRESENCE_TTL_MS = 15_000
"""A loss is noticed within this time; freeing follows each step's own lease."""


class NodeState(Wire):
    """Everything that a `Node` workflow carries over continue-as-new.

    Attributes:
        state: new (never registered), up, lost.
        drain_until_ms: When steps that still run are ended; None: never.
        continue_after_events: History length after which it continues as new, once it is lost.
    """

    name: str
    epoch: int = 0
    state: Literal["new", "up", "lost", "retired"] = "new"
    facts: NodeFacts | None = None
    cordoned: bool = False
    draining: bool = False
    drain_until_ms: int | None = None
    by: str = ""
    reason: str = ""
    registered_ms: int = 0
    lost_ms: int | None = None
    continue_after_events: int = 2_000

    def report(self, inventory: Inventory | None = None) -> NodeReport | None:
        """What the pool is told; None before the first registration."""
        if self.facts is None or self.state == "new":
            return None
        return NodeReport(
            facts=self.facts,
            epoch=self.epoch,
            state=self.state,
            cordoned=self.cordoned,
            draining=self.draining,
            inventory=inventory,
            by=self.by,
            reason=self.reason,
        )


class NodeStatus(Wire):
    """What the query `state` of a node answers."""

    name: str
    state: str
    pool: str = ""
    epoch: int = 0
    cordoned: bool = False
    draining: bool = False
    by: str = ""
    reason: str = ""
    machine_id: str = ""
    boot_id: str = ""
    executor: str = ""
    isolation: str = ""
    capacity: dict[str, int] = {}
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    version: str = ""
    registered_ms: int = 0
    lost_ms: int | None = None

    @classmethod
    def of(cls, state: NodeState) -> "NodeStatus":
        """The status that a state shows."""
        facts = state.facts.model_dump(exclude={"name"}) if state.facts else {}
        own = state.model_dump(exclude={"facts", "drain_until_ms", "continue_after_events"})
        return cls.model_validate(facts | own)


def register(
    state: NodeState, registration: NodeRegistration, now_ms: int
) -> tuple[NodeState, Registered]:
    """Decide on a registration.

    1. Another machine under a live node's name is refused.
    2. The same machine in the same boot, never lost: a worker's restart; the epoch stays.
    3. Everything else begins a new epoch, above all former ones even if they were forgotten.
    """
    facts = registration.facts
    known = state.facts
    if known is not None and state.state == "up" and known.machine_id != facts.machine_id:
        return state, Registered(
            accepted=False,
            code="NODE_NAME_TAKEN",
            message=f"the live node {facts.name!r} is another machine ({known.machine_id}); give "
            "this one another --name, or stop the other and wait until it is shown lost",
        )
    same_life = known is not None and state.state == "up" and known.boot_id == facts.boot_id
    epoch = state.epoch if same_life else int(next_fence(state.epoch, now_ms))
    new = state.model_copy(
        update={
            "epoch": epoch,
            "state": "up",
            "facts": facts,
            "registered_ms": now_ms,
            "lost_ms": None,
        }
    )
    return new, Registered(accepted=True, epoch=epoch, presence_ttl_ms=PRESENCE_TTL_MS)


def lose(state: NodeState, now_ms: int) -> NodeState:
    """The presence ran out."""
    return state.model_copy(update={"state": "lost", "lost_ms": now_ms})


def cordon(state: NodeState, order: NodeOrder, *, cordoned: bool) -> NodeState:
    """Take no new work, or take it again; uncordoning ends a drain."""
    return state.model_copy(
        update={
            "cordoned": cordoned,
            "draining": state.draining and cordoned,
            "drain_until_ms": state.drain_until_ms if cordoned else None,
            "by": order.by,
            "reason": order.reason,
        }
    )


def drain(state: NodeState, order: DrainOrder, now_ms: int) -> NodeState:
    """Take no new work, and end what still runs at the deadline."""
    until = None if order.deadline_s is None else now_ms + order.deadline_s * 1_000
    return state.model_copy(
        update={
            "cordoned": True,
            "draining": True,
            "drain_until_ms": until,
            "by": order.by,
            "reason": order.reason,
        }
    )
