"""Joins, cascades of skips, maxParallel, onFailure."""

import time

import pytest
from support.engine import Desk, dag, step

from headbay.domain.dag import DagDef, Edge, RetryPolicy
from headbay.domain.errors import BrokenInvariantError
from headbay.domain.outcome import Outcome
from headbay.domain.workload.events import Closed, Granted, Started
from headbay.domain.workload.machine import Machine


def test_a_step_is_requested_once_all_its_upstreams_succeeded():
    desk = Desk(dag("a", "b", "join", edges=["a>join", "b>join"]))
    assert desk.requested() == ["a", "b"]
    desk.run("a")
    assert "join" not in desk.requested()
    desk.run("b")
    assert desk.requested() == ["join"]
    desk.run("join")
    assert desk.finished.status == "SUCCEEDED"
    assert desk.finished.counts == {"SUCCEEDED": 3}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED])
def test_all_success_skips_at_the_first_upstream_that_did_not_succeed(outcome):
    desk = Desk(dag("a", "b", "join", "after", edges=["a>join", "b>join", "join>after"]))
    desk.run("a", outcome)
    assert desk.state("b") == "QUEUED"
    assert desk.state("join") == desk.state("after") == "SKIPPED"
    assert desk.step("join").reason == "UPSTREAM_NOT_SUCCEEDED"
    assert desk.step("join").message == f"a is {outcome}"
    assert desk.finished is None
    desk.run("b")
    assert desk.finished.status == outcome


def test_all_done_waits_for_every_upstream_however_it_ends():
    report = step("report", trigger="all_done")
    desk = Desk(dag("a", "b", "c", report, edges=["a>b", "b>report", "c>report"]))
    desk.run("a", Outcome.FAILED)
    assert desk.state("b") == "SKIPPED"
    assert desk.state("report") == "PENDING"
    desk.run("c")
    spec = desk.grant("report")
    assert {name: ref.state for name, ref in spec.inputs.items()} == {
        "b": "SKIPPED",
        "c": "SUCCEEDED",
    }
    desk.end("report")
    assert desk.finished.status == "FAILED"


def test_the_cascade_of_skips_survives_a_chain_of_a_thousand_steps():
    names = [f"s{i}" for i in range(1_000)]
    desk = Desk(dag(*names, edges=[f"s{i}>s{i + 1}" for i in range(999)]))
    desk.run("s0", Outcome.FAILED)
    assert desk.finished.counts == {"FAILED": 1, "SKIPPED": 999}


def test_a_diamond_with_a_doubled_edge_waits_once():
    desk = Desk(dag("a", "b", edges=["a>b", "a>b"]))
    desk.run("a")
    assert desk.requested() == ["b"]


def test_requests_are_made_in_document_order():
    desk = Desk(dag("z", "m", "a"))
    assert desk.requested() == ["z", "m", "a"]


def test_max_parallel_bounds_what_is_requested_and_running():
    names = [f"s{i}" for i in range(6)]
    desk = Desk(dag(*names, max_parallel=2))
    assert desk.requested() == ["s0", "s1"]
    desk.grant("s0")
    assert desk.requested() == ["s1"]
    desk.end("s0")
    assert desk.requested() == ["s1", "s2"]


def test_a_lost_attempt_keeps_its_place_under_max_parallel():
    desk = Desk(dag("a", "b", max_parallel=1))
    desk.grant("a")
    desk.lose("a")
    assert desk.requested() == []
    desk.lease_out("a")
    assert desk.requested() == ["b"], "the retry waits for its delay, so the next step goes first"


def test_a_join_wider_than_max_parallel_is_reached():
    names = [f"s{i}" for i in range(20)]
    desk = Desk(dag(*names, "join", edges=[f"{n}>join" for n in names], max_parallel=1))
    for _ in range(21):
        (name,) = desk.requested()
        desk.run(name)
    assert desk.finished.status == "SUCCEEDED"


def test_on_failure_continue_finishes_independent_branches():
    desk = Desk(dag("a", "b", "b2", edges=["b>b2"]))
    desk.run("a", Outcome.FAILED)
    desk.run("b")
    desk.run("b2")
    assert desk.finished.status == "FAILED"
    assert desk.finished.counts == {"SUCCEEDED": 2, "FAILED": 1}


