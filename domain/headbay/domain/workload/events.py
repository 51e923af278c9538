"""What can happen to a workload, in the past tense.

Events that name a fence are void unless the step's attempt holds exactly that fence: a lower or
unknown one changes nothing (invariant 7). Every event may arrive twice.
"""

from dataclasses import dataclass
from enum import StrEnum

from headbay.domain.attempt import AttemptResult
from headbay.domain.exchange import Grant

__all__ = [
    "CancelRequested",
    "Closed",
    "ClosedUnproven",
    "ClosureCause",
    "Continued",
    "DrainStarted",
    "Event",
    "Gone",
    "Granted",
    "LateExit",
    "LeaseRanOut",
    "NeverStarted",
    "PoolRestarted",
    "QueueTimedOut",
    "Refused",
    "Resolved",
    "RetryDue",
    "Started",
    "describe",
]


class ClosureCause(StrEnum):
    """How an activity closed without the node's own word."""

    HEARTBEAT_TIMEOUT = "HEARTBEAT_TIMEOUT"
    START_TO_CLOSE_TIMEOUT = "START_TO_CLOSE_TIMEOUT"
    CANCELLED = "CANCELLED"
    """Closed as cancelled by the server, not by the node."""
    FAILED = "FAILED"
    """Failed by someone else (for instance by hand in the Temporal UI)."""
    OTHER = "OTHER"


@dataclass(slots=True, frozen=True)
class Started:
    """The workload's first run began."""


@dataclass(slots=True, frozen=True)
class Granted:
    """The pool granted a request. A grant that nobody waits for is given back at once."""

    grant: Grant


@dataclass(slots=True, frozen=True)
class Refused:
    """The pool refused a request for good: it can never be met."""

    step: str
    attempt: int
    code: str
    message: str


@dataclass(slots=True, frozen=True)
class Closed:
    """The activity was completed by the node itself: its own word, and proof of the end."""

    result: AttemptResult


@dataclass(slots=True, frozen=True)
class ClosedUnproven:
    """The activity closed in any other way: the process may still run."""

    step: str
    attempt: int
    fence: int
    cause: ClosureCause = ClosureCause.OTHER


@dataclass(slots=True, frozen=True)
class NeverStarted:
    """Schedule-to-start ran out: no worker ever took the activity, which is proof."""

    step: str
    attempt: int
    fence: int


@dataclass(slots=True, frozen=True)
class Gone:
    """The pool says that the process is gone (the node's report, another boot id, its audit).

    It also ends an attempt whose activity is still open: a paused activity never times out.
    """

    result: AttemptResult


@dataclass(slots=True, frozen=True)
class LateExit:
    """The node's exit record of an attempt whose activity had closed before."""

    result: AttemptResult


@dataclass(slots=True, frozen=True)
class LeaseRanOut:
    """The timer of TTL plus grace after an unproven closure fired."""

    step: str
    attempt: int
    fence: int


@dataclass(slots=True, frozen=True)
class RetryDue:
    """The delay before ``attempt`` is over."""

    step: str
    attempt: int


@dataclass(slots=True, frozen=True)
class QueueTimedOut:
    """The request of ``attempt`` waited longer than ``queueTimeout``."""

    step: str
    attempt: int


@dataclass(slots=True, frozen=True)
class CancelRequested:
    """Someone cancelled the workload. Answered by an `Answer` with the same ticket."""

    by: str
    reason: str = ""
    ticket: int | None = None


@dataclass(slots=True, frozen=True)
class Resolved:
    """An operator's word on an UNRESOLVED step. Answered by an `Answer` with the same ticket.

    Attributes:
        verdict: retry, success or failure; anything else is refused.
    """

    step: str
    verdict: str
    by: str
    reason: str = ""
    ticket: int | None = None


@dataclass(slots=True, frozen=True)
class PoolRestarted:
    """A call-in: the pool forgot what it had; everything outstanding is asked again."""


@dataclass(slots=True, frozen=True)
class DrainStarted:
    """The run is to continue as new: request and start nothing more until `Continued`."""


@dataclass(slots=True, frozen=True)
class Continued:
    """A new run took over the state: requests and timers of the former run are void."""


Event = (
    Started
    | Granted
    | Refused
    | Closed
    | ClosedUnproven
    | NeverStarted
    | Gone
    | LateExit
    | LeaseRanOut
    | RetryDue
    | QueueTimedOut
    | CancelRequested
    | Resolved
    | PoolRestarted
    | DrainStarted
    | Continued
)


def describe(event: Event) -> str:
    """One short line about an event, for the story."""
    name = type(event).__name__
    match event:
        case Granted(about) | Closed(about) | Gone(about) | LateExit(about):
            how = about.node if isinstance(about, Grant) else about.outcome
            return f"{name} {about.step} attempt {about.attempt} fence {about.fence} {how}"
        case ClosedUnproven() | NeverStarted() | LeaseRanOut():
            return f"{name} {event.step} attempt {event.attempt} fence {event.fence}"
        case Refused() | RetryDue() | QueueTimedOut():
            return f"{name} {event.step} attempt {event.attempt}"
        case Resolved():
            return f"{name} {event.step} as {event.verdict} by {event.by}"
        case CancelRequested():
            return f"{name} by {event.by}"
        case _:
            return name
