"""Attempts: retries, unproven closures, late exits, stale fences, grants that nobody waits for."""

import pytest
from support.engine import START_MS, Desk, dag, step

from headbay.domain.attempt import ArtifactsRef, OutputRef
from headbay.domain.dag import Backoff, RetryPolicy
from headbay.domain.errors import BrokenInvariantError
from headbay.domain.lifecycle import StepState
from headbay.domain.outcome import Outcome
from headbay.domain.taint import Toleration
from headbay.domain.workload.events import (
    Closed,
    ClosedUnproven,
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
from headbay.domain.workload.instructions import (
    AbandonAttempt,
    ReleaseCapacity,
    RequestCapacity,
    TimerKind,
)

LEASE, RETRY = TimerKind.LEASE, TimerKind.RETRY


def never(name: str, **fields):
    return step(name, repeat="never", **fields)


# -- the order to a node ---------------------------------------------------------------------------


def test_the_launch_spec_says_what_the_step_and_the_grant_say():
    one = step(
        "a",
        env={"K": "v"},
        secrets={"TOKEN": "pypi"},
        timeout_ms=5_000,
        grace_ms=1_000,
        lease_ms=60_000,
        artifacts=["dist/*"],
        workdir="sub",
        require="enforced",
        node_selector={"zone": "x"},
        tolerations=[Toleration(key="gpu", operator="Exists")],
    )
    desk = Desk(dag(one, labels={"team": "x"}, queue="ci", priority=7))
    request = desk.requests["a", 1]
    assert (request.queue, request.priority, request.submitted_ms) == ("ci", 7, START_MS)
    assert (request.lease_ms, request.grace_ms) == (60_000, 1_000)
    assert (request.require, request.node_selector) == ("enforced", {"zone": "x"})
    assert request.tolerations == [Toleration(key="gpu", operator="Exists")]
    spec = desk.grant("a")
    grant = desk.grants[spec.allocation]
    assert (spec.workload, spec.step, spec.attempt, spec.fence) == ("w1", "a", 1, grant.fence)
    assert (spec.node, spec.epoch, spec.resources) == ("n1", 1, {"cpu": 1_000})
    assert (spec.argv, spec.env, spec.secrets) == (["true"], {"K": "v"}, {"TOKEN": "pypi"})
    assert (spec.timeout_ms, spec.artifacts, spec.workdir) == (5_000, ["dist/*"], "sub")
    assert (spec.require, spec.labels) == ("enforced", {"team": "x"})


@pytest.mark.parametrize(("files", "version"), [({}, 2), ({"KEY": "pem"}, 3)])
def test_only_an_order_with_secret_files_asks_for_a_node_that_knows_them(files, version):
    """Nodes of the version before would run it without the file; all else they may still run."""
    desk = Desk(dag(step("a", secrets={"TOKEN": "pypi"}, secret_files=files)))
    spec = desk.grant("a")
    assert (spec.version, spec.secrets, spec.secret_files) == (version, {"TOKEN": "pypi"}, files)


def test_dependents_get_references_to_what_their_upstreams_left():
    desk = Desk(dag("a", "b", "join", edges=["a>join", "b>join"]))
    output = OutputRef(sha256="a" * 64, size_bytes=60_000)
    kept = ArtifactsRef(sha256="b" * 64, files=1, size_bytes=9)
    desk.run("a", output=output, artifacts=kept)
    desk.run("b")
    spec = desk.grant("join")
    assert list(spec.inputs) == ["a", "b"]
    assert (spec.inputs["a"].output, spec.inputs["a"].artifacts) == ("a" * 64, "b" * 64)
    assert (spec.inputs["b"].output, spec.inputs["b"].artifacts) == (None, None)
    assert desk.step("a").output == output
    assert desk.step("a").artifacts == kept


# -- retries ---------------------------------------------------------------------------------------


def test_a_failure_is_retried_after_its_backoff_until_the_attempts_are_used_up():
    retry = RetryPolicy(max_attempts=3, backoff=Backoff(initial_ms=1_000, factor_permille=2_000))
    desk = Desk(dag(step("a", retry=retry)))
    for attempt, delay in ((1, 1_000), (2, 2_000)):
        assert desk.run("a", Outcome.FAILED).attempt == attempt
        assert desk.step("a").reason == "RETRY_SCHEDULED"
        assert desk.requested() == []
        assert desk.timers[RETRY, "a"].at_ms == desk.now_ms + delay
        desk.fire(RETRY, "a")
        assert desk.requested() == ["a"]
    desk.run("a", Outcome.FAILED, exit_code=3)
    assert desk.finished.status == "FAILED"
    last = desk.step("a")
    assert (last.reason, len(last.attempts), last.attempts[-1].exit_code) == ("FAILED", 3, 3)


def test_node_faults_do_not_use_up_attempts():
    desk = Desk(dag(step("a", retry=RetryPolicy(max_attempts=1))))
    for _ in range(9):
        desk.run("a", Outcome.NODE_LOST)
        desk.fire(RETRY, "a")
    desk.run("a")
    assert desk.finished.status == "SUCCEEDED"
    assert desk.step("a").attempts_made == 10


def test_ten_node_faults_in_a_row_fail_the_step():
    desk = Desk(dag("a"))
    for _ in range(9):
        desk.run("a", Outcome.SUPERVISOR_LOST)
        desk.fire(RETRY, "a")
    desk.run("a", Outcome.SUPERVISOR_LOST)
    assert desk.finished.status == "FAILED"
    assert desk.step("a").reason == "NODE_FAULTS_EXHAUSTED"


def test_a_retry_timer_that_fires_early_is_ordered_again():
    desk = Desk(dag(step("a", retry=RetryPolicy(max_attempts=2))))
    desk.run("a", Outcome.FAILED)
    timer = desk.timers[RETRY, "a"]
    desk.tell(RetryDue("a", 2))
    assert desk.requested() == []
    assert desk.timers[RETRY, "a"] == timer
    desk.fire(RETRY, "a")
    assert desk.requested() == ["a"]


def test_two_workloads_draw_different_jitter_and_one_always_the_same():
    backoff = Backoff(initial_ms=1_000_000, max_ms=1_000_000, jitter_permille=1_000)
    retry = RetryPolicy(max_attempts=2, backoff=backoff)

    def delay(workload: str) -> int:
        desk = Desk(dag(step("a", retry=retry)), workload)
        desk.run("a", Outcome.FAILED)
        return desk.timers[RETRY, "a"].at_ms - desk.now_ms

    delays = [delay(f"w{i}") for i in range(20)]
    assert delays == [delay(f"w{i}") for i in range(20)]
    assert len(set(delays)) > 10
    assert all(1_000_000 <= d < 2_000_000 for d in delays)


def test_an_activity_that_no_worker_took_proves_that_nothing_ran():
    desk = Desk(dag(never("a")))
    desk.grant("a")
    desk.never_started("a")
    assert desk.step("a").attempts[0].outcome == "NOT_STARTED"
    desk.fire(RETRY, "a")
    desk.run("a")
    assert desk.finished.status == "SUCCEEDED"


def test_a_cancelled_attempt_that_the_workload_did_not_ask_for_cancels_the_step():
    desk = Desk(dag("a"))
    desk.run("a", Outcome.CANCELLED)
    assert desk.finished.status == "CANCELLED"
    assert desk.finished.reason == "STEP_CANCELLED"


# -- doubt -----------------------------------------------------------------------------------------


def test_an_unproven_closure_frees_nothing_and_repeats_nothing_until_lease_and_grace_ran_out():
    desk = Desk(dag("a"))
    spec = desk.grant("a")
    desk.now_ms += 5_000
    desk.lose("a")
    assert desk.state("a") == "RUNNING"
    assert desk.step("a").attempts[0].state == "IN_DOUBT"
    assert desk.requested() == []
    assert spec.allocation not in desk.released
    assert desk.timers[LEASE, "a"].at_ms == desk.now_ms + spec.lease_ms + spec.grace_ms
    desk.lease_out("a")
    assert spec.allocation in desk.released
    assert desk.step("a").attempts[0].outcome == "LEASE_LOST"
    desk.fire(RETRY, "a")
    assert desk.grant("a").attempt == 2


def test_a_lease_timer_that_fires_early_frees_nothing():
    desk = Desk(dag("a"))
    desk.grant("a")
    spec = desk.lose("a")
    desk.now_ms = desk.timers[LEASE, "a"].at_ms - 1
    desk.tell(LeaseRanOut("a", 1, spec.fence))
    assert desk.step("a").attempts[0].state == "IN_DOUBT"
    assert desk.released == set()
    desk.lease_out("a")
    assert desk.released == {spec.allocation}


def test_an_unproven_closure_told_twice_neither_extends_the_wait_nor_reopens_an_end():
    desk = Desk(dag("a"))
    desk.grant("a")
    spec = desk.lose("a")
    due = desk.timers[LEASE, "a"].at_ms
    desk.now_ms += 5_000
    assert desk.tell(ClosedUnproven("a", 1, spec.fence)) == []
    assert desk.timers[LEASE, "a"].at_ms == due
    desk.lease_out("a")
    assert desk.tell(ClosedUnproven("a", 1, spec.fence)) == []
    assert desk.state("a") == "PENDING"


@pytest.mark.parametrize("how", ["gone", "late_exit"])
def test_a_proof_ends_the_doubt_at_once(how):
    desk = Desk(dag("a"))
    spec = desk.grant("a")
    desk.lose("a")
    getattr(desk, how)(spec, Outcome.SUCCEEDED)
    assert desk.finished.status == "SUCCEEDED"
    assert desk.timers == {}


def test_another_boot_id_proves_that_a_lost_attempt_is_gone():
    desk = Desk(dag(never("a")))
    spec = desk.grant("a")
    desk.lose("a")
    desk.gone(spec, Outcome.NODE_LOST)
    assert desk.state("a") == "UNRESOLVED"
    assert desk.released == {spec.allocation}


def test_a_proof_for_an_open_activity_ends_the_attempt_and_abandons_the_activity():
    desk = Desk(dag("a"))
    spec = desk.grant("a")
    desk.gone(spec, Outcome.LEASE_LOST)
    assert desk.abandoned == [AbandonAttempt("a", 1, spec.fence)]
    assert desk.released == {spec.allocation}
    assert desk.state("a") == "PENDING"


def test_a_completion_beats_the_conclusion_that_the_pool_came_to_before():
    desk = Desk(dag(never("a")))
    spec = desk.grant("a")
    desk.gone(spec, Outcome.LEASE_LOST)
    assert desk.state("a") == "UNRESOLVED"
    desk.tell(Closed(desk.result(spec)))
    assert desk.finished.status == "SUCCEEDED"


def test_under_repeat_never_a_lost_attempt_leaves_the_step_unresolved():
    desk = Desk(dag(never("a", retry=RetryPolicy(max_attempts=5)), "b"))
    desk.grant("a")
    desk.lose("a")
    desk.lease_out("a")
    desk.run("b")
    assert desk.state("a") == "UNRESOLVED"
    assert desk.finished is None
    assert desk.requested() == []


def test_under_repeat_never_a_definite_failure_is_a_failure():
    desk = Desk(dag(never("a", retry=RetryPolicy(max_attempts=5))))
    desk.run("a", Outcome.FAILED)
    assert desk.finished.status == "FAILED"


# -- late exits ------------------------------------------------------------------------------------


def lost(*, repeat: str = "safe", max_attempts: int = 1):
    """A step whose first attempt was presumed lost."""
    desk = Desk(
        dag(
            step("a", repeat=repeat, retry=RetryPolicy(max_attempts=max_attempts)),
            "after",
            edges=["a>after"],
        )
    )
    spec = desk.grant("a")
    desk.lose("a")
    desk.lease_out("a")
    return desk, spec


def test_a_late_success_is_accepted_while_the_retry_waits():
    desk, spec = lost()
    desk.late_exit(spec, Outcome.SUCCEEDED)
    assert desk.state("a") == "SUCCEEDED"
    assert desk.step("a").attempts[0].outcome == "SUCCEEDED"
    assert desk.timers == {}
    assert desk.requested() == ["after"]


def test_a_late_success_is_accepted_while_the_retry_is_queued_and_withdraws_it():
    desk, spec = lost()
    desk.fire(RETRY, "a")
    assert desk.requested() == ["a"]
    desk.late_exit(spec, Outcome.SUCCEEDED)
    assert desk.requested() == ["after"]
    late = desk.make_grant("a", 2)
    assert desk.deliver(late) == [ReleaseCapacity(late.allocation)]


def test_a_late_exit_is_refused_once_a_newer_fence_was_granted():
    desk, spec = lost()
    desk.fire(RETRY, "a")
    desk.grant("a")
    desk.late_exit(spec, Outcome.SUCCEEDED)
    assert desk.state("a") == "RUNNING"
    assert desk.step("a").attempts[0].outcome == "LEASE_LOST"


def test_a_late_exit_is_refused_even_if_the_newer_attempt_was_lost_as_well():
    desk, spec = lost()
    desk.fire(RETRY, "a")
    desk.grant("a")
    desk.lose("a")
    desk.lease_out("a")
    desk.late_exit(spec, Outcome.SUCCEEDED)
    assert desk.state("a") == "PENDING"


def test_a_corrected_end_is_counted_once():
    desk = Desk(dag("a"))
    for _ in range(8):
        desk.run("a", Outcome.SUPERVISOR_LOST)
        desk.fire(RETRY, "a")
    spec = desk.grant("a")
    desk.lose("a")
    desk.lease_out("a")
    desk.late_exit(spec, Outcome.SUPERVISOR_LOST)
    assert desk.state("a") == "PENDING", "that is the ninth node fault, not the tenth"


def test_a_late_failure_is_decided_as_a_failure():
    desk, spec = lost()
    desk.late_exit(spec, Outcome.FAILED)
    assert desk.step("a").reason == "FAILED"
    assert desk.finished.status == "FAILED"


def test_a_late_failure_with_attempts_left_keeps_the_retry_and_counts():
    desk, spec = lost(max_attempts=2)
    desk.late_exit(spec, Outcome.FAILED)
    desk.fire(RETRY, "a")
    desk.run("a", Outcome.FAILED)
    assert desk.finished.status == "FAILED"
    assert desk.step("a").attempts_made == 2


def test_a_late_exit_settles_an_unresolved_step():
    desk, spec = lost(repeat="never")
    assert desk.state("a") == "UNRESOLVED"
    desk.late_exit(spec, Outcome.SUCCEEDED)
    assert desk.state("a") == "SUCCEEDED"


def test_a_late_proof_that_nothing_ran_repeats_even_an_unresolved_step():
    desk, spec = lost(repeat="never")
    desk.late_exit(spec, Outcome.NOT_STARTED)
    assert desk.state("a") == "PENDING"
    desk.fire(RETRY, "a")
    assert desk.requested() == ["a"]


def test_a_late_lease_loss_leaves_an_unresolved_step_unresolved_but_is_recorded():
    desk, spec = lost(repeat="never")
    desk.late_exit(spec, Outcome.LEASE_LOST, message="killed by its own shim")
    assert desk.state("a") == "UNRESOLVED"
    assert desk.step("a").attempts[0].message == "killed by its own shim"


def test_a_late_exit_never_changes_a_terminal_step():
    desk, spec = lost(repeat="never")
    assert desk.resolve("a", "failure").accepted
    desk.late_exit(spec, Outcome.SUCCEEDED)
    assert desk.state("a") == "FAILED"


def test_the_nodes_own_word_is_not_corrected_by_a_second_one():
    desk = Desk(dag("a"))
    spec = desk.run("a", Outcome.LEASE_LOST)
    desk.late_exit(spec, Outcome.SUCCEEDED)
    assert desk.state("a") == "PENDING"


# -- fences ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 1, 1_000_000])
def test_events_with_any_other_fence_change_nothing(offset):
    desk = Desk(dag("a", "b", edges=["a>b"]))
    spec = desk.grant("a")
    other = spec.model_copy(update={"fence": spec.fence + offset})
    before = desk.machine.status
    for event in (
        Closed(desk.result(other)),
        Gone(desk.result(other)),
        LateExit(desk.result(other, Outcome.FAILED)),
        NeverStarted("a", 1, other.fence),
        ClosedUnproven("a", 1, other.fence),
        LeaseRanOut("a", 1, other.fence),
    ):
        assert desk.tell(event) == []
    assert desk.machine.status == before


def test_events_about_unknown_steps_and_attempts_change_nothing():
    desk = Desk(dag("a"))
    spec = desk.grant("a")
    before = desk.machine.status
    for changed in ({"step": "nope"}, {"attempt": 2}, {"attempt": 0}, {"attempt": -1}):
        other = spec.model_copy(update=changed)
        assert desk.tell(Closed(desk.result(other))) == []
        assert desk.tell(Gone(desk.result(other))) == []
    for event in (
        Refused("nope", 1, "X", ""),
        Refused("a", 1, "X", "it is granted already"),
        RetryDue("a", 2),
        RetryDue("nope", 1),
        QueueTimedOut("a", 1),
        QueueTimedOut("nope", 1),
        Started(),
    ):
        assert desk.tell(event) == []
    assert desk.machine.status == before


def test_an_end_told_twice_counts_once():
    desk = Desk(dag(step("a", retry=RetryPolicy(max_attempts=3))))
    spec = desk.run("a", Outcome.FAILED)
    for event in (Closed, Gone, LateExit):
        assert desk.tell(event(desk.result(spec, Outcome.FAILED))) == []
    assert desk.step("a").attempts_made == 1


# -- grants ----------------------------------------------------------------------------------------


def test_the_same_grant_twice_starts_once():
    desk = Desk(dag("a"))
    spec = desk.grant("a")
    assert desk.tell(Granted(desk.grants[spec.allocation])) == []
    desk.end("a")
    assert desk.tell(Granted(desk.grants[spec.allocation])) == [ReleaseCapacity(spec.allocation)]


def test_a_second_grant_for_a_granted_attempt_is_given_back():
    desk = Desk(dag("a"))
    desk.grant("a")
    second = desk.make_grant("a", 1)
    assert desk.deliver(second) == [ReleaseCapacity(second.allocation)]


def test_a_grant_for_a_step_that_is_unknown_is_given_back():
    desk = Desk(dag("a"))
    stray = desk.make_grant("nope", 1)
    assert desk.deliver(stray) == [ReleaseCapacity(stray.allocation)]


def test_a_grant_with_a_lower_fence_is_given_back_and_asked_for_again():
    desk = Desk(dag("a"))
    spec = desk.run("a", Outcome.NODE_LOST)
    desk.fire(RETRY, "a")
    stale = desk.make_grant("a", 2, spec.fence - 1)
    released, asked = desk.deliver(stale)
    assert released == ReleaseCapacity(stale.allocation)
    assert isinstance(asked, RequestCapacity)
    assert desk.requested() == ["a"]
    assert desk.grant("a").attempt == 2


def test_a_grant_that_died_with_its_node_before_it_arrived_is_asked_for_again():
    desk = Desk(dag("a"))
    dead = desk.make_grant("a", 1)
    desk.requests.clear()
    spec = replace_spec(desk, dead)
    (asked,) = desk.tell(Gone(desk.result(spec, Outcome.NODE_LOST)))
    assert asked == RequestCapacity(desk.requests["a", 1])
    assert ReleaseCapacity(dead.allocation) in desk.deliver(dead), "it comes after all"
    assert desk.grant("a").attempt == 1
    desk.end("a")
    assert desk.finished.status == "SUCCEEDED"


def replace_spec(desk, grant):
    twin = Desk(dag("a"))
    twin.fence = grant.fence - 1
    spec = twin.grant("a")
    return spec.model_copy(update={"fence": grant.fence, "allocation": grant.allocation})


def test_a_refusal_fails_the_step_with_the_pools_reason():
    desk = Desk(dag("a", "b", edges=["a>b"]))
    desk.requests.clear()
    desk.tell(Refused("a", 1, "EXCEEDS_EVERY_NODE", "64 CPUs; the largest node has 4"))
    assert desk.step("a").reason == "EXCEEDS_EVERY_NODE"
    assert desk.finished.status == "FAILED"
    assert desk.state("b") == "SKIPPED"


def test_a_restarted_pool_is_asked_again_for_all_that_waits_and_told_what_is_held():
    desk = Desk(dag("a", "b", "c"))
    spec = desk.grant("b")
    asked = desk.tell(PoolRestarted())
    assert [i.request.step for i in asked] == ["a", "c"]
    assert desk.machine.holds() == [desk.grants[spec.allocation]]


def test_a_grant_after_the_end_is_given_back():
    desk = Desk(dag("a"))
    desk.run("a")
    late = desk.make_grant("a", 1)
    assert desk.deliver(late) == [ReleaseCapacity(late.allocation)]


# -- faults ----------------------------------------------------------------------------------------


def test_a_broken_invariant_tells_its_story():
    desk = Desk(dag("a"))
    desk.grant("a")
    books = desk.machine._books
    with pytest.raises(BrokenInvariantError, match=r"(?s)step a .*QUEUED.*Granted a attempt 1"):
        books.move_step(books.steps[0], StepState.SKIPPED)


def test_the_story_is_bounded():
    desk = Desk(dag("a"))
    for _ in range(1_000):
        desk.machine.handle(RetryDue("a", 9), desk.now_ms)
    assert len(desk.machine.story) <= 200


def test_the_sanity_check_notices_cooked_books():
    for cook in (
        lambda b: setattr(b, "active", b.active + 1),
        lambda b: setattr(b, "terminal", 1),
        lambda b: setattr(b.steps[1], "unmet", 0),
        lambda b: setattr(b.steps[0], "state", StepState.PENDING),
        lambda b: setattr(b.steps[0].attempts[0], "grant", None),
        lambda b: setattr(b.steps[0], "fence", 0),
        lambda b: b.settled.append(0),
        lambda b: setattr(b.steps[1], "ready", True),
    ):
        desk = Desk(dag("a", "b", edges=["a>b"]))
        desk.grant("a")
        desk.machine.sanity_check()
        cook(desk.machine._books)
        with pytest.raises(BrokenInvariantError):
            desk.machine.sanity_check()


def test_a_clock_that_was_set_back_stands_still():
    desk = Desk(dag("a"))
    desk.now_ms -= 3_600_000
    desk.grant("a")
    assert desk.machine.status.started_ms == START_MS
