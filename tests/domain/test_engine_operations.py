"""Cancel in every state, resolve, and the answers they get; continue-as-new under way."""

import zlib

import pytest
from support.engine import START_MS, Desk, dag, step

from headbay.domain.dag import RetryPolicy
from headbay.domain.outcome import Outcome
from headbay.domain.workload import Machine, SnapshotError
from headbay.domain.workload.events import CancelRequested, DrainStarted, Granted, Started
from headbay.domain.workload.instructions import (
    ReleaseCapacity,
    StopAttempt,
    TimerKind,
    WithdrawRequest,
)

RETRY = TimerKind.RETRY


# -- cancel ----------------------------------------------------------------------------------------


def test_cancel_ends_what_was_never_dispatched_at_once():
    desk = Desk(dag("a", "b", "c", edges=["a>b"], max_parallel=1))
    answer = desk.cancel("ann", "wrong branch")
    assert (answer.accepted, answer.code) == (True, "ACCEPTED")
    assert desk.states() == {"a": "CANCELLED", "b": "CANCELLED", "c": "CANCELLED"}
    status = desk.finished
    assert (status.status, status.reason) == ("CANCELLED", "CANCEL_REQUESTED")
    assert (status.cancel.by, status.cancel.reason) == ("ann", "wrong branch")
    assert status.cancel.at_ms == START_MS


def test_cancel_withdraws_what_is_queued_and_gives_back_a_grant_that_crosses_it():
    desk = Desk(dag("a", "b"))
    desk.grant("b")
    crossing = desk.make_grant("a", 1)
    desk.cancel()
    assert desk.requested() == []
    assert desk.deliver(crossing) == [ReleaseCapacity(crossing.allocation)]
    assert desk.finished is None
    desk.end("b", Outcome.CANCELLED)
    assert desk.finished.status == "CANCELLED"


def test_cancel_stops_what_runs_and_waits_for_its_end():
    desk = Desk(dag("a", "b", edges=["a>b"]))
    spec = desk.grant("a")
    desk.cancel()
    (stop,) = desk.stops
    assert (stop.order.fence, stop.order.reason) == (spec.fence, "CANCELLED")
    assert (stop.node, stop.epoch) == ("n1", 1)
    assert desk.states() == {"a": "RUNNING", "b": "CANCELLED"}
    desk.end("a", Outcome.CANCELLED)
    assert desk.finished.status == "CANCELLED"


def test_a_step_that_succeeded_before_the_stop_took_effect_stays_succeeded():
    desk = Desk(dag("a"))
    desk.grant("a")
    desk.cancel()
    desk.end("a")
    assert desk.finished.status == "SUCCEEDED", "nothing was cancelled"
    assert desk.finished.cancel.by == "ann"


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.CANCELLED, "CANCELLED"),
        (Outcome.LEASE_LOST, "CANCELLED"),
        (Outcome.NODE_LOST, "CANCELLED"),
        (Outcome.NOT_STARTED, "CANCELLED"),
        (Outcome.UNKNOWN, "CANCELLED"),
        (Outcome.PREEMPTED, "CANCELLED"),
        (Outcome.FAILED, "FAILED"),
        (Outcome.TIMED_OUT, "FAILED"),
        (Outcome.SIGNALED, "FAILED"),
    ],
)
@pytest.mark.parametrize("repeat", ["safe", "never"])
def test_nothing_is_repeated_or_left_open_after_a_cancel(outcome, state, repeat):
    desk = Desk(dag(step("a", repeat=repeat, retry=RetryPolicy(max_attempts=9))))
    desk.grant("a")
    desk.cancel()
    desk.end("a", outcome)
    assert desk.state("a") == state
    assert desk.finished.status == state


def test_cancel_waits_for_proof_of_what_is_in_doubt():
    desk = Desk(dag("a"))
    spec = desk.grant("a")
    desk.lose("a")
    desk.cancel()
    assert desk.stops == []
    assert desk.state("a") == "RUNNING"
    assert spec.allocation not in desk.released
    desk.lease_out("a")
    assert desk.finished.status == "CANCELLED"
    assert desk.step("a").attempts[0].outcome == "LEASE_LOST"


def test_a_stop_that_is_never_confirmed_ends_with_the_lease():
    desk = Desk(dag("a"))
    desk.grant("a")
    desk.cancel()
    desk.lose("a")
    desk.lease_out("a")
    assert desk.finished.status == "CANCELLED"


def test_cancel_takes_back_a_retry_that_waits():
    desk = Desk(dag(step("a", retry=RetryPolicy(max_attempts=2))))
    desk.run("a", Outcome.FAILED)
    assert (RETRY, "a") in desk.timers
    desk.cancel()
    assert desk.timers == {}
    assert desk.finished.status == "CANCELLED"


