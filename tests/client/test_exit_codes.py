"""Exit codes: the contract with scripts."""

import pytest

from headbay.client.cli.exits import exit_code
from headbay.domain.outcome import Outcome
from headbay.domain.status import AttemptStatus, StepStatus, WorkloadStatus


def workload(status, *steps, reason=""):
    return WorkloadStatus(id="w", name="w", status=status, steps=list(steps), reason=reason)


def step(state, outcome=None, *, name="s", reason="", started=True, **attempt):
    tries = []
    if outcome is not None:
        started_ms = 1 if started else None
        tries = [AttemptStatus(attempt=1, outcome=outcome, started_ms=started_ms, **attempt)]
    return StepStatus(name=name, base=name, state=state, reason=reason, attempts=tries)


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (workload("SUCCEEDED", step("SUCCEEDED", Outcome.SUCCEEDED, exit_code=0)), 0),
        (workload("FAILED", step("FAILED", Outcome.FAILED, exit_code=7)), 7),
        (workload("FAILED", step("FAILED", Outcome.FAILED, exit_code=255)), 255),
        (workload("FAILED", step("FAILED", Outcome.SIGNALED, signal=9)), 137),
        (workload("FAILED", step("FAILED", Outcome.TIMED_OUT, signal=15)), 124),
        (workload("FAILED", step("FAILED", Outcome.TIMED_OUT, exit_code=7)), 124),
        (workload("FAILED", step("FAILED", Outcome.TIMED_OUT, exit_code=0)), 124),
        (workload("FAILED", step("FAILED", Outcome.EXEC_FAILED)), 127),
        (workload("FAILED", step("FAILED", Outcome.NODE_LOST)), 125),
        (workload("FAILED", step("FAILED", Outcome.UNKNOWN)), 125),
        (workload("CANCELLED", step("CANCELLED", Outcome.CANCELLED, signal=15)), 130),
        (workload("CANCELLED", step("CANCELLED", Outcome.CANCELLED, exit_code=7)), 130),
        (workload("CANCELLED", step("CANCELLED")), 130),
    ],
)
def test_a_single_step_gives_its_own_exit_code(status, wanted):
    assert exit_code(status) == wanted


def test_a_cancelled_step_that_exits_with_0_is_not_success():
    cancelled = step("CANCELLED", Outcome.CANCELLED, exit_code=0)
    assert exit_code(workload("CANCELLED", cancelled)) == 130


def test_the_last_attempt_counts():
    tries = [
        AttemptStatus(attempt=1, outcome=Outcome.FAILED, exit_code=3, started_ms=1),
        AttemptStatus(attempt=2, outcome=Outcome.FAILED, exit_code=4, started_ms=2),
    ]
    failed = StepStatus(name="s", base="s", state="FAILED", attempts=tries)
    assert exit_code(workload("FAILED", failed)) == 4


def test_several_steps_give_1_whatever_their_own_codes_were():
    steps = [step("FAILED", Outcome.FAILED, exit_code=7), step("SUCCEEDED", name="t")]
    assert exit_code(workload("FAILED", *steps)) == 1


def test_several_cancelled_steps_give_130():
    steps = [step("CANCELLED", Outcome.CANCELLED, signal=15), step("CANCELLED", name="t")]
    assert exit_code(workload("CANCELLED", *steps)) == 130


def test_what_no_node_can_ever_run_is_a_refusal():
    impossible = step("FAILED", reason="EXCEEDS_EVERY_NODE")
    assert exit_code(workload("FAILED", impossible)) == 2
    skipped = step("SKIPPED", name="t")
    assert exit_code(workload("FAILED", impossible, skipped)) == 2


def test_a_refusal_after_something_ran_is_a_failure():
    ran = step("SUCCEEDED", Outcome.SUCCEEDED, name="t", exit_code=0)
    impossible = step("FAILED", reason="EXCEEDS_EVERY_NODE")
    assert exit_code(workload("FAILED", ran, impossible)) == 1


def test_a_document_that_the_workflow_refused_is_a_refusal():
    assert exit_code(workload("FAILED", reason="DOCUMENT_REFUSED")) == 2
