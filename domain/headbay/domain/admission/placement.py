"""Placement: which node takes a request. Best fit, so that big holes stay for big requests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headbay.domain.admission.classes import Shape
from headbay.domain.taint import Taint, untolerated

__all__ = ["Closed", "NodeView", "admits", "best_fit", "matches"]

PERMILLE = 1_000

Closed = Literal["", "lost", "awaited", "cordoned"]


@dataclass(slots=True)
class NodeView:
    """What placement sees of a node; ``free`` is updated as a pass allocates.

    Attributes:
        closed: Why no new work may be placed there now: ``lost``, ``awaited`` (it has yet to say
            what it runs) or ``cordoned``; "" if it may.
        note: What the operator who closed it said.
        taints: What a request must tolerate to be placed there.
    """

    name: str
    capacity: Mapping[str, int]
    free: dict[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    isolation: str = "unenforced"
    closed: Closed = ""
    note: str = ""
    taints: Sequence[Taint] = ()

    @property
    def open(self) -> bool:
        """Whether new work may be placed there now."""
        return not self.closed

    def take(self, resources: Iterable[tuple[str, int]]) -> None:
        """Subtract what a pass just allocated."""
        for name, amount in resources:
            self.free[name] = self.free.get(name, 0) - amount


def admits(shape: Shape, node: NodeView) -> bool:
    """Whether new work of this shape may be placed there now, if it fits."""
    return node.open and matches(shape, node) and not untolerated(node.taints, shape.tolerations)


def matches(shape: Shape, node: NodeView) -> bool:
    """Whether the node is one that the request may run on at all, full, closed or tainted or not.

    Taints are an operator's policy, like a cordon: they hold a request back and refuse none.
    """
    return (
        (shape.node is None or shape.node == node.name)
        and (shape.require != "enforced" or node.isolation == "enforced")
        and all(node.labels.get(key) == value for key, value in shape.selector)
    )


def _leftover_permille(shape: Shape, node: NodeView) -> int:
    """Largest share of any of the node's resources that would stay free."""
    wanted = dict(shape.resources)
    return max(
        (
            (node.free.get(name, 0) - wanted.get(name, 0)) * PERMILLE // amount
            for name, amount in node.capacity.items()
            if amount > 0
        ),
        default=0,
    )


def best_fit(shape: Shape, nodes: Iterable[NodeView]) -> NodeView | None:
    """The open node that fits the request most tightly, None if none fits.

    Order of comparison:
      1. smallest dominant leftover after placing it;
      2. name.
    """
    best: tuple[tuple[int, str], NodeView] | None = None
    for node in nodes:
        if not admits(shape, node):
            continue
        if any(amount > node.free.get(name, 0) for name, amount in shape.resources):
            continue
        score = (_leftover_permille(shape, node), node.name)
        if best is None or score < best[0]:
            best = (score, node)
    return best[1] if best else None
