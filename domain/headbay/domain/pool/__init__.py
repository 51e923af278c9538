"""The pool: the single writer of its allocations. Messages in, effects out; no I/O."""

from headbay.domain.pool import snapshot, views
from headbay.domain.pool.machine import CALL_INS, PoolMachine
from headbay.domain.pool.messages import (
    AttemptsGone,
    DeliveryOutcome,
    ExchangeArrived,
    HolderState,
    Message,
    NodeReported,
)
from headbay.domain.pool.state import Allocation, NodeEntry, WorkloadEntry

__all__ = [
    "CALL_INS",
    "Allocation",
    "AttemptsGone",
    "DeliveryOutcome",
    "ExchangeArrived",
    "HolderState",
    "Message",
    "NodeEntry",
    "NodeReported",
    "PoolMachine",
    "WorkloadEntry",
    "snapshot",
    "views",
]
