"""What a person is told when a workload has ended: how, what failed, and what to do next."""

import sys
from typing import TYPE_CHECKING, Final

from headbay.client.cli.console import clean, colour, say, state_colour, wants_colour
from headbay.client.cli.session import places
from headbay.client.cli.tables import duration
from headbay.client.cli.views import bracket, ended_with, unenforced
from headbay.client.logs import tail

if TYPE_CHECKING:
    from headbay.client.models import Reading
    from headbay.domain.status import StepStatus, WorkloadStatus

__all__ = ["tell_end"]

SHOWN: Final = 5
TAIL_LINES: Final = 10

SAID_BY_STEPS: Final = ("STEP_FAILED", "STEP_CANCELLED")
"""Reasons whose message only repeats what is said of the steps."""


def tell_end(reading: "Reading", *, brief: bool) -> None:
    """The last words, on standard error.

    Args:
        reading: The final one.
        brief: Say nothing of success, and no log: for a command whose output was shown.
    """
    status = reading.workload
    if reading.note:
        say(reading.note, kind="warning")
    failed = [s for s in status.steps if s.state.value in ("FAILED", "CANCELLED", "UNRESOLVED")]
    succeeded = status.status.value == "SUCCEEDED"
    if brief and succeeded:
        return
    on = wants_colour(sys.stderr)
    reason = "" if failed and status.reason in SAID_BY_STEPS else status.reason
    state = bracket(status.status.value, reason)
    shown = colour(state, state_colour(status.status.value), on=on)
    begun = status.started_ms or status.submitted_ms
    took = duration((status.finished_ms or reading.read_ms) - begun)
    counted = ", ".join(f"{count} {name}" for name, count in status.counts.items())
    _line(f"{shown} {clean(status.name)} in {took} ({counted or 'nothing started'})")
    if status.message and status.reason not in SAID_BY_STEPS:
        _line(clean(status.message))
    for step in failed[:SHOWN]:
        _tell_step(status, step, log=not brief)
    if len(failed) > SHOWN:
        _line(f"and {len(failed) - SHOWN} more: headbay status {status.id}")
    if not brief:
        for note in unenforced(status):
            _line(colour(note, "dim", on=on))


def _tell_step(status: "WorkloadStatus", step: "StepStatus", *, log: bool) -> None:
    last = step.attempts[-1] if step.attempts else None
    how = ended_with(last) if last is not None else ""
    how = how or bracket(step.state.value, step.reason)
    where = f" on {last.node}" if last is not None and last.node else ""
    message = (last.message if last is not None else "") or step.message
    _line(clean(f"  {step.name}: {how}{where}{': ' + message if message else ''}"))
    if last is None or last.log is None or not log:
        return
    lines = tail(places(), last, TAIL_LINES)
    if lines is None:
        _line(clean(f"    its log is on node {last.node}, at {last.log.path}"))
        return
    for line in lines:
        _line(clean(f"    | {line}"))
    _line(f"    all of it: headbay logs {status.id} {step.name}")


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
