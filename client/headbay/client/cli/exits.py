"""Exit codes: the contract with scripts."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headbay.domain.status import StepStatus, WorkloadStatus

__all__ = [
    "CANNOT_RUN",
    "FAILED",
    "INTERRUPTED",
    "OK",
    "REFUSED",
    "TABLE",
    "TIMED_OUT",
    "exit_code",
]

OK: Final = 0
FAILED: Final = 1
REFUSED: Final = 2
TIMED_OUT: Final = 124
HEADBAY_FAILED: Final = 125
CANNOT_RUN: Final = 127
INTERRUPTED: Final = 130
SIGNALED: Final = 128

TABLE: Final = """\
Exit codes:
    0      success
    1      a workload of several steps failed, or an operation was refused
    2      a document or a command line was refused; nothing was started
    124    a timeout: of `wait`, or of the step itself
    125    Headbay itself failed
    127    the command could not be executed
    130    interrupted or cancelled
    other  a single step's own exit code; 128+n if signal n ended it
"""

NODE_FAULTS: Final = frozenset(
    {
        "NOT_STARTED",
        "NODE_LOST",
        "LEASE_LOST",
        "SUPERVISOR_LOST",
        "OOM_NODE",
        "LIMIT_NOT_APPLIED",
        "UNKNOWN",
    }
)
"""Ends that say nothing about the command itself."""

OUTCOMES: Final = {"TIMED_OUT": TIMED_OUT, "EXEC_FAILED": CANNOT_RUN}
"""Ends without an exit code or a signal of the command's own."""

REFUSALS: Final = frozenset({"NO_MATCHING_NODE", "EXCEEDS_EVERY_NODE", "DOCUMENT_REFUSED"})
"""Reasons for which nothing was started: what was asked for can never be met."""


def exit_code(status: "WorkloadStatus") -> int:
    """The exit code of a workload that has ended.

    1. Success is 0. 2. A refusal before anything began is 2. 3. A workload of one step ends as its
    step's last attempt did. 4. Everything else is 1, or 130 where it was cancelled.
    """
    state = status.status.value
    if state == "SUCCEEDED":
        return OK
    if status.reason in REFUSALS:
        return REFUSED
    bad = [step for step in status.steps if step.state.value in ("FAILED", "CANCELLED")]
    began = any(a.started_ms is not None for step in status.steps for a in step.attempts)
    if bad and not began and any(step.reason in REFUSALS for step in bad):
        return REFUSED
    if len(status.steps) == 1:
        return _of_step(status.steps[0], cancelled=state == "CANCELLED")
    return INTERRUPTED if state == "CANCELLED" else FAILED


def _of_step(step: "StepStatus", *, cancelled: bool) -> int:
    """What Headbay ended counts before what the command said of its end, as with timeout(1)."""
    if cancelled:
        return INTERRUPTED
    last = step.attempts[-1] if step.attempts else None
    outcome = last.outcome.value if last is not None and last.outcome is not None else ""
    if last is not None and outcome != "TIMED_OUT":
        if last.exit_code:
            return last.exit_code
        if last.signal:
            return SIGNALED + last.signal
    return HEADBAY_FAILED if outcome in NODE_FAULTS else OUTCOMES.get(outcome, FAILED)