def test_cancel_ends_an_unresolved_step():
    desk = Desk(dag(step("a", repeat="never")))
    desk.run("a", Outcome.UNKNOWN)
    desk.cancel()
    assert desk.finished.status == "CANCELLED"
    assert desk.step("a").attempts[0].outcome == "UNKNOWN"


def test_cancel_keeps_what_has_ended():
    desk = Desk(dag("ok", "bad", "c"))
    desk.run("ok")
    desk.run("bad", Outcome.FAILED)
    desk.cancel()
    assert desk.states() == {"ok": "SUCCEEDED", "bad": "FAILED", "c": "CANCELLED"}
    assert desk.finished.status == "FAILED"


def test_cancel_twice_changes_nothing_more():
    desk = Desk(dag("a"))
    desk.grant("a")
    desk.cancel("ann")
    answer = desk.cancel("bob")
    assert (answer.accepted, answer.code) == (True, "ALREADY_CANCELLED")
    assert len(desk.stops) == 1
    desk.end("a", Outcome.CANCELLED)
    assert desk.finished.cancel.by == "ann"


def test_cancel_after_the_end_is_refused():
    desk = Desk(dag("a"))
    desk.run("a")
    answer = desk.cancel()
    assert (answer.accepted, answer.code) == (False, "ALREADY_FINISHED")
    assert desk.machine.status.cancel is None


def test_cancel_before_the_start_runs_nothing():
    machine = Machine.new("w", dag("a"), 0)
    machine.handle(CancelRequested("ann"), 0)
    (finish,) = machine.handle(Started(), 0)
    assert finish.status.status == "CANCELLED"


def test_an_answer_carries_the_ticket_of_its_event():
    desk = Desk(dag("a"))
    (*_, answer, _) = desk.tell(CancelRequested("ann", ticket=42))
    assert answer.ticket == 42


# -- resolve ---------------------------------------------------------------------------------------


def unresolved(**fields):
    desk = Desk(dag(step("a", repeat="never"), "after", edges=["a>after"], **fields))
    desk.run("a", Outcome.UNKNOWN)
    assert desk.state("a") == "UNRESOLVED"
    return desk


def test_resolve_as_success_lets_the_dependents_run():
    desk = unresolved()
    assert desk.resolve("a", "success").accepted
    assert (desk.state("a"), desk.step("a").reason) == ("SUCCEEDED", "RESOLVED")
    assert desk.step("a").attempts[0].outcome == "UNKNOWN", "the record stays what it is"
    desk.run("after")
    assert desk.finished.status == "SUCCEEDED"


def test_resolve_as_failure_fails_the_step():
    desk = unresolved()
    assert desk.resolve("a", "failure").accepted
    assert desk.finished.status == "FAILED"
    assert desk.state("after") == "SKIPPED"


def test_resolve_as_retry_runs_it_once_more():
    desk = unresolved()
    assert desk.resolve("a", "retry").accepted
    assert desk.requested() == ["a"]
    assert desk.run("a").attempt == 2
    desk.run("after")
    assert desk.finished.status == "SUCCEEDED"


def test_resolve_is_audited():
    desk = unresolved()
    desk.resolve("a", "failure")
    (event,) = [e for e in desk.machine.journal if e.kind == "StepResolved"]
    assert event.data == {"by": "ann", "verdict": "failure", "reason": "looked"}


@pytest.mark.parametrize(
    ("name", "verdict", "code"),
    [
        ("nope", "retry", "UNKNOWN_STEP"),
        ("after", "retry", "NOT_UNRESOLVED"),
        ("a", "maybe", "UNKNOWN_VERDICT"),
    ],
)
def test_a_resolve_that_makes_no_sense_is_refused_and_changes_nothing(name, verdict, code):
    desk = unresolved()
    before = desk.machine.status
    answer = desk.resolve(name, verdict)
    assert (answer.accepted, answer.code) == (False, code)
    assert desk.machine.status == before


def test_resolve_after_the_end_is_refused():
    desk = unresolved()
    desk.resolve("a", "failure")
    assert desk.resolve("a", "retry").code == "NOT_UNRESOLVED"


def test_a_workload_that_stopped_after_a_failure_retries_nothing():
    desk = Desk(dag(step("a", repeat="never"), "bad", on_failure="stop"))
    desk.run("a", Outcome.UNKNOWN)
    desk.run("bad", Outcome.FAILED)
    assert desk.finished is None, "an operator's word is awaited"
    assert desk.resolve("a", "retry").code == "STOPPED_AFTER_FAILURE"
    assert desk.resolve("a", "success").accepted
    assert desk.finished.status == "FAILED"


