"""States of workloads, steps and attempts, and the only transitions between them.

One table each; every change of a state goes through `check_transition`. Terminal states have no
way out (invariant 8).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

from headbay.domain.errors import BrokenInvariantError

__all__ = [
    "ATTEMPT_TRANSITIONS",
    "STEP_TRANSITIONS",
    "TERMINAL_STEP_STATES",
    "WORKLOAD_TRANSITIONS",
    "AttemptState",
    "StateReason",
    "StepState",
    "WorkloadState",
    "check_transition",
]


class StepState(StrEnum):
    """Where a step is."""

    PENDING = "PENDING"
    """Waits for its upstreams, for a retry's delay, or for its turn under ``maxParallel``."""
    WAITING_APPROVAL = "WAITING_APPROVAL"
    PARKED = "PARKED"
    """The pool's window is full; it will be called in."""
    QUEUED = "QUEUED"
    """Its request is with the pool."""
    RUNNING = "RUNNING"
    """Granted; includes the time in which the end of a lost attempt is not yet proven."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    UNRESOLVED = "UNRESOLVED"
    """May have run, must not be repeated, and nothing says how it ended: an operator decides."""


class WorkloadState(StrEnum):
    """Where a workload is."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class AttemptState(StrEnum):
    """Where an attempt is."""

    REQUESTED = "REQUESTED"
    RUNNING = "RUNNING"
    """Has an allocation; its activity was ordered and has not closed."""
    IN_DOUBT = "IN_DOUBT"
    """Its activity closed without the node's own word; the process may still run."""
    ENDED = "ENDED"


class StateReason(StrEnum):
    """Why a step or a workload is in its state, beside the outcome classes and refusal codes."""

    UPSTREAM_NOT_SUCCEEDED = "UPSTREAM_NOT_SUCCEEDED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    STOPPED_AFTER_FAILURE = "STOPPED_AFTER_FAILURE"
    """``onFailure: stop``: not started any more after another step's failure."""
    QUEUE_TIMEOUT = "QUEUE_TIMEOUT"
    NODE_FAULTS_EXHAUSTED = "NODE_FAULTS_EXHAUSTED"
    PREEMPTIONS_EXHAUSTED = "PREEMPTIONS_EXHAUSTED"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    RESOLVED = "RESOLVED"
    """An operator's word."""
    LATE_EXIT = "LATE_EXIT"
    """The node proved a lost attempt's end after all."""
    STEP_FAILED = "STEP_FAILED"
    STEP_CANCELLED = "STEP_CANCELLED"


_S = StepState

STEP_TRANSITIONS: Final[Mapping[StepState, frozenset[StepState]]] = MappingProxyType(
    {
        _S.PENDING: frozenset(
            {
                _S.WAITING_APPROVAL,
                _S.PARKED,
                _S.QUEUED,
                _S.SKIPPED,
                _S.CANCELLED,
                # While a retry waits, the lost attempt's own exit may still arrive; and a drained
                # workload does not retry.
                _S.SUCCEEDED,
                _S.FAILED,
                _S.UNRESOLVED,
            }
        ),
        _S.WAITING_APPROVAL: frozenset(
            {_S.PARKED, _S.QUEUED, _S.PENDING, _S.SKIPPED, _S.CANCELLED, _S.FAILED}
        ),
        _S.PARKED: frozenset({_S.QUEUED, _S.SKIPPED, _S.CANCELLED, _S.SUCCEEDED, _S.FAILED}),
        _S.QUEUED: frozenset(
            {
                _S.RUNNING,
                _S.PARKED,
                _S.SKIPPED,
                _S.CANCELLED,
                # The lost attempt's own exit may arrive while its retry is queued.
                _S.SUCCEEDED,
                _S.FAILED,
                _S.UNRESOLVED,
            }
        ),
        _S.RUNNING: frozenset({_S.PENDING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED, _S.UNRESOLVED}),
        _S.UNRESOLVED: frozenset({_S.PENDING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
        _S.SUCCEEDED: frozenset(),
        _S.FAILED: frozenset(),
        _S.CANCELLED: frozenset(),
        _S.SKIPPED: frozenset(),
    }
)
"""From a state to the states that may follow it."""

TERMINAL_STEP_STATES: Final = frozenset(s for s, after in STEP_TRANSITIONS.items() if not after)

WORKLOAD_TRANSITIONS: Final[Mapping[WorkloadState, frozenset[WorkloadState]]] = MappingProxyType(
    {
        WorkloadState.RUNNING: frozenset(
            {WorkloadState.SUCCEEDED, WorkloadState.FAILED, WorkloadState.CANCELLED}
        ),
        WorkloadState.SUCCEEDED: frozenset(),
        WorkloadState.FAILED: frozenset(),
        WorkloadState.CANCELLED: frozenset(),
    }
)

_A = AttemptState

ATTEMPT_TRANSITIONS: Final[Mapping[AttemptState, frozenset[AttemptState]]] = MappingProxyType(
    {
        _A.REQUESTED: frozenset({_A.RUNNING, _A.ENDED}),
        _A.RUNNING: frozenset({_A.IN_DOUBT, _A.ENDED}),
        _A.IN_DOUBT: frozenset({_A.ENDED}),
        _A.ENDED: frozenset(),
    }
)

State = TypeVar("State", StepState, WorkloadState, AttemptState)


def check_transition(
    table: Mapping[State, frozenset[State]],
    before: State,
    after: State,
    what: str,
    story: Iterable[str] = (),
) -> None:
    """Refuse a transition that its table does not list.

    Args:
        table: One of the tables above.
        before: Current state.
        after: Wanted state; staying in a state is not a transition.
        what: Whose state it is, for the message.
        story: The last things that happened, oldest first.

    Raises:
        BrokenInvariantError: The table does not list it.
    """
    if after not in table[before]:
        told = "\n  ".join(story)
        raise BrokenInvariantError(
            f"{what} cannot go from {before} to {after}; what happened before:\n  {told}\n"
            "This is a fault in Headbay: please report it with this text."
        )
