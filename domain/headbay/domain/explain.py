"""Why a request waits or was refused: reasons as data, never text to parse."""

from enum import StrEnum

from headbay.domain.wire import Wire

__all__ = ["Reason", "ReasonCode", "Tier"]


class Tier(StrEnum):
    """Whose turn it is to act, in the order in which reasons are shown.

    Source: Kueue's precedence of inadmissibility reasons.
    """

    CONFIGURATION = "configuration"
    """Never fits as it is: change the request or the pool."""
    POLICY = "policy"
    """Held back on purpose: a cordon, a gate, a limit."""
    CAPACITY = "capacity"
    """Starts when enough is free."""
    DEPENDENCY = "dependency"
    """Waits for something outside the pool."""


class ReasonCode(StrEnum):
    """Stable codes of reasons."""

    NO_NODES = "NO_NODES"
    NO_MATCHING_NODE = "NO_MATCHING_NODE"
    EXCEEDS_EVERY_NODE = "EXCEEDS_EVERY_NODE"
    NODES_CORDONED = "NODES_CORDONED"
    NODES_TAINTED = "NODES_TAINTED"
    NODES_LOST = "NODES_LOST"
    NODES_AWAITED = "NODES_AWAITED"
    INSUFFICIENT_FREE = "INSUFFICIENT_FREE"
    RESERVED_FOR_OTHER = "RESERVED_FOR_OTHER"
    NOT_YET_CONSIDERED = "NOT_YET_CONSIDERED"


class Reason(Wire):
    """One reason.

    Attributes:
        numbers: What the message says, for programs (amounts in the units of
            `headbay.domain.resources`).
        fix: What would let it in, for people.
    """

    tier: Tier
    code: ReasonCode
    message: str
    numbers: dict[str, int] = {}
    fix: str = ""
