"""What the machine remembers of steps, attempts and timers: plain mutable records.

Only `headbay.domain.workload.books` changes them.
"""

from dataclasses import dataclass, field

from headbay.domain.attempt import ArtifactsRef, AttemptResult, OutputRef
from headbay.domain.dag import StepDef
from headbay.domain.exchange import Grant
from headbay.domain.lifecycle import AttemptState, StepState
from headbay.domain.outcome import Outcome
from headbay.domain.retry import Counts
from headbay.domain.workload.instructions import TimerKind

__all__ = ["AttemptRecord", "StepRecord", "Timer"]


@dataclass(slots=True)
class AttemptRecord:
    """One try of a step.

    Attributes:
        asked: Its request is with the pool (False while the run drains).
        grant: What it holds; None before the grant and once it is given back.
        fence, node: Of its grant, kept after the end.
        stop: Outcome class it was told to end with, None if it was not.
        result: How it ended; None for a request that never became an allocation.
        presumed: Its end was proven by time or by the pool, not told by the node: the node's own
            word may still correct it.
        counts_before: The step's counts before this attempt's end, to be able to correct them.
        reason: Why a request without a result ended.
    """

    number: int
    queued_ms: int
    state: AttemptState = AttemptState.REQUESTED
    asked: bool = True
    grant: Grant | None = None
    fence: int = 0
    node: str = ""
    granted_ms: int | None = None
    stop: Outcome | None = None
    result: AttemptResult | None = None
    presumed: bool = False
    counts_before: Counts | None = None
    reason: str = ""


@dataclass(slots=True)
class StepRecord:
    """One step.

    Attributes:
        unmet: Upstreams that are not terminal. bad: Terminal ones that did not succeed.
        ready: Nothing but a free place under ``maxParallel`` is missing for its next attempt.
        fence: Highest fence that it was ever granted or that was proven dead.
    """

    index: int
    definition: StepDef
    state: StepState = StepState.PENDING
    reason: str = ""
    message: str = ""
    unmet: int = 0
    bad: int = 0
    ready: bool = False
    fence: int = 0
    counts: Counts = field(default_factory=Counts)
    attempts: list[AttemptRecord] = field(default_factory=list)
    output: OutputRef | None = None
    artifacts: ArtifactsRef | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    @property
    def live(self) -> AttemptRecord | None:
        """The attempt that has not ended, if any; it is always the last one."""
        if self.attempts and self.attempts[-1].state is not AttemptState.ENDED:
            return self.attempts[-1]
        return None

    def attempt(self, number: int) -> AttemptRecord | None:
        """The attempt of that number; None if there was none."""
        return self.attempts[number - 1] if 1 <= number <= len(self.attempts) else None


@dataclass(slots=True, frozen=True)
class Timer:
    """A timer that is armed."""

    kind: TimerKind
    step: str
    attempt: int
    fence: int
    at_ms: int
