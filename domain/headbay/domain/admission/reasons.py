"""Why a request waits, tier by tier, and whether it can ever start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headbay.domain.admission.classes import Shape
from headbay.domain.admission.placement import Closed, NodeView, matches
from headbay.domain.explain import Reason, ReasonCode, Tier
from headbay.domain.resources import missing
from headbay.domain.taint import untolerated

__all__ = ["reasons_to_wait", "unsatisfiable"]

_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class _Closure:
    """What is said of nodes that take no new work."""

    tier: Tier
    code: ReasonCode
    message: str
    fix: str


_CLOSURES: Final[dict[Closed, _Closure]] = {
    "cordoned": _Closure(
        Tier.POLICY, ReasonCode.NODES_CORDONED, "cordoned", "`headbay node uncordon {node}`"
    ),
    "lost": _Closure(
        Tier.CAPACITY,
        ReasonCode.NODES_LOST,
        "lost",
        "look at the node worker on that machine; `headbay node list`",
    ),
    "awaited": _Closure(
        Tier.CAPACITY,
        ReasonCode.NODES_AWAITED,
        "yet to say what they still run",
        "wait a few seconds; they report by themselves",
    ),
}
"""By `NodeView.closed`, first tier first."""


def unsatisfiable(shape: Shape, nodes: Sequence[NodeView]) -> Reason | None:
    """The reason why no known node could ever run this, even when empty; None if one could.

    A pool without any node says None: nodes may still be registering.
    """
    if not nodes:
        return None
    wanted = dict(shape.resources)
    matching = [node for node in nodes if matches(shape, node)]
    if not matching:
        return Reason(
            tier=Tier.CONFIGURATION,
            code=ReasonCode.NO_MATCHING_NODE,
            message=f"none of the pool's nodes ({len(nodes)}) {_demands(shape)}",
            numbers={"nodes": len(nodes)},
            fix="change the step's placement or `require`, or add such a node "
            "(`headbay node list -o json` shows labels and isolation)",
        )
    if any(not missing(wanted, node.capacity) for node in matching):
        return None
    largest = max(matching, key=lambda node: (-len(missing(wanted, node.capacity)), node.name))
    lacking = missing(wanted, largest.capacity)
    parts = ", ".join(
        f"{name} {show_amount(name, wanted[name])} > "
        f"{show_amount(name, largest.capacity.get(name, 0))}"
        for name in lacking
    )
    return Reason(
        tier=Tier.CONFIGURATION,
        code=ReasonCode.EXCEEDS_EVERY_NODE,
        message=f"asks for more than any node has, even empty: {parts} on {largest.name!r}",
        numbers={f"lacks_{name}": amount for name, amount in lacking.items()},
        fix="ask for less, or add a larger node",
    )


def reasons_to_wait(shape: Shape, nodes: Sequence[NodeView]) -> list[Reason]:
    """Every reason why a request with this shape does not start now, first tier first.

    Args:
        shape: What is asked for.
        nodes: Views of all nodes of the pool.
    """
    if not nodes:
        return [
            Reason(
                tier=Tier.CONFIGURATION,
                code=ReasonCode.NO_NODES,
                message="the pool has no node",
                fix="start one: `headbay dev`, or `headbay worker node` on a machine",
            )
        ]
    never = unsatisfiable(shape, nodes)
    if never is not None:
        return [never]
    matching = [node for node in nodes if matches(shape, node)]
    tainted = [node for node in matching if untolerated(node.taints, shape.tolerations)]
    fitting = [node for node in matching if node not in tainted]
    found = [_tainted(shape, tainted, len(matching))] if tainted else []
    found += [
        Reason(
            tier=closure.tier,
            code=closure.code,
            message=f"{closure.message}: {_named(closed)}{_of(len(fitting))}",
            numbers={closed_as: len(closed)},
            fix=closure.fix.format(node=closed[0].name if len(closed) == 1 else "NODE"),
        )
        for closed_as, closure in _CLOSURES.items()
        if (closed := [node for node in fitting if node.closed == closed_as])
    ]
    wanted = dict(shape.resources)
    usable = [node for node in fitting if node.open and not missing(wanted, node.capacity)]
    if usable:
        nearest = min(
            usable, key=lambda node: (sum(missing(wanted, node.free).values()), node.name)
        )
        lacking = missing(wanted, nearest.free)
        if lacking:
            parts = ", ".join(
                f"{show_amount(name, amount)} {name}" for name, amount in lacking.items()
            )
            found.append(
                Reason(
                    tier=Tier.CAPACITY,
                    code=ReasonCode.INSUFFICIENT_FREE,
                    message=f"nearest node {nearest.name!r} lacks {parts}",
                    numbers={f"lacks_{name}": amount for name, amount in lacking.items()},
                    fix="starts when running steps end; nothing to do",
                )
            )
    if not found:
        found.append(
            Reason(
                tier=Tier.CAPACITY,
                code=ReasonCode.NOT_YET_CONSIDERED,
                message="fits now; the next scheduling pass starts it",
            )
        )
    return found


def _tainted(shape: Shape, nodes: Sequence[NodeView], of: int) -> Reason:
    """Names each with the taints that are in the way."""
    names = [
        f"{node.name!r} ({', '.join(t.text for t in untolerated(node.taints, shape.tolerations))})"
        for node in nodes[:_MOST_NAMED]
    ]
    more = len(nodes) - len(names)
    return Reason(
        tier=Tier.POLICY,
        code=ReasonCode.NODES_TAINTED,
        message="tainted, and the step does not tolerate it: "
        + ", ".join(names)
        + (f" and {more} more" if more else "")
        + _of(of),
        numbers={"tainted": len(nodes)},
        fix="add `placement.tolerations` to the step, or start a node without the taint",
    )


def show_amount(name: str, amount: int) -> str:
    """An amount as people write it: 1500 mCPU -> "1.5", 2147483648 bytes -> "2Gi"."""
    if name == "cpu":
        whole, milli = divmod(amount, 1_000)
        return str(whole) if not milli else f"{whole}.{milli:03d}".rstrip("0")
    if name == "memory":
        for suffix, size in (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
            if amount >= size:
                tenths = amount * 10 // size
                whole, tenth = divmod(tenths, 10)
                return f"{whole}{suffix}" if not tenth else f"{whole}.{tenth}{suffix}"
    return str(amount)


def _demands(shape: Shape) -> str:
    parts: list[str] = []
    if shape.node is not None:
        parts.append(f"is called {shape.node!r}")
    if shape.require == "enforced":
        parts.append("can enforce limits")
    parts.extend(f"is labelled {key}={value}" for key, value in shape.selector)
    return " and ".join(parts)


def _of(nodes: int) -> str:
    return "" if nodes == 1 else f", of {nodes} nodes"


def _named(nodes: Sequence[NodeView]) -> str:
    """Their names, with what was said of each."""
    names = [
        f"{node.name!r}" + (f" ({node.note})" if node.note else "") for node in nodes[:_MOST_NAMED]
    ]
    more = len(nodes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
