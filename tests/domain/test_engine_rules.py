"""Lifecycles, retry decisions, backoff, lease arithmetic, classification: the small pure rules."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headbay.domain.classify import EndFacts, classify, flags
from headbay.domain.dag import Backoff, RetryPolicy
from headbay.domain.errors import BrokenInvariantError
from headbay.domain.lease import (
    KILL_BOUND_MS,
    MIN_TTL_MS,
    deadline_ns,
    heartbeat_interval_ms,
    margin_ms,
    reassign_after_ms,
)
from headbay.domain.lifecycle import (
    ATTEMPT_TRANSITIONS,
    STEP_TRANSITIONS,
    TERMINAL_STEP_STATES,
    WORKLOAD_TRANSITIONS,
    AttemptState,
    StepState,
    WorkloadState,
    check_transition,
)
from headbay.domain.outcome import Flag, Outcome
from headbay.domain.retry import (
    NODE_FAULT_LIMIT,
    NODE_FAULTS,
    PREEMPTION_LIMIT,
    Counts,
    Verdict,
    after_attempt,
    backoff_ms,
    count,
)

# -- lifecycles ------------------------------------------------------------------------------------

STEP = {
    "PENDING": "WAITING_APPROVAL PARKED QUEUED SKIPPED CANCELLED SUCCEEDED FAILED UNRESOLVED",
    "WAITING_APPROVAL": "PARKED QUEUED PENDING SKIPPED CANCELLED FAILED",
    "PARKED": "QUEUED SKIPPED CANCELLED SUCCEEDED FAILED",
    "QUEUED": "RUNNING PARKED SKIPPED CANCELLED SUCCEEDED FAILED UNRESOLVED",
    "RUNNING": "PENDING SUCCEEDED FAILED CANCELLED UNRESOLVED",
    "UNRESOLVED": "PENDING SUCCEEDED FAILED CANCELLED",
}
WORKLOAD = {"RUNNING": "SUCCEEDED FAILED CANCELLED"}
ATTEMPT = {"REQUESTED": "RUNNING ENDED", "RUNNING": "IN_DOUBT ENDED", "IN_DOUBT": "ENDED"}

PAIRS = [
    (table, allowed, before, after)
    for table, allowed, states in (
        (STEP_TRANSITIONS, STEP, StepState),
        (WORKLOAD_TRANSITIONS, WORKLOAD, WorkloadState),
        (ATTEMPT_TRANSITIONS, ATTEMPT, AttemptState),
    )
    for before, after in product(states, states)
]


@pytest.mark.parametrize(("table", "allowed", "before", "after"), PAIRS)
def test_every_pair_of_states_is_a_listed_transition_or_a_broken_invariant(
    table, allowed, before, after
):
    if after in allowed.get(before, "").split():
        check_transition(table, before, after, "it")
    else:
        with pytest.raises(BrokenInvariantError, match=f"it cannot go from {before} to {after}"):
            check_transition(table, before, after, "it")


def test_terminal_states_have_no_way_out():
    assert {"SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED"} == TERMINAL_STEP_STATES


def test_a_refused_transition_tells_what_happened_before():
    with pytest.raises(BrokenInvariantError, match=r"(?s)first.*second"):
        check_transition(
            STEP_TRANSITIONS, StepState.FAILED, StepState.QUEUED, "s", ["first", "second"]
        )


# -- retry -----------------------------------------------------------------------------------------

OWN = (
    Outcome.FAILED,
    Outcome.SIGNALED,
    Outcome.OOM_KILLED,
    Outcome.TIMED_OUT,
    Outcome.EXEC_FAILED,
)


def decide(outcome, *, repeat="safe", began=True, counts=None, **policy):
    counted = count(Counts(), outcome) if counts is None else counts
    return after_attempt(
        RetryPolicy(**policy), repeat, outcome, began=began, counts=counted, jitter_draw=0
    )


def test_the_classes_of_outcomes_cover_all_of_them_once():
    final = {Outcome.SUCCEEDED, Outcome.CANCELLED}
    asked = {Outcome.OUTPUT_CONTRACT_VIOLATION}
    classes = [final, asked, set(OWN), set(NODE_FAULTS), {Outcome.PREEMPTED}]
    assert set().union(*classes) == set(Outcome)
    assert sum(map(len, classes)) == len(Outcome)


@pytest.mark.parametrize("repeat", ["safe", "never"])
def test_success_and_cancellation_are_final(repeat):
    assert decide(Outcome.SUCCEEDED, repeat=repeat, max_attempts=9).verdict is Verdict.SUCCEED
    assert decide(Outcome.CANCELLED, repeat=repeat, max_attempts=9).verdict is Verdict.CANCEL


@pytest.mark.parametrize("outcome", OWN)
def test_the_steps_own_failures_are_retried_only_if_attempts_are_left(outcome):
    assert decide(outcome, max_attempts=1).verdict is Verdict.FAIL
    assert decide(outcome, max_attempts=2).verdict is Verdict.RETRY
    assert decide(outcome, max_attempts=2, counts=Counts(own=2)).verdict is Verdict.FAIL
    assert decide(outcome, max_attempts=2).reason == outcome


@pytest.mark.parametrize("outcome", OWN)
def test_when_narrows_what_is_retried(outcome):
    others = [o.value for o in OWN if o is not outcome]
    assert decide(outcome, max_attempts=9, when=[outcome.value]).verdict is Verdict.RETRY
    assert decide(outcome, max_attempts=9, when=others).verdict is Verdict.FAIL
    assert decide(outcome, max_attempts=9, when=[]).verdict is Verdict.FAIL


def test_a_violated_output_contract_is_retried_only_if_asked_for():
    violation = Outcome.OUTPUT_CONTRACT_VIOLATION
    assert decide(violation, max_attempts=9).verdict is Verdict.FAIL
    assert decide(violation, max_attempts=9, when=[violation]).verdict is Verdict.RETRY


@pytest.mark.parametrize("outcome", [*sorted(NODE_FAULTS), Outcome.PREEMPTED])
def test_what_is_not_the_steps_fault_is_repeated_whatever_max_attempts_and_when_say(outcome):
    assert decide(outcome, max_attempts=1, when=[]).verdict is Verdict.RETRY


def test_node_faults_and_preemptions_have_bounds_of_their_own():
    counts = Counts(node_faults=NODE_FAULT_LIMIT - 1)
    assert decide(Outcome.NODE_LOST, counts=counts).verdict is Verdict.RETRY
    over = decide(Outcome.NODE_LOST, counts=Counts(node_faults=NODE_FAULT_LIMIT))
    assert (over.verdict, over.reason) == (Verdict.FAIL, "NODE_FAULTS_EXHAUSTED")
    over = decide(Outcome.PREEMPTED, counts=Counts(preemptions=PREEMPTION_LIMIT))
    assert (over.verdict, over.reason) == (Verdict.FAIL, "PREEMPTIONS_EXHAUSTED")


@pytest.mark.parametrize(
    "outcome", [o for o in Outcome if o not in {Outcome.SUCCEEDED, Outcome.CANCELLED}]
)
def test_under_repeat_never_nothing_that_may_have_begun_is_repeated(outcome):
    decision = decide(outcome, repeat="never", began=True, max_attempts=100, when=list(Outcome))
    expected = {**dict.fromkeys(NODE_FAULTS, "UNRESOLVED"), Outcome.PREEMPTED: "UNRESOLVED"}
    assert decision.verdict == expected.get(outcome, "FAIL")
    assert decision.reason == outcome


@pytest.mark.parametrize("outcome", [Outcome.NOT_STARTED, Outcome.LIMIT_NOT_APPLIED])
def test_under_repeat_never_what_provably_never_began_is_repeated(outcome):
    assert decide(outcome, repeat="never", began=False).verdict is Verdict.RETRY


def test_counts_tell_own_failures_faults_in_a_row_and_preemptions_apart():
    counts = Counts()
    for outcome in (Outcome.NODE_LOST, Outcome.LEASE_LOST):
        counts = count(counts, outcome)
    assert counts == Counts(node_faults=2)
    counts = count(counts, Outcome.FAILED)
    assert counts == Counts(own=1, node_faults=0)
    counts = count(count(counts, Outcome.OOM_NODE), Outcome.PREEMPTED)
    assert counts == Counts(own=1, node_faults=0, preemptions=1)


@given(
    backoff=st.builds(
        Backoff,
        initial_ms=st.integers(0, 10**7),
        factor_permille=st.integers(1_000, 100_000),
        max_ms=st.integers(0, 10**9),
        jitter_permille=st.integers(0, 1_000),
    ),
    retry=st.integers(1, 100),
    draw=st.integers(0, 999),
)
@example(backoff=Backoff(), retry=100, draw=999)
def test_backoff_is_exact(backoff, retry, draw):
    grown = backoff.initial_ms * Fraction(backoff.factor_permille, 1_000) ** (retry - 1)
    base = int(min(Fraction(backoff.max_ms), grown))
    delay = backoff_ms(backoff, retry, draw)
    assert delay == base + int(Fraction(base * backoff.jitter_permille * draw, 1_000_000))
    assert delay <= backoff.max_ms * 2


# -- lease -----------------------------------------------------------------------------------------

NS = 1_000_000


@given(
    ttl=st.integers(MIN_TTL_MS, 24 * 3_600_000),
    grace=st.integers(0, 600_000),
    sent=st.integers(0, 10**15),
    kill=st.integers(0, KILL_BOUND_MS),
    drift_ppm=st.integers(-500, 500),
)
def test_the_kill_is_complete_before_the_step_is_given_away(ttl, grace, sent, kill, drift_ppm):
    """In true time; the node's clock runs ``drift_ppm`` too fast or slow, the server's as much
    the other way. At worst, the activity closes in the moment the last heartbeat left.
    """
    closed = sent
    deadline = deadline_ns(sent * NS, ttl, margin_ms(ttl))
    node_waits = Fraction(deadline, NS) - sent
    node_done = sent + node_waits / (1 - Fraction(drift_ppm, 10**6)) + kill
    timer = reassign_after_ms(closed, ttl, grace) - closed
    given_away = closed + timer / (1 + Fraction(drift_ppm, 10**6))
    assert node_done <= given_away


@given(ttl=st.integers(MIN_TTL_MS, 24 * 3_600_000))
def test_a_lease_survives_the_loss_of_two_renewals(ttl):
    interval = heartbeat_interval_ms(ttl)
    assert 0 < 3 * interval < ttl - margin_ms(ttl) + interval
    assert 0 < margin_ms(ttl) < ttl // 4


def test_the_default_lease_in_figures():
    assert margin_ms(30_000) == 5_030
    assert heartbeat_interval_ms(30_000) == 7_500
    assert deadline_ns(7, 30_000, 5_030) == 7 + 24_970 * NS
    assert reassign_after_ms(1_000, 30_000, 10_000) == 41_000
    assert reassign_after_ms(1_000, 30_000, 0) == 31_000 + KILL_BOUND_MS


# -- classification --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({"exit_code": 0}, "SUCCEEDED"),
        ({"exit_code": 1}, "FAILED"),
        ({"exit_code": 127}, "FAILED"),
        ({"exec_failed": True, "exit_code": 127}, "EXEC_FAILED"),
        ({"signal": 9}, "SIGNALED"),
        ({"signal": 15}, "SIGNALED"),
        ({}, "UNKNOWN"),
        ({"signal": 9, "oom": 1, "oom_kill": 1}, "OOM_KILLED"),
        ({"exit_code": 137, "oom": 1, "oom_kill": 1, "oom_group_kill": 1}, "OOM_KILLED"),
        ({"signal": 9, "oom": 0, "oom_kill": 1}, "OOM_NODE"),
        ({"signal": 9, "oom": 1, "oom_kill": 0}, "SIGNALED"),
        ({"exit_code": 0, "oom": 1, "oom_kill": 1}, "SUCCEEDED"),
        ({"exit_code": 0, "oom": 1, "oom_kill": 1, "oom_group_kill": 1}, "SUCCEEDED"),
        ({"timed_out": True, "signal": 15}, "TIMED_OUT"),
        ({"timed_out": True, "exit_code": 0}, "TIMED_OUT"),
        ({"cancelled": True, "timed_out": True, "signal": 9}, "CANCELLED"),
        ({"preempted": True, "signal": 15}, "PREEMPTED"),
        ({"lease_lost": True, "cancelled": True, "signal": 9}, "LEASE_LOST"),
        ({"limit_failed": True, "exec_failed": True}, "LIMIT_NOT_APPLIED"),
    ],
)
def test_the_first_class_that_matches_wins(facts, outcome):
    assert classify(EndFacts(**facts)) == outcome


def test_flags_are_told_beside_the_class():
    facts = EndFacts(exit_code=0, oom=1, oom_kill=2, leftovers_killed=True, log_truncated=True)
    assert flags(facts) == [Flag.OOM_OBSERVED, Flag.LEFTOVERS_KILLED, Flag.LOG_TRUNCATED]
    assert flags(EndFacts(exit_code=0)) == []
    both = EndFacts(exit_code=0, pids_limit_hit=True, kill_incomplete=True)
    assert flags(both) == [Flag.PIDS_LIMIT_HIT, Flag.KILL_INCOMPLETE]
