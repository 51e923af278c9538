"""The workload machine under every sequence of events, over random DAGs.

The desk (`support.engine`) checks every invariant after every event; here events are only drawn.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from support.engine import Desk, dag, step

from headbay.domain.dag import Backoff, RetryPolicy
from headbay.domain.lifecycle import TERMINAL_STEP_STATES, StepState
from headbay.domain.outcome import Outcome
from headbay.domain.workload import Machine
from headbay.domain.workload.events import (
    Closed,
    ClosedUnproven,
    DrainStarted,
    Gone,
    Granted,
    LateExit,
    LeaseRanOut,
    NeverStarted,
    PoolRestarted,
    QueueTimedOut,
    Refused,
    RetryDue,
    Started,
)
from headbay.domain.workload.instructions import TimerKind

ATTEMPTS = st.integers(0, 4)
OUTCOMES = st.sampled_from(list(Outcome))
ENDS = st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, *Outcome])
NODE_WORDS = st.sampled_from(
    [o for o in Outcome if o not in (Outcome.PREEMPTED, Outcome.LIMIT_NOT_APPLIED)]
)

POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 3),
    backoff=st.builds(
        Backoff,
        initial_ms=st.sampled_from([0, 1_000]),
        jitter_permille=st.sampled_from([0, 500]),
    ),
    when=st.none() | st.lists(OUTCOMES.map(str), max_size=3, unique=True),
)


@st.composite
def dags(draw, most: int = 40):
    """A random DAG; edges go from earlier to later steps or, half of the time, the other way."""
    size = draw(st.integers(1, 4) | st.integers(3, most))
    names = [f"s{i}" for i in range(size)]
    steps = [
        step(
            name,
            retry=draw(POLICIES),
            repeat=draw(st.sampled_from(["safe", "safe", "never"])),
            trigger=draw(st.sampled_from(["all_success", "all_success", "all_done"])),
            queue_timeout_ms=draw(st.none() | st.just(60_000)),
        )
        for name in names
    ]
    edges = []
    for i in range(1, size):
        above = draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True))
        edges += [f"s{j}>s{i}" for j in above]
    if draw(st.booleans()):
        steps.reverse()
    return dag(
        *steps,
        edges=edges,
        max_parallel=draw(st.none() | st.integers(1, 4)),
        on_failure=draw(st.sampled_from(["continue", "continue", "stop"])),
        workspace=draw(st.sampled_from(["private", "private", "shared"])),
    )


def settle_all(desk: Desk) -> int:
    """Let a kind world answer everything; returns the number of events until the end."""
    events = 0
    while desk.finished is None:
        events += 1
        assert events < 20 * len(desk.dag.steps) + 100, "it does not terminate"
        unresolved = [n for n, s in desk.states().items() if s == StepState.UNRESOLVED]
        if desk.alive:
            process = next(iter(desk.alive.values()))
            if process.open:
                desk.end(process.spec.step)
            else:
                desk.lease_out(process.spec.step)
        elif desk.requests:
            desk.grant(desk.requested()[0])
        elif desk.timers:
            desk.fire(*min(desk.timers, key=lambda key: (desk.timers[key].at_ms, key)))
        else:
            assert unresolved, f"stuck: {desk.states()}"
            desk.resolve(unresolved[0], "failure")
    return events


def decisions(desk: Desk) -> str:
    """Everything that a fresh machine decides on the desk's events."""
    machine = Machine.new(desk.workload, desk.dag, desk.log[0][1])
    told = []
    for event, now_ms, _ in desk.log:
        if event is None:
            machine = Machine.load(machine.dump())
        else:
            told.append(repr(machine.handle(event, now_ms)))
    return "\n".join(told)


