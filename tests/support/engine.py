"""A desk around the workload machine: carries out its instructions on a model world.

The desk keeps its own, independent account of what is requested, granted and alive, and fails
the test at once if an instruction contradicts it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headbay.domain.attempt import AttemptResult, LaunchSpec
from headbay.domain.dag import DagDef, Edge, StepDef
from headbay.domain.exchange import Grant, StepRequest
from headbay.domain.journal import JournalEvent
from headbay.domain.lifecycle import TERMINAL_STEP_STATES, StepState
from headbay.domain.outcome import Outcome
from headbay.domain.status import StepStatus, WorkloadStatus
from headbay.domain.workload import Acceptance, Machine
from headbay.domain.workload.events import (
    CancelRequested,
    Closed,
    ClosedUnproven,
    Continued,
    Event,
    Gone,
    Granted,
    LateExit,
    NeverStarted,
    Resolved,
    Started,
)
from headbay.domain.workload.instructions import (
    AbandonAttempt,
    Answer,
    CancelTimer,
    Finish,
    Instruction,
    ReleaseCapacity,
    RequestCapacity,
    StartAttempt,
    StartTimer,
    StopAttempt,
    TimerKind,
    WithdrawRequest,
)

START_MS = 1_764_000_000_000

Key = tuple[str, int]


def step(name: str, **fields: Any) -> StepDef:
    """A step that runs `true`."""
    return StepDef(name=name, base=name, argv=["true"], resources={"cpu": 1_000}, **fields)


def dag(*steps: StepDef | str, edges: Iterable[str] = (), **fields: Any) -> DagDef:
    """A DAG; an edge is spelled ``upstream>step``."""
    made = [s if isinstance(s, StepDef) else step(s) for s in steps]
    pairs = [Edge(upstream=a, step=b) for a, b in (edge.split(">") for edge in edges)]
    return DagDef(name="test", steps=made, edges=pairs, **fields)


@dataclass
class Replay:
    """What the journal alone tells."""

    seen: dict[str, str] = field(default_factory=dict)
    outcomes: dict[Key, str] = field(default_factory=dict)
    status: str = "RUNNING"

    def take(self, events: list[JournalEvent]) -> None:
        """Fold events into it."""
        for event in events:
            if event.kind == "AttemptEnded":
                assert event.step is not None
                assert event.attempt is not None
                self.outcomes[event.step, event.attempt] = event.reason
            elif event.step is not None and event.kind.startswith("Step"):
                self.seen[event.step] = event.state
            elif event.kind == "WorkloadFinished":
                self.status = event.state

    def states(self, steps: Iterable[StepStatus]) -> dict[str, str]:
        """State of each step; without any event it is pending."""
        return {s.name: self.seen.get(s.name, "PENDING") for s in steps}


@dataclass
class Process:
    """Something that the world may be running."""

    spec: LaunchSpec
    open: bool = True
    """Its activity has not closed."""
    dead_ms: int | None = None
    """When its shim has killed it at the latest, once its activity closed."""


@dataclass
class Desk:
    """The machine and the world around it."""

    dag: DagDef
    workload: str = "w1"
    now_ms: int = START_MS
    machine: Machine = field(init=False)
    fence: int = START_MS
    requests: dict[Key, StepRequest] = field(default_factory=dict)
    alive: dict[str, Process] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    started: list[LaunchSpec] = field(default_factory=list)
    timers: dict[tuple[TimerKind, str], StartTimer] = field(default_factory=dict)
    stops: list[StopAttempt] = field(default_factory=list)
    answers: list[Acceptance] = field(default_factory=list)
    abandoned: list[AbandonAttempt] = field(default_factory=list)
    finished: WorkloadStatus | None = None
    log: list[tuple[Event | None, int, list[Instruction]]] = field(default_factory=list)
    replay: Replay = field(default_factory=Replay)
    terminal: dict[str, StepState] = field(default_factory=dict)
    journaled: int = 0

    def __post_init__(self) -> None:
        self.machine = Machine.new(self.workload, self.dag, self.now_ms)
        self.tell(Started())

    # -- the machine ---------------------------------------------------------------------------

    def tell(self, event: Event) -> list[Instruction]:
        """Handle an event, carry out what it gives, and check everything."""
        instructions = self.machine.handle(event, self.now_ms)
        self.log.append((event, self.now_ms, instructions))
        for instruction in instructions:
            self._carry_out(instruction)
        self.check()
        return instructions

    def continue_as_new(self) -> None:
        """Pack, unpack, go on: what the former run asked and awaited is void."""
        packed = self.machine.dump()
        self.machine = Machine.load(packed)
        assert self.machine.dump() == packed
        self.log.append((None, self.now_ms, []))
        self.journaled = 0
        self.requests.clear()
        self.timers.clear()
        for process in self.alive.values():
            if process.open:
                self._close_activity(process)
        self.tell(Continued())

    def _carry_out(self, instruction: Instruction) -> None:
        assert self.finished is None or isinstance(instruction, ReleaseCapacity | Answer)
        match instruction:
            case RequestCapacity(request):
                self.requests[request.step, request.attempt] = request
            case WithdrawRequest(name, attempt):
                self.requests.pop((name, attempt), None)
            case ReleaseCapacity(allocation):
                assert allocation not in self.alive, f"{allocation} is freed, its process lives"
                self.released.add(allocation)
            case StartAttempt(spec):
                self._start(spec)
            case StopAttempt():
                assert any(p.spec.fence == instruction.order.fence for p in self.alive.values())
                self.stops.append(instruction)
            case AbandonAttempt():
                self.abandoned.append(instruction)
            case StartTimer(kind, name):
                self.timers[kind, name] = instruction
            case CancelTimer(kind, name):
                del self.timers[kind, name]
            case Answer(_, acceptance):
                self.answers.append(acceptance)
            case Finish(status):
                self.finished = status

    def _start(self, spec: LaunchSpec) -> None:
        twice = [p.spec for p in self.alive.values() if p.spec.step == spec.step]
        assert not twice, f"{spec.step} would run twice: {twice} and {spec}"
        fences = [s.fence for s in self.started if s.step == spec.step]
        assert all(fence < spec.fence for fence in fences)
        trigger = next(s.trigger for s in self.dag.steps if s.name == spec.step)
        states = [self.state(edge.upstream) for edge in self.dag.edges if edge.step == spec.step]
        if trigger == "all_success":
            assert all(state == StepState.SUCCEEDED for state in states)
        assert all(state in TERMINAL_STEP_STATES for state in states)
        assert spec.allocation in self.grants
        self.started.append(spec)
        self.alive[spec.allocation] = Process(spec)

    # -- checks --------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold after every event."""
        self.machine.sanity_check()
        new = self.machine.journal_since(self.journaled)
        assert [event.seq for event in new] == list(
            range(self.journaled, self.journaled + len(new))
        )
        self.journaled += len(new)
        self.replay.take(new)
        status = self.machine.status
        assert self.replay.states(status.steps) == {s.name: s.state for s in status.steps}
        assert self.replay.outcomes == {
            (s.name, a.attempt): a.outcome
            for s in status.steps
            for a in s.attempts
            if a.outcome is not None
        }
        assert self.replay.status == status.status
        for s in status.steps:
            before = self.terminal.get(s.name)
            assert before in (None, s.state), f"{s.name} went from {before} to {s.state}"
            if s.state in TERMINAL_STEP_STATES:
                self.terminal[s.name] = s.state
        armed = {(t.kind, t.step): t.at_ms for t in self.timers.values()}
        due = min(armed.values(), default=None)
        assert self.machine.next_due_ms() == due
        limit = self.dag.max_parallel
        busy = len(self.requests) + len(self.alive)
        assert limit is None or busy <= limit
        if self.finished is not None:
            self.check_end()

    def check_end(self) -> None:
        """Nothing leaks, and the final status follows from the steps."""
        status = self.finished
        assert status is not None
        assert status == self.machine.status
        assert set(self.grants) == self.released
        assert not self.alive
        assert not self.requests
        assert not self.timers
        states = {s.state for s in status.steps}
        assert states <= TERMINAL_STEP_STATES
        expected = "SUCCEEDED"
        if StepState.FAILED in states:
            expected = "FAILED"
        elif StepState.CANCELLED in states:
            expected = "CANCELLED"
        assert status.status == expected

    # -- looking -------------------------------------------------------------------------------

    def step(self, name: str) -> StepStatus:
        """Status of one step."""
        return next(s for s in self.machine.status.steps if s.name == name)

    def state(self, name: str) -> StepState:
        """State of one step."""
        return self.step(name).state

    def states(self) -> dict[str, str]:
        """State of every step."""
        return {s.name: s.state.value for s in self.machine.status.steps}

    def requested(self) -> list[str]:
        """Names of the steps that are requested, in the order of asking."""
        return [name for name, _ in self.requests]

    def process(self, name: str) -> Process:
        """What may run of a step."""
        return next(p for p in self.alive.values() if p.spec.step == name)

    # -- acting --------------------------------------------------------------------------------

    def make_grant(self, name: str, attempt: int, fence: int | None = None) -> Grant:
        """A grant of the pool, with a new fence unless one is given."""
        if fence is None:
            self.fence = fence = max(self.fence + 1, self.now_ms)
        return Grant(
            allocation=f"default-{fence}",
            workload=self.workload,
            run="r1",
            step=name,
            attempt=attempt,
            node="n1",
            epoch=1,
            fence=fence,
            resources={"cpu": 1_000},
        )

    def grant(self, name: str) -> LaunchSpec:
        """Grant the step's open request."""
        attempt = next(a for n, a in self.requests if n == name)
        self.deliver(self.make_grant(name, attempt))
        return self.process(name).spec

    def deliver(self, grant: Grant) -> list[Instruction]:
        """Tell of a grant; the pool has no such request any more."""
        self.requests.pop((grant.step, grant.attempt), None)
        self.grants[grant.allocation] = grant
        return self.tell(Granted(grant))

    def result(
        self, spec: LaunchSpec, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any
    ) -> AttemptResult:
        """How an attempt ended, as its node tells it."""
        began = outcome not in (Outcome.NOT_STARTED, Outcome.LIMIT_NOT_APPLIED)
        exits = {Outcome.SUCCEEDED: 0, Outcome.FAILED: 1}
        told = {"began": began, "exit_code": exits.get(outcome)} | fields
        return AttemptResult(
            workload=self.workload,
            step=spec.step,
            attempt=spec.attempt,
            fence=spec.fence,
            allocation=spec.allocation,
            node=spec.node,
            outcome=outcome,
            **told,
        )

    def end(self, name: str, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> None:
        """The node completes the step's activity."""
        spec = self.process(name).spec
        del self.alive[spec.allocation]
        self.tell(Closed(self.result(spec, outcome, **fields)))

    def run(self, name: str, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> LaunchSpec:
        """Grant, then end."""
        spec = self.grant(name)
        self.end(name, outcome, **fields)
        return spec

    def lose(self, name: str) -> LaunchSpec:
        """The activity closes without the node's word."""
        process = self.process(name)
        self._close_activity(process)
        spec = process.spec
        self.tell(ClosedUnproven(name, spec.attempt, spec.fence))
        return spec

    def _close_activity(self, process: Process) -> None:
        process.open = False
        process.dead_ms = self.now_ms + process.spec.lease_ms + process.spec.grace_ms

    def never_started(self, name: str) -> None:
        """Schedule-to-start runs out."""
        spec = self.process(name).spec
        del self.alive[spec.allocation]
        self.tell(NeverStarted(name, spec.attempt, spec.fence))

    def gone(self, spec: LaunchSpec, outcome: Outcome, **fields: Any) -> None:
        """The pool says that it is gone."""
        self.alive.pop(spec.allocation, None)
        self.tell(Gone(self.result(spec, outcome, **fields)))

    def late_exit(self, spec: LaunchSpec, outcome: Outcome, **fields: Any) -> None:
        """The node tells the end of an attempt whose activity had closed."""
        self.alive.pop(spec.allocation, None)
        self.tell(LateExit(self.result(spec, outcome, **fields)))

    def lease_out(self, name: str) -> None:
        """Wait until TTL plus grace are over."""
        self.fire(TimerKind.LEASE, name)

    def fire(self, kind: TimerKind, name: str) -> None:
        """Wait until a timer is due, and let it fire."""
        timer = self.timers.pop((kind, name))
        self.now_ms = max(self.now_ms, timer.at_ms)
        events = {(type(e), getattr(e, "step", "")): e for e in self.machine.due(self.now_ms)}
        for allocation, process in list(self.alive.items()):
            if process.dead_ms is not None and process.dead_ms <= self.now_ms:
                del self.alive[allocation]
        event = next(e for (_, n), e in events.items() if n == name and _kind(e) is kind)
        self.tell(event)

    def cancel(self, by: str = "ann", reason: str = "") -> Acceptance:
        """Cancel the workload."""
        self.tell(CancelRequested(by, reason, ticket=len(self.answers)))
        return self.answers[-1]

    def resolve(self, name: str, verdict: str) -> Acceptance:
        """Resolve a step."""
        self.tell(Resolved(name, verdict, "ann", "looked", ticket=len(self.answers)))
        return self.answers[-1]


def _kind(event: Event) -> TimerKind:
    names = {"LeaseRanOut": TimerKind.LEASE, "RetryDue": TimerKind.RETRY}
    return names.get(type(event).__name__, TimerKind.QUEUE)
