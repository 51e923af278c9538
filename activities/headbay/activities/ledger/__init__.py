"""The ledger: what happened, what it cost, and what outlives Temporal's retention."""

from headbay.activities.ledger.errors import (
    BadLedgerUrlError,
    LedgerSchemaError,
    LedgerUnavailableError,
)
from headbay.activities.ledger.opening import open_ledger
from headbay.activities.ledger.port import EventKey, Ledger
from headbay.activities.ledger.rows import (
    AttemptRow,
    Claim,
    Gap,
    StepRow,
    WorkloadPage,
    WorkloadQuery,
    WorkloadRow,
)
from headbay.activities.ledger.status import read_status

__all__ = [
    "AttemptRow",
    "BadLedgerUrlError",
    "Claim",
    "EventKey",
    "Gap",
    "Ledger",
    "LedgerSchemaError",
    "LedgerUnavailableError",
    "StepRow",
    "WorkloadPage",
    "WorkloadQuery",
    "WorkloadRow",
    "open_ledger",
    "read_status",
]
