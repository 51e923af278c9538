"""Names, arguments and limits of the activities that workflows call.

Workflows name activities as strings: they must not import what touches the world.
"""

from datetime import timedelta
from typing import Final

from temporalio.common import RetryPolicy

from headbay.domain.exchange import Delivery, Exchange, ExchangeAnswer, NodeReport
from headbay.domain.journal import JournalEvent
from headbay.domain.wire import Wire

__all__ = [
    "ASK_TIMEOUT",
    "CENSUS",
    "DELIVER",
    "EXCHANGE",
    "EXECUTE",
    "HOLDERS",
    "INVENTORY",
    "NO_RETRY",
    "PRESENCE",
    "REPORT",
    "STOP",
    "Asked",
    "CensusOrder",
    "DeliveryBatch",
    "ExchangeOrder",
    "HolderBatch",
    "HolderQuery",
    "ReportOrder",
    "presence_id",
]

EXECUTE: Final = "execute"
STOP: Final = "stop"
PRESENCE: Final = "presence"
INVENTORY: Final = "inventory"
EXCHANGE: Final = "exchange"
REPORT: Final = "report"
DELIVER: Final = "deliver"
CENSUS: Final = "census"
HOLDERS: Final = "holders"

NO_RETRY: Final = RetryPolicy(maximum_attempts=1)
"""Workflows retry by themselves, so that they can change what they ask for."""

ASK_TIMEOUT: Final = timedelta(seconds=3)
"""Bound of the local activities that ask a pool: a longer one delays cancellation."""


def presence_id(epoch: int) -> str:
    """Activity id of the presence of one epoch: from outside, it tells which life went silent."""
    return f"presence-{epoch}"


class ExchangeOrder(Wire):
    """Argument of `exchange`: what to tell the pool and the ledger in one go.

    The run id is filled in by the activity: workflow code never reads it.

    Attributes:
        pool: Name of the pool.
        exchange: The message, ``run`` left empty; None if only the journal is served.
        events: Journal events, ``run`` left empty.
        linger_ms: How long to wait after the answer, so that more comes together in the next
            workflow task.
    """

    pool: str
    exchange: Exchange | None = None
    events: list[JournalEvent] = []
    linger_ms: int = 0


class Asked(Wire):
    """Result of `exchange`.

    Attributes:
        journaled: Whether the ledger has the events for sure.
    """

    answer: ExchangeAnswer | None = None
    journaled: bool = False


class ReportOrder(Wire):
    """Argument of `report`: what a node tells its pool."""

    pool: str
    report: NodeReport


class DeliveryBatch(Wire):
    """Argument of `deliver`; the result is one DeliveryOutcome for each, in order."""

    deliveries: list[Delivery]


class HolderQuery(Wire):
    """One run of a workload that holds an allocation."""

    workload: str
    run: str


class HolderBatch(Wire):
    """Argument of `holders`; the result is one HolderState for each, in order."""

    holders: list[HolderQuery]


class CensusOrder(Wire):
    """Argument of `census`: call in every open workload and node of a pool."""

    pool: str
