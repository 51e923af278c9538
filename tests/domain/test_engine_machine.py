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
    precondition,
    rule,
)
from support.engine import Desk, dag, step

from headbay.domain.dag import Backoff, RetryPolicy
from headbay.domain.lifecycle import StepState
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
    size = draw(st.integers(1, most))
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

    def pick(self, data, found, label):
        return data.draw(st.sampled_from(sorted(found)), label=label)

    def pick_process(self, data, *, is_open=None):
        found = {
            p.spec.step for p in self.desk.alive.values() if is_open is None or p.open is is_open
        }
        return self.desk.process(self.pick(data, found, "step"))

    def has(self, *, is_open: bool) -> bool:
        return self.desk is not None and any(p.open is is_open for p in self.desk.alive.values())

    # -- the pool ------------------------------------------------------------------------------

    @precondition(lambda self: self.desk is not None and self.desk.requests)
    @rule(data=st.data(), many=st.booleans())
    def grant(self, data, many):
        names = self.desk.requested() if many else [self.pick(data, self.desk.requested(), "step")]
        for name in names:
            if name in self.desk.requested():
                self.past.append(self.desk.grant(name))

    @precondition(lambda self: self.desk is not None and self.desk.requests)
    @rule(data=st.data())
    def refuse(self, data):
        name = self.pick(data, self.desk.requested(), "step")
        attempt = next(a for n, a in self.desk.requests if n == name)
        del self.desk.requests[name, attempt]
        self.desk.tell(Refused(name, attempt, "EXCEEDS_EVERY_NODE", "too large"))

    @rule(index=st.integers(0, 39), attempt=st.integers(1, 4), age=st.integers(-5, 1))
    def grant_that_nobody_waits_for(self, index, attempt, age):
        name = f"s{index}"
        if (name, attempt) in self.desk.requests:
            return
        fence = None if age > 0 else self.desk.fence - 10_000_000 + age
        grant = self.desk.make_grant(name, attempt, fence)
        if grant.allocation not in self.desk.grants:
            self.desk.deliver(grant)
            assert grant.allocation in self.desk.released

    @precondition(lambda self: self.desk is not None and self.desk.requests)
    @rule(data=st.data())
    def stale_grant_for_a_request(self, data):
        name, attempt = self.pick(data, list(self.desk.requests), "request")
        known = self.desk.machine._books.find(name).fence
        if known:
            grant = self.desk.make_grant(name, attempt, known - 1)
            if grant.allocation not in self.desk.grants:
                self.desk.deliver(grant)
                assert (name, attempt) in self.desk.requests

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def same_grant_again(self, data):
        spec = data.draw(st.sampled_from(self.past))
        self.desk.tell(Granted(self.desk.grants[spec.allocation]))

    @precondition(lambda self: self.desk is not None and self.desk.requests)
    @rule(data=st.data())
    def granted_to_a_node_that_died(self, data):
        name, attempt = self.pick(data, list(self.desk.requests), "request")
        grant = self.desk.make_grant(name, attempt)
        spec = _spec_of(grant)
        del self.desk.requests[name, attempt]
        self.desk.tell(Gone(self.desk.result(spec, Outcome.NODE_LOST)))
        assert (name, attempt) in self.desk.requests

    @rule()
    def restart_pool(self):
        self.desk.requests.clear()
        self.desk.tell(PoolRestarted())

    # -- the node ------------------------------------------------------------------------------

    @precondition(lambda self: self.has(is_open=True))
    @rule(data=st.data(), outcome=ENDS)
    def end(self, data, outcome):
        self.desk.end(self.pick_process(data, is_open=True).spec.step, outcome)

    @precondition(lambda self: self.has(is_open=True))
    @rule()
    def end_all(self):
        for process in list(self.desk.alive.values()):
            if process.open:
                self.desk.end(process.spec.step)

    @precondition(lambda self: self.has(is_open=True))
    @rule(data=st.data())
    def never_start(self, data):
        self.desk.never_started(self.pick_process(data, is_open=True).spec.step)

    @precondition(lambda self: self.has(is_open=True))
    @rule(data=st.data())
    def lose(self, data):
        self.desk.lose(self.pick_process(data, is_open=True).spec.step)

    @precondition(lambda self: self.has(is_open=False))
    @rule(data=st.data())
    def lease_runs_out(self, data):
        self.desk.lease_out(self.pick_process(data, is_open=False).spec.step)

    @precondition(lambda self: self.has(is_open=False))
    @rule(data=st.data())
    def lease_timer_fires_early(self, data):
        spec = self.pick_process(data, is_open=False).spec
        self.desk.tell(LeaseRanOut(spec.step, spec.attempt, spec.fence))

    @precondition(lambda self: self.has(is_open=True) or self.has(is_open=False))
    @rule(data=st.data(), outcome=NODE_WORDS, late=st.booleans())
    def proof(self, data, outcome, late):
        spec = self.pick_process(data).spec
        (self.desk.late_exit if late else self.desk.gone)(spec, outcome)

    @precondition(lambda self: self.past)
    @rule(data=st.data(), outcome=NODE_WORDS, kind=st.sampled_from([Closed, Gone, LateExit]))
    def word_on_the_past(self, data, outcome, kind):
        spec = data.draw(st.sampled_from(self.past))
        if spec.allocation not in self.desk.alive:
            self.desk.tell(kind(self.desk.result(spec, outcome)))

    @precondition(lambda self: self.past)
    @rule(data=st.data(), offset=st.sampled_from([-7_000_000, 7_000_000]), outcome=OUTCOMES)
    def event_with_another_fence(self, data, offset, outcome):
        spec = data.draw(st.sampled_from(self.past))
        spec = spec.model_copy(update={"fence": spec.fence + offset})
        if self.desk.machine._books.find(spec.step).state is StepState.QUEUED:
            return  # There, Gone of a higher fence means a grant that never arrived.
        result = self.desk.result(spec, outcome)
        assert self.desk.tell(Started()) == [], "a repeat, so that both dumps are of the same time"
        before = self.desk.machine.dump()
        for event in (
            Closed(result),
            Gone(result),
            LateExit(result),
            NeverStarted(spec.step, spec.attempt, spec.fence),
            ClosedUnproven(spec.step, spec.attempt, spec.fence),
            LeaseRanOut(spec.step, spec.attempt, spec.fence),
        ):
            assert self.desk.tell(event) == []
        assert self.desk.machine.dump() == before

    # -- time ----------------------------------------------------------------------------------

    @precondition(lambda self: self.desk is not None and self.desk.timers)
    @rule(data=st.data())
    def timer_fires(self, data):
        kind, name = self.pick(data, list(self.desk.timers), "timer")
        if kind is TimerKind.LEASE or self.desk.timers[kind, name].at_ms <= self._kills():
            self.desk.fire(kind, name)

    def _kills(self) -> int:
        """Up to when time may pass without a doubtful process's being killed first."""
        dead = [p.dead_ms for p in self.desk.alive.values() if p.dead_ms is not None]
        return min(dead, default=1 << 60) - 1

    @rule(ms=st.sampled_from([0, 1, 1_000, 30_000]))
    def time_passes(self, ms):
        if self.desk.now_ms + ms <= self._kills():
            self.desk.now_ms += ms

    @rule(index=st.integers(0, 39), attempt=st.integers(0, 3))
    def timers_that_nobody_armed(self, index, attempt):
        name = f"s{index}"
        if not any(n == name for _, n in self.desk.timers):
            assert self.desk.tell(RetryDue(name, attempt)) == []
            assert self.desk.tell(QueueTimedOut(name, attempt)) == []

    # -- people and runs -----------------------------------------------------------------------

    @rule(by=st.sampled_from(["ann", "bob"]), really=st.integers(0, 3))
    def cancel(self, by, really):
        if not really:
            over = self.desk.finished is not None
            assert self.desk.cancel(by).accepted is not over

    @rule(data=st.data(), verdict=st.sampled_from(["retry", "success", "failure", "maybe"]))
    def resolve(self, data, verdict):
        states = self.desk.states()
        open_ = [n for n, s in states.items() if s == "UNRESOLVED"]
        name = self.pick(data, open_ or states, "step")
        accepted = self.desk.resolve(name, verdict).accepted
        assert not accepted or name in open_

    @precondition(lambda self: self.desk is not None and self.desk.finished is None)
    @rule(drained=st.booleans())
    def continue_as_new(self, drained):
        if drained:
            self.desk.tell(DrainStarted())
            assert not self.desk.requests
            for process in list(self.desk.alive.values()):
                if process.open:
                    self.desk.end(process.spec.step)
        if self.desk.finished is None:
            self.desk.continue_as_new()

    @rule()
    def start_again(self):
        assert self.desk.tell(Started()) == []

    # -- always --------------------------------------------------------------------------------

    @invariant()
    def something_is_awaited(self):
        desk = self.desk
        if desk is not None and desk.finished is None:
            unresolved = "UNRESOLVED" in desk.states().values()
            assert desk.requests or desk.alive or desk.timers or unresolved

    def teardown(self):
        if self.desk is not None:
            settle_all(self.desk)
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
TestAnyLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


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
