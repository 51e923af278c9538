"""The backlog: pending requests grouped into classes of identical shape.

What placement reads is in the shape, so one failed attempt to place a class answers for all of
its members: the cost of a pass follows classes and decisions, not the number of waiting requests.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headbay.domain.exchange import StepRequest
from headbay.domain.taint import Toleration

__all__ = ["Backlog", "ClassKey", "Pending", "RequestKey", "Shape"]

RequestKey = tuple[str, str, int]
"""(workload, step, attempt)."""


class Shape(NamedTuple):
    """Everything of a request that placement reads, in canonical form."""

    resources: tuple[tuple[str, int], ...]
    node: str | None
    selector: tuple[tuple[str, str], ...]
    require: str | None
    tolerations: tuple[Toleration, ...] = ()


class ClassKey(NamedTuple):
    """Requests of one class are interchangeable but for their place in the order."""

    queue: str
    priority: int
    shape: Shape


@dataclass(slots=True, frozen=True)
class Pending:
    """One request that waits.

    Attributes:
        run: Temporal run that asked; a grant is addressed to it.
        seq: Number of the message that asked.
        rank: (submitted_ms, workload, arrival): first in, first out within a priority; arrival
            keeps one workload's requests in the order in which it asked.
        since_ms: When the pool first saw it.
    """

    workload: str
    run: str
    seq: int
    request: StepRequest
    rank: tuple[int, str, int]
    since_ms: int

    @property
    def key(self) -> RequestKey:
        """Identity of the request."""
        return (self.workload, self.request.step, self.request.attempt)

    def class_key(self) -> ClassKey:
        """The class that this request belongs to."""
        request = self.request
        return ClassKey(
            request.queue,
            request.priority,
            Shape(
                tuple(sorted((n, v) for n, v in request.resources.items() if v)),
                request.node,
                tuple(sorted(request.node_selector.items())),
                request.require,
                tuple(sorted(request.tolerations, key=lambda one: one.model_dump_json())),
            ),
        )


class Backlog:
    """All pending requests of a pool, indexed by key, by workload and by class.

    Removal is lazy in the classes' heaps: an entry counts only while ``_by_key`` still holds the
    very same object.
    """

    def __init__(self) -> None:
        self._by_key: dict[RequestKey, Pending] = {}
        self._by_workload: dict[str, dict[RequestKey, None]] = {}
        self._classes: dict[ClassKey, list[tuple[tuple[int, str, int], int, Pending]]] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: RequestKey) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Pending]:
        """All requests in the order of their rank."""
        return iter(sorted(self._by_key.values(), key=lambda p: (-p.request.priority, p.rank)))

    def get(self, key: RequestKey) -> Pending | None:
        """The request with this key, if it waits."""
        return self._by_key.get(key)

    def of(self, workload: str) -> list[Pending]:
        """A workload's requests, in the order in which it asked."""
        return [self._by_key[k] for k in self._by_workload.get(workload, ())]

    def add(self, pending: Pending) -> None:
        """Add a request; one with the same key is replaced."""
        self.remove(pending.key)
        self._by_key[pending.key] = pending
        self._by_workload.setdefault(pending.workload, {})[pending.key] = None
        heap = self._classes.setdefault(pending.class_key(), [])
        # A request that is asked again keeps its rank: the counter decides, never the requests.
        self._added += 1
        heapq.heappush(heap, (pending.rank, self._added, pending))

    def remove(self, key: RequestKey) -> Pending | None:
        """Take a request out; None if it does not wait."""
        pending = self._by_key.pop(key, None)
        if pending is not None:
            keys = self._by_workload[pending.workload]
            del keys[key]
            if not keys:
                del self._by_workload[pending.workload]
        return pending

    def class_keys(self) -> list[ClassKey]:
        """Classes that have members."""
        live = [key for key in self._classes if self.head(key) is not None]
        if len(live) < len(self._classes):
            self._classes = {key: self._classes[key] for key in live}
        return live

    def head(self, key: ClassKey) -> Pending | None:
        """First member of a class, None if it has none."""
        heap = self._classes.get(key, [])
        while heap and self._by_key.get(heap[0][2].key) is not heap[0][2]:
            heapq.heappop(heap)
        return heap[0][2] if heap else None