def test_on_failure_stop_begins_nothing_more_but_lets_running_steps_finish():
    desk = Desk(dag("a", "b", "c", "late", edges=["b>late"], on_failure="stop", max_parallel=3))
    desk.grant("a")
    desk.grant("b")
    assert desk.requested() == ["c"]
    desk.end("a", Outcome.FAILED)
    assert desk.states() == {"a": "FAILED", "b": "RUNNING", "c": "SKIPPED", "late": "SKIPPED"}
    assert desk.step("c").reason == "STOPPED_AFTER_FAILURE"
    assert desk.requested() == []
    desk.end("b")
    assert desk.state("b") == "SUCCEEDED"
    assert desk.finished.status == "FAILED"


def test_on_failure_stop_ends_waiting_retries():
    retry = RetryPolicy(max_attempts=3)
    desk = Desk(dag(step("own", retry=retry), step("lost", retry=retry), "bad", on_failure="stop"))
    desk.run("own", Outcome.TIMED_OUT)
    desk.run("lost", Outcome.NODE_LOST)
    desk.run("bad", Outcome.FAILED)
    assert desk.step("own").state == "FAILED"
    assert desk.step("own").reason == "TIMED_OUT"
    assert desk.step("lost").state == "SKIPPED"
    assert desk.finished.status == "FAILED"


def test_on_failure_stop_does_not_retry_what_still_runs():
    desk = Desk(dag(step("a", retry=RetryPolicy(max_attempts=3)), "bad", "c", on_failure="stop"))
    desk.grant("a")
    desk.grant("c")
    desk.run("bad", Outcome.FAILED)
    desk.end("a", Outcome.FAILED)
    assert desk.state("a") == "FAILED"
    desk.end("c", Outcome.NODE_LOST)
    assert desk.state("c") == "SKIPPED"
    assert desk.finished.status == "FAILED"


def test_a_shared_workspace_keeps_all_steps_on_the_first_granted_node():
    desk = Desk(dag("a", "b", workspace="shared"))
    assert desk.requested() == ["a"]
    desk.grant("a")
    assert desk.requests["b", 1].node == "n1"


def test_a_pinned_workload_asks_for_its_node():
    desk = Desk(dag("a", "b", workspace="shared", pin_node="home", base_dir="/src"))
    assert [request.node for request in desk.requests.values()] == ["home", "home"]
    assert desk.grant("a").base_dir == "/src"


def test_a_queue_timeout_fails_the_step_and_withdraws_its_request():
    desk = Desk(dag(step("a", queue_timeout_ms=5_000), "b"))
    desk.fire(next(k for k, n in desk.timers if n == "a"), "a")
    assert desk.step("a").reason == "QUEUE_TIMEOUT"
    assert desk.requested() == ["b"]


def test_a_grant_disarms_the_queue_timeout():
    desk = Desk(dag(step("a", queue_timeout_ms=5_000)))
    desk.grant("a")
    assert desk.timers == {}


@pytest.mark.parametrize(
    "broken",
    [
        DagDef(name="x", steps=[step("a"), step("a")]),
        DagDef(name="x", steps=[step("a")], edges=[Edge(upstream="a", step="a")]),
        DagDef(name="x", steps=[step("a")], edges=[Edge(upstream="b", step="a")]),
        dag("a", "b", edges=["a>b", "b>a"]),
    ],
)
def test_a_dag_that_the_compiler_must_refuse_is_a_broken_invariant(broken):
    with pytest.raises(BrokenInvariantError):
        Machine.new("w", broken, 0)


def test_an_event_of_a_workload_of_1024_steps_costs_well_under_a_millisecond():
    names = [f"s{i:04}" for i in range(1_023)]
    wide = dag(*names, "join", edges=[f"{n}>join" for n in names])
    begun = time.perf_counter()
    machine = Machine.new("w", wide, 0)
    asked = machine.handle(Started(), 0)
    desk = Desk(dag("a"))
    events = 1
    for fence, request in enumerate(asked, 1):
        grant = desk.make_grant(request.request.step, 1, fence)
        (start,) = machine.handle(Granted(grant), fence)
        machine.handle(Closed(desk.result(start.spec)), fence)
        events += 2
    spent_us = (time.perf_counter() - begun) * 1e6
    assert machine.status.counts == {"SUCCEEDED": 1_023, "QUEUED": 1}
    assert spent_us / events < 500