# -- continue-as-new -------------------------------------------------------------------------------


def test_a_draining_run_requests_and_starts_nothing():
    desk = Desk(dag("a", "b", "c", edges=["a>c"]))
    desk.grant("a")
    assert desk.machine.holding
    assert desk.tell(DrainStarted()) == [WithdrawRequest("b", 1)]
    crossing = desk.make_grant("b", 1)
    assert desk.deliver(crossing) == [ReleaseCapacity(crossing.allocation)]
    desk.end("a")
    assert desk.requested() == []
    assert not desk.machine.holding


def test_the_new_run_asks_for_everything_again():
    desk = Desk(dag("a", "b", "c", edges=["a>c"]))
    desk.grant("a")
    desk.tell(DrainStarted())
    desk.end("a")
    desk.continue_as_new()
    assert desk.requested() == ["b", "c"]
    for name in ("b", "c"):
        desk.run(name)
    assert desk.finished.status == "SUCCEEDED"
    assert desk.finished.submitted_ms == START_MS


def test_the_new_run_goes_on_waiting_for_leases_and_retries():
    desk = Desk(dag("a", step("b", retry=RetryPolicy(max_attempts=2))))
    desk.grant("a")
    desk.lose("a")
    desk.run("b", Outcome.FAILED)
    timers = dict(desk.timers)
    desk.tell(DrainStarted())
    desk.continue_as_new()
    assert desk.timers == timers
    assert desk.machine.holds(), "its capacity is not free yet"
    desk.fire(RETRY, "b")
    desk.run("b")
    desk.lease_out("a")
    desk.fire(RETRY, "a")
    desk.run("a")
    assert desk.finished.status == "SUCCEEDED"


def test_an_activity_that_the_change_of_runs_cut_off_is_in_doubt():
    desk = Desk(dag("a"))
    spec = desk.grant("a")
    desk.continue_as_new()
    assert desk.step("a").attempts[0].state == "IN_DOUBT"
    desk.late_exit(spec, Outcome.SUCCEEDED)
    assert desk.finished.status == "SUCCEEDED"


def test_a_cancel_survives_the_change_of_runs():
    desk = Desk(dag("a"))
    desk.grant("a")
    desk.lose("a")
    desk.cancel()
    desk.tell(DrainStarted())
    desk.continue_as_new()
    desk.lease_out("a")
    assert desk.finished.status == "CANCELLED"


def test_a_stop_after_failure_survives_the_change_of_runs():
    desk = Desk(dag("a", "bad", on_failure="stop"))
    desk.grant("a")
    desk.lose("a")
    desk.run("bad", Outcome.FAILED)
    desk.tell(DrainStarted())
    desk.continue_as_new()
    desk.lease_out("a")
    assert desk.state("a") == "SKIPPED"
    assert desk.finished.status == "FAILED"


def test_the_node_of_a_shared_workspace_survives_the_change_of_runs():
    desk = Desk(dag("a", "b", workspace="shared"))
    desk.run("a")
    desk.tell(DrainStarted())
    desk.continue_as_new()
    assert desk.requests["b", 1].node == "n1"


def test_a_packed_state_is_small():
    names = [f"s{i}" for i in range(1_000)]
    machine = Machine.new("w", dag(*names), 0)
    machine.handle(Started(), 0)
    desk = Desk(dag("a"))
    for fence, name in enumerate(names, 1):
        machine.handle(Granted(desk.make_grant(name, 1, fence)), fence)
    assert len(machine.dump()) < 200_000


@pytest.mark.parametrize(
    "packed",
    [b"", b"nonsense", zlib.compress(b"{}"), zlib.compress(b"[" * 100), b"torn"],
)
def test_bytes_that_are_no_packed_state_are_refused(packed):
    with pytest.raises(SnapshotError):
        Machine.load(packed)


def test_a_torn_or_foreign_packed_state_is_refused():
    packed = Machine.new("w", dag("a"), 0).dump()
    with pytest.raises(SnapshotError, match="torn"):
        Machine.load(packed[:-5])
    newer = zlib.decompress(packed).replace(b'"version":1,"id"', b'"version":2,"id"')
    with pytest.raises(SnapshotError, match="version 2"):
        Machine.load(zlib.compress(newer))


def test_a_stop_is_an_order_to_one_fence_only():
    desk = Desk(dag("a"))
    desk.run("a", Outcome.NODE_LOST)
    desk.fire(RETRY, "a")
    spec = desk.grant("a")
    stops = [i for i in desk.tell(CancelRequested("ann")) if isinstance(i, StopAttempt)]
    assert [(s.order.attempt, s.order.fence) for s in stops] == [(2, spec.fence)]