class AnyLife(RuleBasedStateMachine):
    """Grants, ends, losses, proofs, lies, operators and new runs, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.desk: Desk = None  # type: ignore[assignment]
        self.past: list = []

    @initialize(dag=dags(), workload=st.sampled_from(["w1", "w2"]))
    def begin(self, dag, workload):
        self.desk = Desk(dag, workload)

    def pick(self, data, found, label="step"):
        return data.draw(st.sampled_from(sorted(found)), label=label)

    def running(self, *, is_open: bool):
        if self.desk is None:
            return []
        return [p.spec for p in self.desk.alive.values() if p.open is is_open]

    def pick_spec(self, data, *, is_open: bool):
        name = self.pick(data, [spec.step for spec in self.running(is_open=is_open)])
        return self.desk.process(name).spec

    # -- what goes on --------------------------------------------------------------------------

    @rule(data=st.data())
    def go_on(self, data):
        """One thing that the world may do; drawn here, since rules cannot be weighted."""
        desk = self.desk
        can = ["live_again"] if desk.finished is not None else []
        if desk.requests:
            can += ["grant_all", "grant_all", "grant_one"]
        if self.running(is_open=True):
            can += ["end", "end", "end", "lose", "lose", "never_start", "prove"]
        if self.running(is_open=False):
            can += ["end_doubt"] * 5
        if desk.timers:
            can += ["timer_fires"] * 3
        can += ["time_passes"]
        getattr(self, data.draw(st.sampled_from(can), label="do"))(data)

    @rule(data=st.data())
    def go_on_and_on(self, data):
        for _ in range(3):
            self.go_on(data)

    def live_again(self, data):
        """This life is over; use the rest of the steps for another."""
        self.check_decisions()
        self.past = []
        self.desk = Desk(data.draw(dags()))

    def time_passes(self, data):
        ms = data.draw(st.sampled_from([1, 1_000, 30_000]), label="ms")
        if self.desk.now_ms + ms <= self._kills():
            self.desk.now_ms += ms

    def _kills(self) -> int:
        """Up to when time may pass without a doubtful process's being killed first."""
        dead = [p.dead_ms for p in self.desk.alive.values() if p.dead_ms is not None]
        return min(dead, default=1 << 60) - 1

    def grant_one(self, data):
        self.past.append(self.desk.grant(self.pick(data, self.desk.requested())))

    def grant_all(self, _data):
        for name in self.desk.requested():
            self.past.append(self.desk.grant(name))

    def end(self, data):
        self.desk.end(self.pick_spec(data, is_open=True).step, data.draw(ENDS))

    def lose(self, data):
        self.desk.lose(self.pick_spec(data, is_open=True).step)

    def never_start(self, data):
        self.desk.never_started(self.pick_spec(data, is_open=True).step)

    def prove(self, data):
        """Of an activity that is still open, as far as the workload knows."""
        spec = self.pick_spec(data, is_open=True)
        tell = data.draw(st.sampled_from([self.desk.gone, self.desk.late_exit]))
        tell(spec, data.draw(NODE_WORDS))

    def end_doubt(self, data):
        spec = self.pick_spec(data, is_open=False)
        held = (spec.step, spec.attempt, spec.fence)
        match data.draw(st.sampled_from(["lease", "early", "again", "late_exit", "gone"])):
            case "lease":
                self.desk.lease_out(spec.step)
            case "early":
                self.desk.tell(LeaseRanOut(*held))
            case "again":
                assert self.desk.tell(ClosedUnproven(*held)) == []
            case how:
                getattr(self.desk, how)(spec, data.draw(NODE_WORDS))

    def timer_fires(self, data):
        kind, name = self.pick(data, list(self.desk.timers), "timer")
        if kind is TimerKind.LEASE or self.desk.timers[kind, name].at_ms <= self._kills():
            self.desk.fire(kind, name)

    # -- what seldom happens -------------------------------------------------------------------

    @rule(data=st.data())
    def surprise(self, data):
        can = ["resolve", "continue_as_new", "continue_as_new", "cancel"]
        if self.desk.requests:
            can += ["pool_says_no"] * 8
        if self.past:
            can += ["word_on_the_past"] * 20
        if "UNRESOLVED" in self.desk.states().values():
            can += ["resolve"] * 6
        getattr(self, data.draw(st.sampled_from(can), label="do"))(data)

    def cancel(self, data):
        over = self.desk.finished is not None
        by = data.draw(st.sampled_from(["ann", "bob"]), label="by")
        assert self.desk.cancel(by).accepted is not over

    def continue_as_new(self, data):
        if data.draw(st.booleans(), label="drained"):
            self.desk.tell(DrainStarted())
            assert not self.desk.requests
            for spec in self.running(is_open=True):
                self.desk.end(spec.step)
        if self.desk.finished is None:
            self.desk.continue_as_new()

    def resolve(self, data):
        states = self.desk.states()
        open_ = [n for n, s in states.items() if s == "UNRESOLVED"]
        verdict = data.draw(st.sampled_from(["retry", "success", "failure", "maybe"]))
        name = self.pick(data, open_ or states)
        accepted = self.desk.resolve(name, verdict).accepted
        assert not accepted or (name in open_ and verdict != "maybe")

    def pool_says_no(self, data):
        desk = self.desk
        name, attempt = self.pick(data, list(desk.requests), "request")
        known = desk.machine._books.find(name).fence
        what = data.draw(st.sampled_from(["refused", "stale", "stale", "died", "died"]))
        if what == "refused":
            del desk.requests[name, attempt]
            desk.tell(Refused(name, attempt, "EXCEEDS_EVERY_NODE", "too large"))
        elif what == "died":
            spec = _spec_of(desk.make_grant(name, attempt))
            del desk.requests[name, attempt]
            desk.tell(Gone(desk.result(spec, Outcome.NODE_LOST)))
            assert (name, attempt) in desk.requests
        elif known and f"default-{known - 1}" not in desk.grants:
            desk.deliver(desk.make_grant(name, attempt, known - 1))
            assert (name, attempt) in desk.requests

    def word_on_the_past(self, data):
        """Late, doubled or outdated; after a newer grant it changes nothing."""
        spec = data.draw(st.sampled_from(self.past))
        kind = data.draw(st.sampled_from([Closed, Gone, LateExit]))
        if spec.allocation not in self.desk.alive:
            newer = [p for p in self.past if p.step == spec.step and p.fence > spec.fence]
            before = self.desk.machine.status
            self.desk.tell(kind(self.desk.result(spec, data.draw(NODE_WORDS))))
            assert not newer or self.desk.machine.status == before

    @rule(
        data=st.data(),
        what=st.sampled_from(["stray", "twice", "other fence", "timers", "pool", "started"]),
    )
    def noise(self, data, what):
        """What must not change anything, but for giving back what nobody waits for."""
        desk = self.desk
        before = (desk.machine.status, desk.machine.holds())
        match what:
            case "stray":
                name = self.pick(data, desk.states())
                waits = {n for n, _ in desk.requests}
                grant = desk.make_grant(name, 99 if name in waits else data.draw(ATTEMPTS))
                desk.deliver(grant)
                assert grant.allocation in desk.released
            case "twice" if self.past:
                spec = data.draw(st.sampled_from(self.past))
                desk.tell(Granted(desk.grants[spec.allocation]))
            case "other fence" if self.past:
                self._other_fence(data.draw(st.sampled_from(self.past)), data.draw(OUTCOMES))
            case "timers":
                name = self.pick(data, desk.states())
                if not any(n == name for _, n in desk.timers):
                    assert desk.tell(RetryDue(name, data.draw(ATTEMPTS))) == []
                    assert desk.tell(QueueTimedOut(name, data.draw(ATTEMPTS))) == []
            case "pool":
                desk.requests.clear()
                desk.tell(PoolRestarted())
            case "started":
                assert desk.tell(Started()) == []
        assert (desk.machine.status, desk.machine.holds()) == before

    def _other_fence(self, spec, outcome):
        desk = self.desk
        queued = desk.machine._books.find(spec.step).state is StepState.QUEUED
        # While a request waits, the end of a higher fence means a grant that never arrived.
        for offset in (-7_000_000,) if queued else (-7_000_000, 7_000_000):
            other = spec.model_copy(update={"fence": spec.fence + offset})
            held = (other.step, other.attempt, other.fence)
            result = desk.result(other, outcome)
            for event in (
                Closed(result),
                Gone(result),
                LateExit(result),
                NeverStarted(*held),
                ClosedUnproven(*held),
                LeaseRanOut(*held),
            ):
                assert desk.tell(event) == []

    # -- always --------------------------------------------------------------------------------

    @invariant()
    def something_is_awaited(self):
        desk = self.desk
        if desk is not None and desk.finished is None:
            unresolved = "UNRESOLVED" in desk.states().values()
            assert desk.requests or desk.alive or desk.timers or unresolved

    @invariant()
    def nothing_is_begun_after_a_cancel(self):
        desk = self.desk
        if desk is not None and desk.machine.status.cancel is not None:
            assert not desk.requests
            assert set(desk.states().values()) <= {"RUNNING", *TERMINAL_STEP_STATES}

    def teardown(self):
        if self.desk is not None:
            settle_all(self.desk)
            self.check_decisions()

    def check_decisions(self):
        told = "\n".join(repr(i) for event, _, i in self.desk.log if event is not None)
        assert decisions(self.desk) == told


