"""Derives the read model from the journal: pure, so that it depends on nothing but the events.

A step's rows are folded from all its events, in their order, whenever one arrives. Re-delivered,
late and refilled events can therefore not spoil anything: the same events give the same rows,
whatever way they came in. Kinds that are not known here stay in the journal only.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, NamedTuple

from headbay.activities.ledger.rows import AttemptRow
from headbay.domain.journal import JournalEvent
from headbay.domain.lifecycle import TERMINAL_STEP_STATES, AttemptState, WorkloadState
from headbay.domain.outcome import Outcome

__all__ = ["Entry", "Row", "entry_of", "event_of", "fold_step", "fold_workload", "storable"]

Row = dict[str, Any]
"""Column -> value, as it is stored: JSON as text."""

SUPERSEDED: Final = "SUPERSEDED"
"""Reason of an attempt that was given away without a word on its end: its run was reset."""

STEP_KINDS: Final = frozenset(
    {
        "StepQueued",
        "StepParked",
        "StepGranted",
        "StepStarted",
        "StepRetryScheduled",
        "StepSucceeded",
        "StepFailed",
        "StepSkipped",
        "StepCancelled",
        "StepUnresolved",
        "StepResolved",
    }
)
"""Kinds whose ``state`` is the step's."""

ATTEMPT_COLUMNS: Final = frozenset(f.name for f in fields(AttemptRow)) - {"pool", "queue", "labels"}
"""What is stored of an attempt; the rest is its workload's."""

USAGE: Final = [
    "cpu_user_us",
    "cpu_system_us",
    "memory_peak_bytes",
    "memory_byte_seconds",
    "pids_peak",
    "io_read_bytes",
    "io_write_bytes",
    "tokens",
    "cost_micro_usd",
]
"""Columns that are named as in `headbay.domain.attempt.Usage`."""


class Entry(NamedTuple):
    """One stored event; ``data`` is JSON text."""

    workload: str
    run: str
    seq: int
    at_ms: int
    kind: str
    step: str | None
    attempt: int | None
    state: str
    reason: str
    data: str

    @property
    def key(self) -> tuple[int, str, int]:
        """Its place in the workload's order."""
        return self.at_ms, self.run, self.seq

    def facts(self) -> "Facts":
        """Its data."""
        return Facts(json.loads(self.data))


class Facts:
    """Typed look into JSON that others wrote: what has another type than expected is absent."""

    def __init__(self, data: object) -> None:
        self._data: Mapping[str, Any] = data if isinstance(data, dict) else {}

    def text(self, name: str) -> str | None:
        """A string, made fit for a text column."""
        value = self._data.get(name)
        return storable(value) if isinstance(value, str) else None

    def number(self, name: str) -> int | None:
        """A whole number that fits 63 bits."""
        value = self._data.get(name)
        fits = type(value) is int and abs(value) < 2**63
        return value if fits else None

    def part(self, name: str) -> "Facts":
        """An object inside."""
        return Facts(self._data.get(name))

    def json(self, name: str, kind: type, default: str | None = None) -> str | None:
        """JSON text of a value of that type."""
        value = self._data.get(name)
        return json.dumps(value) if isinstance(value, kind) else default

    def any(self, name: str) -> str | None:
        """JSON text of whatever is there."""
        return json.dumps(self._data[name]) if name in self._data else None

    def pairs(self, name: str) -> dict[str, str]:
        """A mapping of strings to strings; other values are left out."""
        value = self._data.get(name)
        items = value.items() if isinstance(value, dict) else ()
        return {storable(k): storable(v) for k, v in items if isinstance(v, str)}


