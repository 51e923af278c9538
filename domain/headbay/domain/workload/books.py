"""The workload's books: its whole state, and the only ways to change it.

Counters are kept up to date step by step, so that an event costs what it changes and not the size
of the workload. Rules live in the neighbouring modules; here is no policy.
"""

import heapq
from collections import deque
from collections.abc import Iterable

from pydantic import JsonValue

from headbay.domain.dag import DagDef
from headbay.domain.errors import BrokenInvariantError
from headbay.domain.journal import JournalEvent
from headbay.domain.lifecycle import (
    ATTEMPT_TRANSITIONS,
    STEP_TRANSITIONS,
    TERMINAL_STEP_STATES,
    AttemptState,
    StepState,
    WorkloadState,
    check_transition,
)
from headbay.domain.status import CancelStatus
from headbay.domain.workload.graph import Graph
from headbay.domain.workload.instructions import (
    CancelTimer,
    Instruction,
    StartTimer,
    TimerKind,
)
from headbay.domain.workload.records import AttemptRecord, StepRecord, Timer

__all__ = ["Books"]

STORY_LENGTH = 200


class Books:
    """State of one workload.

    Attributes:
        status, reason, message: Of the workload as a whole.
        cancel: The first cancel request.
        stopping: ``onFailure: stop`` has struck: no attempt is begun any more.
        draining: The run is to continue as new: nothing is requested or started.
        pinned: With a shared workspace, the node that the first attempt went to.
        active: Attempts that have not ended, including requests: what ``maxParallel`` bounds.
        terminal: Steps in a terminal state.
        settled: Steps that became terminal and whose downstreams do not know it yet.
        journal: What this run recorded; ``run`` is left empty.
        story: The last things that happened, for the message of a broken invariant.
    """

    def __init__(self, workload: str, dag: DagDef, submitted_ms: int) -> None:
        self.id = workload
        self.dag = dag
        self.submitted_ms = submitted_ms
        self.graph = Graph.of(dag)
        self.steps = [
            StepRecord(i, definition, unmet=len(self.graph.upstreams[i]))
            for i, definition in enumerate(dag.steps)
        ]
        self.status = WorkloadState.RUNNING
        self.reason = ""
        self.message = ""
        self.begun = False
        self.started_ms: int | None = None
        self.finished_ms: int | None = None
        self.cancel: CancelStatus | None = None
        self.stopping = False
        self.draining = False
        self.pinned: str | None = None
        self.active = 0
        self.terminal = 0
        self.timers: dict[tuple[TimerKind, str], Timer] = {}
        self.settled: deque[int] = deque()
        self.journal: list[JournalEvent] = []
        self.story: deque[str] = deque(maxlen=STORY_LENGTH)
        self.now_ms = submitted_ms
        self._ready: list[int] = []
        self._instructions: list[Instruction] = []

    # -- one event -----------------------------------------------------------------------------

    def open(self, what: str, now_ms: int) -> None:
        """Begin to handle an event. A clock that was set back stands still instead."""
        self.now_ms = max(self.now_ms, now_ms)
        self._instructions = []
        self.note(what)

    def close(self) -> list[Instruction]:
        """The instructions that handling the event gave."""
        return self._instructions

    def instruct(self, instruction: Instruction) -> None:
        """Add an instruction."""
        self._instructions.append(instruction)

    def note(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.now_ms} {line}")

    def record(
        self,
        kind: str,
        step: StepRecord | None = None,
        attempt: int | None = None,
        *,
        state: str = "",
        reason: str = "",
        data: dict[str, JsonValue] | None = None,
    ) -> None:
        """Append to the journal."""
        self.journal.append(
            JournalEvent(
                workload=self.id,
                run="",
                seq=len(self.journal),
                at_ms=self.now_ms,
                kind=kind,
                step=None if step is None else step.name,
                attempt=attempt,
                state=state,
                reason=reason,
                data=data or {},
            )
        )

    # -- look-ups ------------------------------------------------------------------------------

    def find(self, name: str) -> StepRecord | None:
        """The step of that name."""
        index = self.graph.index.get(name)
        return None if index is None else self.steps[index]

    def find_held(
        self, name: str, number: int, fence: int
    ) -> tuple[StepRecord, AttemptRecord] | None:
        """The attempt that holds or held exactly this fence; None changes nothing."""
        step = self.find(name)
        attempt = None if step is None else step.attempt(number)
        if step is None or attempt is None or attempt.fence != fence or not fence:
            self.note(f"ignored: {name} attempt {number} never held fence {fence}")
            return None
        return step, attempt

    # -- steps ---------------------------------------------------------------------------------

    def move_step(
        self, step: StepRecord, state: StepState, reason: str = "", message: str = ""
    ) -> None:
        """Change a step's state."""
        check_transition(STEP_TRANSITIONS, step.state, state, f"step {step.name}", self.story)
        self.note(f"{step.name}: {step.state} -> {state} {reason}")
        step.state = state
        step.reason = reason
        step.message = message
        step.ready = False
        if state in TERMINAL_STEP_STATES:
            self.terminal += 1
            self.settled.append(step.index)

    def make_ready(self, step: StepRecord) -> None:
        """Its next attempt may be requested as soon as there is room."""
        if not step.ready:
            step.ready = True
            heapq.heappush(self._ready, step.index)

    def next_ready(self) -> StepRecord | None:
        """Take the first ready step in document order."""
        while self._ready:
            step = self.steps[heapq.heappop(self._ready)]
            if step.ready:
                step.ready = False
                return step
        return None

    # -- attempts ------------------------------------------------------------------------------

    def add_attempt(self, step: StepRecord) -> AttemptRecord:
        """A new attempt of the step, requested."""
        if step.live is not None:
            raise self.broken(f"{step.name} would have two attempts at once")
        attempt = AttemptRecord(len(step.attempts) + 1, self.now_ms)
        step.attempts.append(attempt)
        self.active += 1
        return attempt

    def move_attempt(self, step: StepRecord, attempt: AttemptRecord, state: AttemptState) -> None:
        """Change an attempt's state."""
        what = f"{step.name} attempt {attempt.number}"
        check_transition(ATTEMPT_TRANSITIONS, attempt.state, state, what, self.story)
        attempt.state = state
        if state is AttemptState.ENDED:
            attempt.grant = None
            self.active -= 1

    # -- timers --------------------------------------------------------------------------------

    def arm(self, kind: TimerKind, step: StepRecord, attempt: int, fence: int, at_ms: int) -> None:
        """Start a timer."""
        timer = Timer(kind, step.name, attempt, fence, at_ms)
        self.timers[kind, step.name] = timer
        self.rearm(timer)

    def rearm(self, timer: Timer) -> None:
        """Order a timer that is already in the books."""
        self.instruct(StartTimer(timer.kind, timer.step, timer.attempt, timer.fence, timer.at_ms))

    def disarm(self, kind: TimerKind, step: StepRecord) -> None:
        """Cancel the step's timer of that kind, if armed."""
        timer = self.timers.pop((kind, step.name), None)
        if timer is not None:
            self.instruct(CancelTimer(timer.kind, timer.step, timer.attempt, timer.fence))

    def take_due(self, kind: TimerKind, name: str, attempt: int) -> bool:
        """Whether the timer that fired is the armed one and really due; takes it if so.

        One that fires early (workflow time is finer than milliseconds) is ordered again.
        """
        timer = self.timers.get((kind, name))
        if timer is None or timer.attempt != attempt:
            return False
        if self.now_ms < timer.at_ms:
            self.rearm(timer)
            return False
        del self.timers[kind, name]
        return True

    # -- faults --------------------------------------------------------------------------------

    def broken(self, what: str) -> BrokenInvariantError:
        """The error for a broken invariant, with the story."""
        told = "\n  ".join(self.story)
        return BrokenInvariantError(f"{self.id}: {what}; what happened before:\n  {told}")

    def ready_indexes(self) -> Iterable[int]:
        """Indexes in the heap of ready steps, some of them outdated (for `sanity_check`)."""
        return self._ready