def _spec_of(grant):
    twin = Desk(dag(grant.step))
    spec = twin.grant(grant.step)
    return spec.model_copy(
        update={
            "fence": grant.fence,
            "allocation": grant.allocation,
            "attempt": grant.attempt,
        }
    )


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@settings(max_examples=60, deadline=None)
@given(dag=dags())
def test_every_workload_ends_and_all_is_released_when_all_goes_well(dag):
    desk = Desk(dag)
    settle_all(desk)
    assert desk.finished.status == "SUCCEEDED"
    assert len(desk.started) == len(dag.steps)


HASHED = """
from support.engine import Desk, dag, step
from headbay.domain.outcome import Outcome
import hashlib
names = [f"s{i}" for i in range(30)]
edges = [f"s{i}>s{j}" for i in range(30) for j in range(i + 1, 30) if (i * j) % 3 == 1]
desk = Desk(dag(*names, edges=edges, labels={"b": "1", "a": "2"}, max_parallel=4))
turn = 0
while desk.finished is None:
    for name in desk.requested():
        desk.run(name, Outcome.NODE_LOST if turn % 5 == 1 else Outcome.SUCCEEDED)
        turn += 1
    for kind, name in list(desk.timers):
        desk.fire(kind, name)
told = "\\n".join(repr(i) for _, _, i in desk.log)
print(hashlib.sha256(told.encode() + desk.machine.dump()).hexdigest())
"""


def test_decisions_do_not_depend_on_how_python_hashes_strings():
    tests = str(Path(__file__).parents[1])

    def digest(seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": tests}
        done = subprocess.run(
            [sys.executable, "-c", HASHED], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    digests = {digest(seed) for seed in ("1", "2", "3")}
    assert len(digests) == 1
    assert digests != {hashlib.sha256(b"").hexdigest()}
