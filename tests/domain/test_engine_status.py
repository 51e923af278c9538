"""The status: size, round trip, and the table for Temporal's UI."""

import json

import pytest
from support.engine import Desk, dag, step

from headbay.domain.attempt import ArtifactsRef, LogRef, OutputRef, Usage
from headbay.domain.dag import RetryPolicy
from headbay.domain.lifecycle import StepState
from headbay.domain.outcome import Flag, Outcome
from headbay.domain.status import (
    CancelStatus,
    StepStatus,
    WorkloadStatus,
    count_states,
    is_finished,
    markdown,
    to_json,
)
from headbay.domain.workload.events import Closed, Granted, Started
from headbay.domain.workload.machine import Machine

EVERYTHING = {
    "began": True,
    "message": "m" * 300,
    "flags": [Flag.LEFTOVERS_KILLED],
    "started_ms": 1_764_000_000_000,
    "ended_ms": 1_764_000_060_000,
    "usage": Usage(
        wall_ms=60_000,
        cpu_user_us=59_000_000,
        cpu_system_us=1_000_000,
        memory_peak_bytes=1 << 33,
        pids_peak=17,
        io_read_bytes=1 << 30,
        io_write_bytes=1 << 30,
    ),
    "log": LogRef(path="/var/lib/headbay/nodes/n1/logs/" + "x" * 60, seen_bytes=1, kept_bytes=1),
}


def size(status: WorkloadStatus) -> int:
    return len(json.dumps(to_json(status), separators=(",", ":")))


def ran(steps, outcome, **fields) -> WorkloadStatus:
    """A workload whose steps all ended alike."""
    machine = Machine.new("w" * 40, dag(*steps), 0)
    machine.handle(Started(), 0)
    desk = Desk(dag("a"))
    for fence, definition in enumerate(steps, 1_764_000_000_000):
        (start,) = machine.handle(Granted(desk.make_grant(definition.name, 1, fence)), fence)
        machine.handle(Closed(desk.result(start.spec, outcome, **fields)), fence)
    assert machine.finished
    return machine.status


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_a_status_of_a_thousand_steps_with_everything_in_it_stays_below_700_kb(outcome):
    steps = [step(f"a-long-step-name-{i}", display="d" * 120) for i in range(1_000)]
    left = {
        "output": OutputRef(sha256="a" * 64, size_bytes=2_000, inline=True, value="v" * 1_998),
        "artifacts": ArtifactsRef(sha256="b" * 64, files=9, size_bytes=1 << 30),
    }
    status = ran(steps, outcome, **EVERYTHING, **left)
    assert size(status) < 700_000
    assert len(status.steps) == 1_000


def test_a_small_status_tells_everything():
    output = OutputRef(sha256="a" * 64, size_bytes=4, inline=True, value=None)
    status = ran([step("a", display="make")], Outcome.SUCCEEDED, **EVERYTHING, output=output)
    (only,) = status.steps
    (attempt,) = only.attempts
    assert (only.display, only.output) == ("make", output)
    assert attempt.usage == EVERYTHING["usage"]
    assert attempt.log == EVERYTHING["log"]
    assert attempt.queued_ms is not None
    assert attempt.granted_ms is not None
    assert attempt.message.endswith("…")
    assert attempt.flags == [Flag.LEFTOVERS_KILLED]


def test_output_values_beyond_the_budget_are_told_by_hash_only():
    steps = [step(f"s{i}") for i in range(40)]
    output = OutputRef(sha256="a" * 64, size_bytes=2_000, inline=True, value="v" * 1_998)
    status = ran(steps, Outcome.SUCCEEDED, output=output)
    inline = [s.output.inline for s in status.steps]
    assert inline == [True] * 32 + [False] * 8
    assert all(s.output.sha256 == "a" * 64 for s in status.steps)


def test_of_very_many_attempts_only_each_steps_last_is_listed():
    desk = Desk(dag(*(step(f"s{i}", retry=RetryPolicy(max_attempts=100)) for i in range(12))))
    machine, fence, now = desk.machine, desk.fence, desk.now_ms
    for n in range(12):
        for attempt in range(1, 101):
            fence += 1
            (*_, start) = machine.handle(Granted(desk.make_grant(f"s{n}", attempt, fence)), now)
            machine.handle(Closed(desk.result(start.spec, Outcome.FAILED)), now)
            now += 10**6
            for event in machine.due(now):
                machine.handle(event, now)
    status = machine.status
    assert [len(s.attempts) for s in status.steps] == [1] * 12
    assert [s.attempts_made for s in status.steps] == [100] * 12
    assert status.steps[0].attempts[0].attempt == 100


