"""The books: which node carries which allocations, and what is free.

Every change of an allocation goes through `charge`, `doubt` and `free`, so that the sums of nodes
and the index by workload can never drift apart.
"""

from collections import deque

from headbay.domain.admission import NodeView
from headbay.domain.errors import BrokenInvariantError
from headbay.domain.exchange import Grant
from headbay.domain.pool.state import Allocation, NodeEntry, WorkloadEntry
from headbay.domain.resources import add, subtract, total

__all__ = ["Books"]

STORY_LENGTH = 100


class Books:
    """Nodes, allocations and workloads of a pool."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeEntry] = {}
        self.allocations: dict[str, Allocation] = {}
        self.workloads: dict[str, WorkloadEntry] = {}
        self.story: deque[str] = deque(maxlen=STORY_LENGTH)
        self._held: dict[str, set[str]] = {}

    def note(self, line: str) -> None:
        """Add a line to the story that explains a broken invariant."""
        self.story.append(line)

    def of(self, workload: str) -> list[Allocation]:
        """A workload's allocations, void ones included."""
        return [self.allocations[a] for a in sorted(self._held.get(workload, ()))]

    def on(self, node: str) -> list[Allocation]:
        """A node's allocations, void ones included."""
        return [a for a in self.allocations.values() if a.grant.node == node]

    def charge(self, held: Allocation) -> None:
        """Take an allocation into the books."""
        grant = held.grant
        self.allocations[grant.allocation] = held
        self._held.setdefault(grant.workload, set()).add(grant.allocation)
        node = self.nodes.get(grant.node)
        if node is not None:
            node.used = add(node.used, grant.resources)

    def free(self, held: Allocation, why: str) -> None:
        """Give an allocation's resources back; only on proof, or after lease and grace."""
        grant = held.grant
        del self.allocations[grant.allocation]
        mine = self._held[grant.workload]
        mine.discard(grant.allocation)
        if not mine:
            del self._held[grant.workload]
        node = self.nodes.get(grant.node)
        if node is not None:
            node.used = subtract(node.used, grant.resources)
        self.forget_if_over(grant.workload)
        self.note(f"freed {grant.allocation} of {grant.workload}/{grant.step}: {why}")

    def doubt(self, held: Allocation, now_ms: int, why: str) -> None:
        """Start the clock after which an allocation's process is dead for sure."""
        held.void = True
        if held.free_at_ms is None:
            held.free_at_ms = held.expires_ms(now_ms)
        self.note(f"{held.grant.allocation} void until {held.free_at_ms}: {why}")

    def expire(self, now_ms: int) -> None:
        """Free what is dead for sure."""
        for held in list(self.allocations.values()):
            if held.free_at_ms is not None and held.free_at_ms <= now_ms:
                self.free(held, "lease and grace ran out")

    def wake_at_ms(self) -> int | None:
        """When the next doubtful allocation is free for sure."""
        return min(
            (a.free_at_ms for a in self.allocations.values() if a.free_at_ms is not None),
            default=None,
        )

    def adopt(self, grant: Grant, now_ms: int, *, named: bool) -> None:
        """Take in what a node runs, or a workload holds, and this pool does not know.

        Args:
            grant: What it was granted, by a former life of this pool.
            now_ms: Unix milliseconds.
            named: Whether a node named it.
        """
        held = self.allocations.get(grant.allocation)
        if held is not None:
            if named:
                held.named_ms = now_ms
            return
        held = Allocation(grant, 0, "delivered", now_ms, now_ms)
        self.charge(held)
        entry = self.workloads.get(grant.workload)
        if entry is not None and entry.run != grant.run:
            self.doubt(held, now_ms, "adopted from a former run")
        self.note(f"adopted {grant.allocation} of {grant.workload}/{grant.step}")

    def name(self, allocation: str, now_ms: int) -> None:
        """A node still has to do with an allocation; one that is not held is none any more."""
        held = self.allocations.get(allocation)
        if held is not None:
            held.named_ms = now_ms

    def forget_if_over(self, workload: str) -> None:
        """Forget a workload that has said its last word and holds nothing any more."""
        entry = self.workloads.get(workload)
        if entry is not None and entry.done and workload not in self._held:
            del self.workloads[workload]

    def views(self) -> list[NodeView]:
        """What placement sees of the nodes, in name order."""
        return [
            NodeView(
                name,
                node.facts.capacity,
                subtract(node.facts.capacity, node.used),
                node.facts.labels,
                node.facts.isolation,
                node.closed,
                node.reason,
                node.facts.taints,
            )
            for name, node in sorted(self.nodes.items())
        ]

    def sanity_check(self) -> None:
        """Raise if the books do not add up."""
        for name, node in self.nodes.items():
            used = total(held.grant.resources for held in self.on(name))
            if used != node.used:
                raise self.broken(f"{name}: books say {node.used}, allocations sum to {used}")
        if sum(map(len, self._held.values())) != len(self.allocations):
            raise self.broken("allocations by workload do not add up")
        for name, entry in self.workloads.items():
            if entry.done and name not in self._held:
                raise self.broken(f"{name} is over and still remembered")

    def broken(self, what: str) -> BrokenInvariantError:
        """The error to raise, with the story."""
        return BrokenInvariantError(f"{what}; story: {list(self.story)}")
