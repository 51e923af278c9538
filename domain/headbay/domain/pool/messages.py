"""What reaches a pool, and the canonical order in which it is taken.

After a reset Temporal replays updates and signals in another order than they first came; sorting
the whole inbox makes the decisions the same.
"""

from dataclasses import dataclass
from enum import StrEnum

from headbay.domain.attempt import AttemptResult
from headbay.domain.exchange import Exchange, NodeReport

__all__ = [
    "AttemptsGone",
    "DeliveryOutcome",
    "ExchangeArrived",
    "HolderState",
    "Message",
    "NodeReported",
    "canonical_order",
]


class DeliveryOutcome(StrEnum):
    """What became of a message to one run of a workload."""

    DELIVERED = "delivered"
    HOLDER_GONE = "holder_gone"
    UNKNOWN = "unknown"
    """The call did not answer: tried again until it is one of the others."""


class HolderState(StrEnum):
    """Whether the run that holds an allocation can still use it."""

    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"


@dataclass(slots=True, frozen=True)
class NodeReported:
    """A `Node` workflow told the node's state."""

    report: NodeReport


@dataclass(slots=True, frozen=True)
class AttemptsGone:
    """A node proves that these attempts' processes are gone."""

    results: list[AttemptResult]


@dataclass(slots=True, frozen=True)
class ExchangeArrived:
    """A workload's message; ``ticket`` finds the waiting handler to answer."""

    exchange: Exchange
    ticket: int


Message = NodeReported | AttemptsGone | ExchangeArrived


def canonical_order(message: Message) -> tuple[int, str, int, str, int]:
    """Sort key: nodes, then proofs, then workloads by (id, seq, run).

    Tickets come last and only tell handlers of identical messages apart.
    """
    match message:
        case NodeReported(report):
            return (0, report.facts.name, report.epoch, report.state, 0)
        case AttemptsGone(results):
            first = results[0].allocation if results else ""
            return (1, first, len(results), "", 0)
        case ExchangeArrived(exchange, ticket):
            return (2, exchange.workload, exchange.seq, exchange.run, ticket)
