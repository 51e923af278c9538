"""One scheduling pass over the backlog: priority, then first in first out, best fit.

Order of comparison between requests:
  1. higher priority first;
  2. earlier submission of the workload;
  3. workload id;
  4. the order in which the workload asked.

A request that does not fit lets smaller ones behind it pass, until it has waited for
`RESERVE_AFTER_MS`: from then on the node that is nearest to fitting it is kept for it, so that a
stream of small requests cannot starve a large one.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from headbay.domain.admission.classes import Backlog, ClassKey, Pending, Shape
from headbay.domain.admission.placement import NodeView, admits, best_fit

__all__ = ["RESERVE_AFTER_MS", "Pass", "Placement", "schedule"]

RESERVE_AFTER_MS = 30_000


@dataclass(slots=True, frozen=True)
class Placement:
    """The decision to start a request on a node."""

    pending: Pending
    node: str


@dataclass(slots=True, frozen=True)
class Pass:
    """What one pass decided.

    Attributes:
        placements: In order of decision; the caller takes them out of the backlog.
        reserved: (node, request) kept for the first blocked request that waited long enough.
        capped: Whether ``limit`` ended the pass before the backlog was exhausted.
    """

    placements: list[Placement]
    reserved: tuple[str, Pending] | None
    capped: bool


def schedule(backlog: Backlog, nodes: Sequence[NodeView], now_ms: int, *, limit: int) -> Pass:
    """Decide what starts now.

    Args:
        backlog: All pending requests; placed ones are removed.
        nodes: Views whose ``free`` this pass consumes.
        now_ms: Unix milliseconds.
        limit: Most placements of one pass; bounds the time it takes.
    """
    heads: list[tuple[int, tuple[int, str, int], ClassKey]] = []
    for key in backlog.class_keys():
        head = backlog.head(key)
        if head is not None:
            heads.append((-key.priority, head.rank, key))
    heapq.heapify(heads)
    blocked: set[Shape] = set()
    reserved: tuple[str, Pending] | None = None
    candidates = list(nodes)
    placements: list[Placement] = []
    while heads:
        if len(placements) >= limit:
            return Pass(placements, reserved, capped=True)
        _, _, key = heapq.heappop(heads)
        head = backlog.head(key)
        if head is None or key.shape in blocked:
            continue
        node = best_fit(key.shape, candidates)
        if node is None:
            # Capacity only shrinks within a pass: the whole shape is answered.
            blocked.add(key.shape)
            if reserved is None and now_ms - head.since_ms >= RESERVE_AFTER_MS:
                kept = _nearest(key.shape, candidates)
                if kept is not None:
                    reserved = (kept.name, head)
                    candidates = [n for n in candidates if n is not kept]
            continue
        node.take(key.shape.resources)
        backlog.remove(head.key)
        placements.append(Placement(head, node.name))
        following = backlog.head(key)
        if following is not None:
            heapq.heappush(heads, (-key.priority, following.rank, key))
    return Pass(placements, reserved, capped=False)


def _nearest(shape: Shape, nodes: Sequence[NodeView]) -> NodeView | None:
    """The open node, large enough when empty, that lacks least of any resource now."""

    def lack(node: NodeView) -> tuple[int, str]:
        shortfalls = [
            max(0, amount - node.free.get(name, 0)) * 1_000 // node.capacity[name]
            for name, amount in shape.resources
        ]
        return (max(shortfalls, default=0), node.name)

    able = [
        node
        for node in nodes
        if admits(shape, node)
        and all(amount <= node.capacity.get(name, 0) for name, amount in shape.resources)
    ]
    return min(able, key=lack, default=None)
