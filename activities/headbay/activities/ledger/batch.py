"""What one `append` has to write, worked out before and after its events are inserted; pure.

All of it comes sorted: writers that touch rows in one order cannot deadlock.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from headbay.activities.ledger.projection import Entry, Row, entry_of, fold_step, fold_workload
from headbay.domain.journal import JournalEvent

__all__ = [
    "Folded",
    "distinct",
    "fold_steps",
    "fold_workloads",
    "label_rows",
    "steps_of",
    "touch_runs",
    "touched",
    "workloads_of",
]

StepKey = tuple[str, str]


class Folded:
    """Rows that replace those of some steps.

    Attributes:
        keys: (workload, step) whose attempts are replaced.
    """

    def __init__(self, keys: Sequence[StepKey]) -> None:
        self.keys = keys
        self.steps: list[Row] = []
        self.attempts: list[Row] = []


def distinct(events: Iterable[JournalEvent]) -> list[Entry]:
    """The batch without repetitions, by workload, run and seq."""
    found: dict[tuple[str, str, int], Entry] = {}
    for event in events:
        entry = entry_of(event)
        found.setdefault((entry.workload, entry.run, entry.seq), entry)
    return [entry for _, entry in sorted(found.items())]


def touched(entries: Iterable[Entry]) -> list[Row]:
    """Workloads of the batch with the span of its instants, by id."""
    rows: dict[str, Row] = {}
    for entry in entries:
        at_ms = entry.at_ms
        row = rows.setdefault(
            entry.workload,
            {"workload": entry.workload, "first_ms": at_ms, "updated_ms": at_ms},
        )
        row["first_ms"] = min(row["first_ms"], at_ms)
        row["updated_ms"] = max(row["updated_ms"], at_ms)
    return [rows[workload] for workload in sorted(rows)]


def touch_runs(new: Iterable[Entry]) -> list[Row]:
    """Runs that got new events, by workload and run."""
    rows: dict[tuple[str, str], Row] = {}
    for entry in new:
        row = rows.setdefault(
            (entry.workload, entry.run),
            {
                "workload": entry.workload,
                "run": entry.run,
                "events": 0,
                "last_seq": entry.seq,
                "last_at_ms": entry.at_ms,
            },
        )
        row["events"] += 1
        row["last_seq"] = max(row["last_seq"], entry.seq)
        row["last_at_ms"] = max(row["last_at_ms"], entry.at_ms)
    return [rows[key] for key in sorted(rows)]


def steps_of(new: Iterable[Entry]) -> list[StepKey]:
    """Steps that got new events, sorted."""
    return sorted({(entry.workload, entry.step) for entry in new if entry.step is not None})


def workloads_of(new: Iterable[Entry], finished: Collection[str]) -> list[str]:
    """Workloads whose row may change, sorted.

    Args:
        new: Events that were not there before.
        finished: Those of the batch that had finished: any event may tell that they run again.
    """
    return sorted(
        {entry.workload for entry in new if entry.step is None or entry.workload in finished}
    )


def fold_steps(keys: Sequence[StepKey], events: Iterable[Entry]) -> Folded:
    """Rows of these steps, from all their events."""
    by_step: dict[StepKey, list[Entry]] = {key: [] for key in keys}
    for event in events:
        by_step[event.workload, str(event.step)].append(event)
    folded = Folded(keys)
    for key in keys:
        step, attempts = fold_step(by_step[key])
        if step is not None:
            folded.steps.append(step)
        folded.attempts.extend(attempts)
    return folded


def fold_workloads(
    workloads: Sequence[str],
    events: Iterable[Entry],
    runs: Iterable[tuple[str, str, int]],
) -> list[Row]:
    """Rows of these workloads, ``labels`` still a mapping.

    Args:
        workloads: Their ids.
        events: All events of theirs that are about no step.
        runs: (workload, run, instant of its newest event).
    """
    by_workload: dict[str, list[Entry]] = {workload: [] for workload in workloads}
    for event in events:
        by_workload[event.workload].append(event)
    lasts: dict[str, dict[str, int]] = {workload: {} for workload in workloads}
    for workload, run, last in runs:
        lasts[workload][run] = last
    return [
        {"workload": workload} | fold_workload(by_workload[workload], lasts[workload])
        for workload in workloads
    ]


def label_rows(workloads: Iterable[Mapping[str, object]]) -> list[Row]:
    """Labels of folded workloads, one row each."""
    rows: list[Row] = []
    for workload in workloads:
        labels = workload["labels"]
        pairs = sorted(labels.items()) if isinstance(labels, dict) else []
        rows.extend({"workload": workload["workload"], "key": k, "value": v} for k, v in pairs)
    return rows
