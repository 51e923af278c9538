"""What the workflow is told to do, in the imperative.

They are to be carried out in the given order; those for the pool may be batched into one message.
"""

from dataclasses import dataclass
from enum import StrEnum

from headbay.domain.attempt import LaunchSpec, StopOrder
from headbay.domain.exchange import StepRequest
from headbay.domain.status import WorkloadStatus
from headbay.domain.wire import Wire

__all__ = [
    "AbandonAttempt",
    "Acceptance",
    "Answer",
    "CancelTimer",
    "Finish",
    "Instruction",
    "ReleaseCapacity",
    "RequestCapacity",
    "StartAttempt",
    "StartTimer",
    "StopAttempt",
    "TimerKind",
    "WithdrawRequest",
]


class TimerKind(StrEnum):
    """Which event a timer turns into."""

    LEASE = "LEASE"
    """`LeaseRanOut`"""
    RETRY = "RETRY"
    """`RetryDue`"""
    QUEUE = "QUEUE"
    """`QueueTimedOut`"""


class Acceptance(Wire):
    """Answer to an operation.

    Attributes:
        code: Stable code: ACCEPTED, ALREADY_CANCELLED, ALREADY_FINISHED, UNKNOWN_STEP,
            NOT_UNRESOLVED, UNKNOWN_VERDICT or STOPPED_AFTER_FAILURE.
        message: For people; says what to do next where it was refused.
    """

    accepted: bool
    code: str
    message: str


@dataclass(slots=True, frozen=True)
class RequestCapacity:
    """Ask the pool. Asking again for the same (step, attempt) is harmless."""

    request: StepRequest


@dataclass(slots=True, frozen=True)
class WithdrawRequest:
    """Take back a request, or the allocation it became meanwhile."""

    step: str
    attempt: int


@dataclass(slots=True, frozen=True)
class ReleaseCapacity:
    """Give an allocation back: its process is gone for sure, or was never ordered."""

    allocation: str


@dataclass(slots=True, frozen=True)
class StartAttempt:
    """Start the `execute` activity on the node's queue."""

    spec: LaunchSpec


@dataclass(slots=True, frozen=True)
class StopAttempt:
    """Cancel the attempt's activity and push the order to its node; its end is still awaited."""

    order: StopOrder
    node: str
    epoch: int


@dataclass(slots=True, frozen=True)
class AbandonAttempt:
    """The attempt has ended while its activity is still open: do not await it any longer.

    A paused activity would never close; one that closes after all is reported as usual.
    """

    step: str
    attempt: int
    fence: int


@dataclass(slots=True, frozen=True)
class StartTimer:
    """Send the kind's event at ``at_ms``, with these fields."""

    kind: TimerKind
    step: str
    attempt: int
    fence: int
    at_ms: int


@dataclass(slots=True, frozen=True)
class CancelTimer:
    """Forget a timer."""

    kind: TimerKind
    step: str
    attempt: int
    fence: int


@dataclass(slots=True, frozen=True)
class Answer:
    """The answer to an operation.

    Attributes:
        ticket: That of the event; None if it came as a signal.
    """

    ticket: int | None
    acceptance: Acceptance


@dataclass(slots=True, frozen=True)
class Finish:
    """The workload is over, everything is released: always the last instruction."""

    status: WorkloadStatus


Instruction = (
    RequestCapacity
    | WithdrawRequest
    | ReleaseCapacity
    | StartAttempt
    | StopAttempt
    | AbandonAttempt
    | StartTimer
    | CancelTimer
    | Answer
    | Finish
)
