"""The status of a workload: what queries answer, results carry and people read.

Versioned and bounded: a status of 1,000 steps stays below 700 KB of JSON. Readers must tolerate
fields that they do not know.
"""

from collections.abc import Iterable

from pydantic import JsonValue

from headbay.domain.attempt import ArtifactsRef, LogRef, OutputRef, Usage
from headbay.domain.lifecycle import (
    TERMINAL_STEP_STATES,
    AttemptState,
    StepState,
    WorkloadState,
)
from headbay.domain.outcome import Flag, Isolation, Outcome
from headbay.domain.wire import Wire

__all__ = [
    "STATUS_VERSION",
    "AttemptStatus",
    "CancelStatus",
    "StepStatus",
    "WorkloadStatus",
    "count_states",
    "is_finished",
    "markdown",
    "to_json",
]

STATUS_VERSION = 1

TABLE_ROWS = 60
"""Workloads with more steps are shown as counts, plus the steps one would look for."""

CELL_CHARS = 80


class AttemptStatus(Wire):
    """One try of a step.

    Attributes:
        attempt: Its number, from 1.
        fence: Its grant's fence, 0 before a grant.
        reason: What the workload made of its end, "" if the outcome says it all.
        message: One line for people.
        queued_ms: When its request was made. granted_ms: When the workload got the grant.
        started_ms, ended_ms: By the node's clock.
        isolation: What the node could promise about limits.
    """

    attempt: int
    fence: int = 0
    node: str = ""
    state: AttemptState = AttemptState.ENDED
    outcome: Outcome | None = None
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    flags: list[Flag] = []
    queued_ms: int | None = None
    granted_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    usage: Usage = Usage()
    log: LogRef | None = None
    isolation: Isolation = Isolation.UNENFORCED


class StepStatus(Wire):
    """One step.

    Attributes:
        base: The document's step that it was expanded from.
        display: What the document says it runs.
        reason: Stable code: an `headbay.domain.lifecycle.StateReason`, an outcome class, or the
            code of a refusal.
        depends_on: The document's steps that it waits for (not each task of a matrix); of a large
            workload the first 16.
        attempts: Oldest first; only the last where the workload has made too many to list.
        attempts_made: How many there were in all.
        output, artifacts: Of the attempt that succeeded; ``output.value`` is left out where a
            workload has too many to list (fetch it by its hash).
    """

    name: str
    base: str
    display: str = ""
    state: StepState = StepState.PENDING
    reason: str = ""
    message: str = ""
    depends_on: list[str] = []
    attempts: list[AttemptStatus] = []
    attempts_made: int = 0
    output: OutputRef | None = None
    artifacts: ArtifactsRef | None = None


class CancelStatus(Wire):
    """Who cancelled the workload first, and why."""

    by: str
    reason: str = ""
    at_ms: int


class WorkloadStatus(Wire):
    """A workload as it stands.

    Of a large workload (more than 250 steps or 400 attempts) the fields ``display``,
    ``queued_ms``, ``granted_ms`` and ``usage`` are left out, and texts are shorter: the ledger has
    them.

    Attributes:
        reason: Stable code, "" while it runs and when it succeeded.
        counts: Number of steps by state; states without steps are left out.
        started_ms: First grant. finished_ms: The decision on the final status.
    """

    schema_version: int = STATUS_VERSION
    id: str
    name: str
    pool: str = "default"
    queue: str = "default"
    priority: int = 0
    labels: dict[str, str] = {}
    status: WorkloadState = WorkloadState.RUNNING
    reason: str = ""
    message: str = ""
    submitted_ms: int = 0
    started_ms: int | None = None
    finished_ms: int | None = None
    cancel: CancelStatus | None = None
    counts: dict[str, int] = {}
    steps: list[StepStatus] = []


def to_json(status: WorkloadStatus) -> dict[str, JsonValue]:
    """JSON form without most fields that have their default; `model_validate` reads it back.

    What foreign programs look at first is always there: the status, and every step's state.
    """
    dumped: dict[str, JsonValue] = status.model_dump(
        mode="json", exclude_defaults=True, exclude={"steps"}
    )
    dumped["steps"] = [
        {"state": step.state.value} | step.model_dump(mode="json", exclude_defaults=True)
        for step in status.steps
    ]
    return {"schema_version": status.schema_version, "status": status.status.value} | dumped


def count_states(states: Iterable[StepState]) -> dict[str, int]:
    """Number of steps by state, in the order in which `StepState` lists them."""
    counts = dict.fromkeys(StepState, 0)
    for state in states:
        counts[state] += 1
    return {state.value: count for state, count in counts.items() if count}


def markdown(status: WorkloadStatus) -> str:
    """The workload as a Markdown table, for the Temporal UI's current details.

    Above 60 steps only those are listed that one looks for: failed and unresolved first, then
    running, at most 60 in all.
    """
    lines = [f"**{_cell(status.name)}**: {status.status}{_bracket(status.reason)}"]
    if status.cancel is not None:
        why = f": {_cell(status.cancel.reason)}" if status.cancel.reason else ""
        lines.append(f"\ncancel requested by {_cell(status.cancel.by)}{why}")
    shown = status.steps
    if len(shown) > TABLE_ROWS:
        shown = _worth_showing(shown)
        counted = ", ".join(f"{count} {state}" for state, count in status.counts.items())
        lines.append(f"\n{len(status.steps)} steps: {counted}")
    if shown:
        lines.append("\n| Step | State | Attempt | Node | Ended with | Message |")
        lines.append("|---|---|---|---|---|---|")
        lines.extend(row for step in shown for row in _rows(step))
    return "\n".join(lines)


def _worth_showing(steps: list[StepStatus]) -> list[StepStatus]:
    bad = [s for s in steps if s.state in (StepState.FAILED, StepState.UNRESOLVED)]
    live = [s for s in steps if s.state is StepState.RUNNING]
    return (bad + live)[:TABLE_ROWS]


def _rows(step: StepStatus) -> list[str]:
    state = f"{step.state}{_bracket(step.reason)}"
    if not step.attempts:
        return [f"| {step.name} | {state} | | | | {_cell(step.message)} |"]
    rows = []
    for attempt in step.attempts[-3:]:
        last = attempt is step.attempts[-1]
        ended = _ended_with(attempt)
        name, shown = (step.name, state) if last else (step.name, "")
        message = attempt.message or (step.message if last else "")
        rows.append(
            f"| {name} | {shown} | {attempt.attempt} | {_cell(attempt.node)} "
            f"| {ended} | {_cell(message)} |"
        )
    return rows


def _ended_with(attempt: AttemptStatus) -> str:
    if attempt.state is AttemptState.IN_DOUBT:
        return "in doubt"
    if attempt.outcome is None:
        return ""
    if attempt.exit_code:
        return f"{attempt.outcome} (exit {attempt.exit_code})"
    if attempt.signal:
        return f"{attempt.outcome} (signal {attempt.signal})"
    return attempt.outcome.value


def _bracket(reason: str) -> str:
    return f" ({_cell(reason)})" if reason else ""


def _cell(text: str) -> str:
    """Text that cannot break out of a table's cell."""
    flat = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    flat = flat.replace("<", "&lt;").replace("`", "'")
    return flat if len(flat) <= CELL_CHARS else flat[: CELL_CHARS - 1] + "…"


def is_finished(step: StepStatus) -> bool:
    """Whether the step's state can no longer change."""
    return step.state in TERMINAL_STEP_STATES
