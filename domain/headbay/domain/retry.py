"""What follows the end of an attempt: another one, failure, or an operator's word.

Exact integers only: the same inputs give the same decision and the same delay everywhere.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

from headbay.domain.dag import Backoff, OomGrowth, RetryPolicy
from headbay.domain.lifecycle import StateReason
from headbay.domain.outcome import Outcome
from headbay.domain.quantity import MAX_INTEGER
from headbay.domain.resources import Resources
from headbay.domain.wire import Wire

__all__ = [
    "DEFAULT_WHEN",
    "NODE_FAULTS",
    "NODE_FAULT_BACKOFF",
    "NODE_FAULT_LIMIT",
    "PREEMPTION_LIMIT",
    "Counts",
    "Decision",
    "Verdict",
    "after_attempt",
    "backoff_ms",
    "count",
    "grown",
]

NODE_FAULTS: Final = frozenset(
    {
        Outcome.NOT_STARTED,
        Outcome.NODE_LOST,
        Outcome.LEASE_LOST,
        Outcome.SUPERVISOR_LOST,
        Outcome.OOM_NODE,
        Outcome.LIMIT_NOT_APPLIED,
        Outcome.UNKNOWN,
    }
)
"""Ends that the step did not bring about: they do not consume ``maxAttempts``."""

DEFAULT_WHEN: Final = frozenset(
    {
        Outcome.FAILED,
        Outcome.SIGNALED,
        Outcome.OOM_KILLED,
        Outcome.TIMED_OUT,
        Outcome.EXEC_FAILED,
    }
)
"""The step's own ends that are retried unless ``when`` says otherwise. A violated output contract
is not among them: the same program would violate it again."""

NODE_FAULT_LIMIT: Final = 10
"""Node faults in a row after which the step fails: then it is the step that breaks nodes."""

PREEMPTION_LIMIT: Final = 100
"""Preemptions in all after which the step fails rather than being moved about for ever."""

NODE_FAULT_BACKOFF: Final = Backoff(
    initial_ms=250, factor_permille=2_000, max_ms=30_000, jitter_permille=500
)


class Counts(Wire):
    """What a step has behind it.

    Attributes:
        own: Attempts that count against ``maxAttempts``.
        node_faults: Node faults in a row, since the last end that was none.
        preemptions: Preemptions in all.
    """

    own: int = 0
    node_faults: int = 0
    preemptions: int = 0


class Verdict(StrEnum):
    """What to do with the step."""

    SUCCEED = "SUCCEED"
    RETRY = "RETRY"
    FAIL = "FAIL"
    CANCEL = "CANCEL"
    UNRESOLVED = "UNRESOLVED"


class Decision(Wire):
    """The decision on a step after an attempt.

    Attributes:
        reason: Stable code: an outcome class or a `StateReason`.
        delay_ms: Before a retry, 0 otherwise.
    """

    verdict: Verdict
    reason: str = ""
    delay_ms: int = 0


def count(counts: Counts, outcome: Outcome) -> Counts:
    """The counts with one more end."""
    if outcome is Outcome.PREEMPTED:
        return counts.model_copy(update={"preemptions": counts.preemptions + 1, "node_faults": 0})
    if outcome in NODE_FAULTS:
        return counts.model_copy(update={"node_faults": counts.node_faults + 1})
    return counts.model_copy(update={"own": counts.own + 1, "node_faults": 0})


def backoff_ms(backoff: Backoff, retry: int, jitter_draw: int) -> int:
    """Delay before the ``retry``-th retry: min(max, initial * factor^(retry-1)), plus jitter.

    Args:
        backoff: The policy.
        retry: From 1.
        jitter_draw: 0..999, drawn by the caller: the share (in permille) of the jitter to add.
    """
    grown: int = backoff.initial_ms * backoff.factor_permille ** (retry - 1) // 1_000 ** (retry - 1)
    base = min(backoff.max_ms, grown)
    return base + base * backoff.jitter_permille * jitter_draw // 1_000_000


def grown(resources: Mapping[str, int], growth: OomGrowth | None, kills: int) -> Resources:
    """What an attempt claims after its step was killed for its memory so many times.

    Memory times the factor to the power of ``kills``, up to the bound; never less than before.
    """
    claim = dict(resources)
    if growth is None or not kills or "memory" not in claim:
        return claim
    memory: int = claim["memory"] * growth.factor_permille**kills // 1_000**kills
    bound = MAX_INTEGER if growth.max_bytes is None else growth.max_bytes
    claim["memory"] = max(claim["memory"], min(memory, bound))
    return claim


def after_attempt(
    policy: RetryPolicy,
    repeat: Literal["safe", "never"],
    outcome: Outcome,
    *,
    began: bool,
    counts: Counts,
    jitter_draw: int,
) -> Decision:
    """Decide what follows an attempt's end; the first rule that matches wins.

    1. Success and cancellation are final.
    2. Under ``repeat: never``, what may have begun and was not ended by itself (a node fault, an
       unknown end, a preemption) needs an operator; what failed by itself failed.
    3. Node faults and preemptions are repeated within their own bounds.
    4. The step's own failures are repeated if ``maxAttempts`` and ``when`` say so.

    Args:
        policy: The step's.
        repeat: The step's.
        outcome: How the attempt ended.
        began: Whether the payload may have been executed.
        counts: Including this attempt.
        jitter_draw: 0..999.
    """
    if outcome is Outcome.SUCCEEDED:
        return Decision(verdict=Verdict.SUCCEED)
    if outcome is Outcome.CANCELLED:
        return Decision(verdict=Verdict.CANCEL, reason=Outcome.CANCELLED)
    not_its_own = outcome in NODE_FAULTS or outcome is Outcome.PREEMPTED
    if repeat == "never" and began:
        verdict = Verdict.UNRESOLVED if not_its_own else Verdict.FAIL
        return Decision(verdict=verdict, reason=outcome)
    if not_its_own:
        return _after_fault(outcome, counts, jitter_draw)
    when = DEFAULT_WHEN if policy.when is None else frozenset(policy.when)
    if outcome not in when or counts.own >= policy.max_attempts:
        return Decision(verdict=Verdict.FAIL, reason=outcome)
    delay = backoff_ms(policy.backoff, counts.own, jitter_draw)
    return Decision(verdict=Verdict.RETRY, reason=outcome, delay_ms=delay)


def _after_fault(outcome: Outcome, counts: Counts, jitter_draw: int) -> Decision:
    if outcome is Outcome.PREEMPTED:
        if counts.preemptions >= PREEMPTION_LIMIT:
            return Decision(verdict=Verdict.FAIL, reason=StateReason.PREEMPTIONS_EXHAUSTED)
        return Decision(verdict=Verdict.RETRY, reason=outcome)
    if counts.node_faults >= NODE_FAULT_LIMIT:
        return Decision(verdict=Verdict.FAIL, reason=StateReason.NODE_FAULTS_EXHAUSTED)
    delay = backoff_ms(NODE_FAULT_BACKOFF, counts.node_faults, jitter_draw)
    return Decision(verdict=Verdict.RETRY, reason=outcome, delay_ms=delay)
