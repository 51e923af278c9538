"""What a pool remembers: nodes, allocations, and the last word of every workload."""

from dataclasses import dataclass, field
from typing import Literal

from headbay.domain.admission.placement import Closed
from headbay.domain.exchange import Grant, NodeFacts, Refusal
from headbay.domain.lease import reassign_after_ms

__all__ = ["Allocation", "NodeEntry", "WorkloadEntry"]

MAX_VOIDED_RUNS = 16
"""Former runs remembered per workload: enough for a chain of resets within one retention."""


@dataclass(slots=True)
class NodeEntry:
    """One node.

    Attributes:
        awaited: Its inventory has not arrived since this pool began or was reset: nothing is
            granted there.
        used: Sum of its allocations.
        lost_ms: When it was noticed lost.
    """

    facts: NodeFacts
    epoch: int
    state: Literal["up", "lost"] = "up"
    cordoned: bool = False
    draining: bool = False
    awaited: bool = True
    used: dict[str, int] = field(default_factory=dict)
    lost_ms: int | None = None
    reason: str = ""

    @property
    def closed(self) -> Closed:
        """Why no new work may be placed here, in the words of `NodeView`; "" if it may."""
        if self.state == "lost":
            return "lost"
        if self.awaited:
            return "awaited"
        return "cordoned" if self.cordoned else ""


@dataclass(slots=True)
class Allocation:
    """Resources held for one attempt.

    Attributes:
        seq: Message of the workload that asked for it or, once answered, whose answer carries it.
        delivery: ``answered`` (in the answer to ``seq``), ``pending`` (to be signalled) or
            ``delivered``.
        granted_ms: When it was granted, or found again.
        named_ms: When a node last named it as live.
        void: Its run is over (a newer run of the workload spoke); freed by proof or at
            ``free_at_ms``.
        free_at_ms: When lease and grace have run out for sure, once that clock was started.
    """

    grant: Grant
    seq: int
    delivery: Literal["answered", "pending", "delivered"]
    granted_ms: int
    named_ms: int
    void: bool = False
    free_at_ms: int | None = None

    def expires_ms(self, now_ms: int) -> int:
        """When its process is dead for sure if its lease is renewed no more from now on."""
        return reassign_after_ms(now_ms, self.grant.lease_ms, self.grant.grace_ms)


@dataclass(slots=True)
class WorkloadEntry:
    """The last word of one workload.

    Attributes:
        run: Its current run. seq: Last message of that run.
        refusals: Part of the stored answer to ``seq``.
        voided: Former runs, oldest first; what they still say has no effect.
        done: It has said its last word; forgotten as soon as it holds nothing.
    """

    run: str
    seq: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    voided: list[str] = field(default_factory=list)
    done: bool = False

    def void_run(self, run: str) -> None:
        """Go on under a new run."""
        self.voided = [*self.voided, self.run][-MAX_VOIDED_RUNS:]
        self.run = run
        self.seq = 0
        self.refusals = []
        self.done = False