def storable(text: str) -> str:
    """Text that every database takes: neither NUL nor halves of surrogate pairs."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def entry_of(event: JournalEvent) -> Entry:
    """The stored form of an event."""
    return Entry(
        storable(event.workload),
        storable(event.run),
        event.seq,
        event.at_ms,
        storable(event.kind),
        None if event.step is None else storable(event.step),
        event.attempt,
        storable(event.state),
        storable(event.reason),
        json.dumps(event.data, separators=(",", ":")),
    )


def event_of(row: Sequence[Any]) -> JournalEvent:
    """The event that a stored row holds."""
    entry = Entry(*row)
    return JournalEvent(**entry._asdict() | {"data": json.loads(entry.data)})


# -- workloads ---------------------------------------------------------------------------------


def fold_workload(events: Iterable[Entry], runs: Mapping[str, int]) -> Row:
    """The row of a workload.

    Args:
        events: All its events that are about no step, in any order.
        runs: Its runs, each with the instant of its newest event: a run that goes on after
            another one had finished the workload (a reset) runs it again.
    """
    row: Row = {
        "run": "",
        "name": "",
        "pool": "",
        "queue": "",
        "priority": 0,
        "labels": {},
        "digest": "",
        "document": None,
        "submitted_by": "",
        "state": WorkloadState.RUNNING.value,
        "reason": "",
        "steps": None,
        "told_ms": None,
        "finished_ms": None,
        "cancel_ms": None,
        "cancel_by": "",
        "cancel_reason": "",
    }
    for event in sorted(events, key=lambda e: e.key):
        match event.kind:
            case "WorkloadSubmitted":
                _submit(row, event)
            case "CancelRequested" if row["cancel_ms"] is None:
                facts = event.facts()
                row["cancel_ms"] = event.at_ms
                row["cancel_by"] = facts.text("by") or ""
                row["cancel_reason"] = facts.text("reason") or ""
            case "WorkloadFinished" if _is_last(event, runs):
                row |= {"run": event.run, "state": event.state, "reason": event.reason}
                row["finished_ms"] = event.at_ms
    return row


def _submit(row: Row, event: Entry) -> None:
    facts = event.facts()
    row["run"] = event.run
    for name in ("name", "pool", "queue", "digest", "submitted_by"):
        row[name] = facts.text(name) or ""
    row["priority"] = facts.number("priority") or 0
    row["labels"] = facts.pairs("labels")
    row["document"] = facts.any("document")
    row["steps"] = facts.number("steps")
    told = facts.number("submitted_ms")
    row["told_ms"] = event.at_ms if told is None else told


def _is_last(finished: Entry, runs: Mapping[str, int]) -> bool:
    return all(run == finished.run or last <= finished.at_ms for run, last in runs.items())


# -- steps and attempts ------------------------------------------------------------------------


def fold_step(events: Iterable[Entry]) -> tuple[Row | None, list[Row]]:
    """The row of a step and those of its attempts.

    Args:
        events: All its events, in any order; at least one.

    Returns:
        The step's row (None if no event told its state), and its attempts.
    """
    ordered = sorted(events, key=lambda e: e.key)
    step: Row | None = None
    attempts = _Attempts(ordered[0].workload, str(ordered[0].step))
    for event in ordered:
        attempts.apply(event)
        if event.kind in STEP_KINDS and event.state:
            step = {
                "workload": event.workload,
                "step": event.step,
                "run": event.run,
                "state": event.state,
                "reason": event.reason,
                "updated_ms": event.at_ms,
            }
            if event.state in TERMINAL_STEP_STATES:
                attempts.close_requests(event)
    rows = attempts.rows()
    if step is not None:
        step["attempts"] = max((row["attempt"] for row in rows), default=0)
    return step, rows


class _Attempts:
    """Attempts of one step, by (number, fence); a request has fence 0 until it is granted."""

    def __init__(self, workload: str, step: str) -> None:
        self._workload = workload
        self._step = step
        self._rows: dict[tuple[int, int], Row] = {}

    def rows(self) -> list[Row]:
        """All of them, with the durations that follow."""
        for row in self._rows.values():
            row["queue_wait_ms"] = _between(row["queued_ms"], row["granted_ms"])
            if row["run_ms"] is None and row["started_ms"] is not None:
                row["run_ms"] = _between(row["started_ms"], row["ended_ms"])
        return [row for _, row in sorted(self._rows.items())]

    def apply(self, event: Entry) -> None:
        """Take one more event, in order."""
        if event.attempt is None:
            return
        match event.kind:
            case "StepQueued":
                self._queue(event)
            case "StepGranted":
                self._grant(event)
            case "StepStarted":
                row = self._row(event, event.facts())
                if row["started_ms"] is None:
                    row["started_ms"] = event.at_ms
            case "AttemptInDoubt":
                row = self._row(event, event.facts())
                if row["state"] != AttemptState.ENDED:
                    row["state"] = AttemptState.IN_DOUBT.value
            case "AttemptEnded":
                self._end(event)

    def close_requests(self, event: Entry) -> None:
        """The step is over: what it still asked for was refused or withdrawn."""
        for (_, fence), row in self._rows.items():
            if fence == 0 and row["state"] != AttemptState.ENDED:
                row |= {"state": AttemptState.ENDED.value, "reason": event.reason}
                row["ended_ms"] = event.at_ms

    def _queue(self, event: Entry) -> None:
        number = _number(event)
        rows = [row for (n, _), row in self._rows.items() if n == number]
        # A run that a reset made tells again what the one before told: not a second request.
        if all(row["queued_ms"] != event.at_ms for row in rows):
            self._rows[number, 0] = self._new(event, 0) | {"queued_ms": event.at_ms}

    def _grant(self, event: Entry) -> None:
        facts = event.facts()
        fence = facts.number("fence") or 0
        number = _number(event)
        if fence == 0 or (number, fence) in self._rows:
            return
        for (_, held), row in self._rows.items():
            if 0 < held < fence and row["state"] != AttemptState.ENDED:
                row |= {"state": AttemptState.ENDED.value, "outcome": Outcome.UNKNOWN.value}
                row["reason"] = SUPERSEDED
        request = self._rows.pop((number, 0), None)
        queued = facts.number("queued_ms")
        if queued is None and request is not None:
            queued = request["queued_ms"]
        self._rows[number, fence] = self._new(event, fence) | {
            "node": facts.text("node") or "",
            "allocation": facts.text("allocation") or "",
            "resources": facts.json("resources", dict, "{}"),
            "state": AttemptState.RUNNING.value,
            "queued_ms": queued,
            "granted_ms": event.at_ms,
        }

    def _end(self, event: Entry) -> None:
        facts = event.facts()
        row = self._row(event, facts)
        usage, log = facts.part("usage"), facts.part("log")
        ended = facts.number("ended_ms")
        row |= {
            "node": facts.text("node") or row["node"],
            "allocation": facts.text("allocation") or row["allocation"],
            "state": AttemptState.ENDED.value,
            "outcome": facts.text("outcome") or event.reason or None,
            "reason": "",
            "message": facts.text("message") or "",
            "exit_code": facts.number("exit_code"),
            "signal": facts.number("signal"),
            "flags": facts.json("flags", list, "[]"),
            "ended_ms": event.at_ms if ended is None else ended,
            "run_ms": usage.number("wall_ms"),
            "isolation": facts.text("isolation"),
            "log_path": log.text("path"),
            "log_seen_bytes": log.number("seen_bytes"),
            "log_kept_bytes": log.number("kept_bytes"),
            "output": facts.json("output", dict),
            "artifacts": facts.json("artifacts", dict),
        }
        row |= {name: usage.number(name) for name in USAGE}
        started = facts.number("started_ms")
        if started is not None:
            row["started_ms"] = started

    def _row(self, event: Entry, facts: Facts) -> Row:
        """The attempt that an event is about: by its fence, else the newest of its number."""
        number = _number(event)
        fence = facts.number("fence")
        if fence is None:
            fence = max((f for n, f in self._rows if n == number), default=0)
        if (number, fence) not in self._rows:
            self._rows[number, fence] = self._new(event, fence)
        return self._rows[number, fence]

    def _new(self, event: Entry, fence: int) -> Row:
        row: Row = dict.fromkeys(ATTEMPT_COLUMNS)
        row |= {"workload": self._workload, "step": self._step, "attempt": _number(event)}
        row |= {"fence": fence, "run": event.run, "state": AttemptState.REQUESTED.value}
        row |= {"node": "", "allocation": "", "reason": "", "message": ""}
        row |= {"resources": "{}", "flags": "[]"}
        return row


def _number(event: Entry) -> int:
    return event.attempt or 0


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else max(0, end - start)