def test_json_without_defaults_reads_back_as_the_same_status():
    desk = Desk(dag("a", "b", "c", edges=["a>b"]))
    desk.run("a", Outcome.FAILED, message="no")
    desk.grant("c")
    desk.lose("c")
    for status in (desk.machine.status, WorkloadStatus(id="w", name="n")):
        told = to_json(status)
        assert told["schema_version"] == 1
        assert told["status"] == "RUNNING"
        assert WorkloadStatus.model_validate_json(json.dumps(told)) == status


def test_a_reader_tolerates_fields_that_it_does_not_know():
    told = {"id": "w", "name": "n", "new": 1, "steps": [{"name": "a", "base": "a", "new": 2}]}
    assert WorkloadStatus.model_validate(told).steps[0].name == "a"


def test_counts_leave_out_states_without_steps():
    states = [StepState.FAILED, StepState.SUCCEEDED, StepState.FAILED]
    assert list(count_states(states).items()) == [("SUCCEEDED", 1), ("FAILED", 2)]


def test_matrix_tasks_depend_on_document_steps_by_one_name():
    tests = [step(f"test-{i}").model_copy(update={"base": "test"}) for i in range(1, 6)]
    desk = Desk(dag(*tests, "join", edges=[f"test-{i}>join" for i in range(1, 6)]))
    assert desk.step("join").depends_on == ["test"]


def test_is_finished_says_whether_a_state_can_change():
    assert not is_finished(StepStatus(name="a", base="a", state=StepState.UNRESOLVED))
    assert is_finished(StepStatus(name="a", base="a", state=StepState.SKIPPED))


# -- the table -------------------------------------------------------------------------------------


def test_the_table_lists_steps_and_attempts():
    desk = Desk(dag("build", step("test", retry=RetryPolicy(max_attempts=2)), edges=["build>test"]))
    desk.run("build")
    desk.run("test", Outcome.FAILED, exit_code=3, message="3 tests failed")
    desk.fire(next(kind for kind, _ in desk.timers), "test")
    desk.grant("test")
    desk.lose("test")
    lines = markdown(desk.machine.status).splitlines()
    assert lines[0] == "**test**: RUNNING"
    assert "| build | SUCCEEDED | 1 | n1 | SUCCEEDED |  |" in lines
    assert "| test |  | 1 | n1 | FAILED (exit 3) | 3 tests failed |" in lines
    assert "| test | RUNNING | 2 | n1 | in doubt |  |" in lines


def test_the_table_says_who_cancelled_and_why_a_step_was_skipped():
    desk = Desk(dag("a", "b", edges=["a>b"]))
    desk.run("a", Outcome.SIGNALED, signal=11)
    text = markdown(desk.machine.status)
    assert "| b | SKIPPED (UPSTREAM_NOT_SUCCEEDED) | | | | a is FAILED |" in text
    assert "SIGNALED (signal 11)" in text
    status = WorkloadStatus(
        id="w", name="n", cancel=CancelStatus(by="ann", reason="wrong", at_ms=1)
    )
    assert "cancel requested by ann: wrong" in markdown(status)


def test_text_cannot_break_out_of_the_table():
    nasty = "a|b\n| c <script> `x` \\| end"
    desk = Desk(dag("a"))
    desk.run("a", Outcome.FAILED, message=nasty)
    row = markdown(desk.machine.status).splitlines()[-1]
    assert row.endswith(r"| a\|b \| c &lt;script> 'x' \\\| end |")


def test_a_large_workload_is_shown_as_counts_and_the_steps_one_looks_for():
    desk = Desk(dag(*(f"s{i:03}" for i in range(200))))
    for i in range(100, 180):
        desk.grant(f"s{i:03}")
    desk.run("s199", Outcome.FAILED)
    text = markdown(desk.machine.status)
    assert "200 steps: 119 QUEUED, 80 RUNNING, 1 FAILED" in text
    rows = [line for line in text.splitlines() if line.startswith("| s")]
    assert len(rows) == 60
    assert rows[0].startswith("| s199 | FAILED")
    assert len(text) < 10_000
