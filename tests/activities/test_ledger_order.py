"""The read model depends on which events are there, not on how they came."""

import uuid
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headbay.activities.ledger import Ledger
from headbay.activities.ledger.projection import entry_of, fold_step
from headbay.domain.journal import JournalEvent

KINDS: dict[str, tuple[str, ...]] = {
    "WorkloadSubmitted": ("RUNNING",),
    "CancelRequested": ("",),
    "WorkloadFinished": ("SUCCEEDED", "FAILED", "CANCELLED"),
    "StepQueued": ("QUEUED",),
    "StepGranted": ("RUNNING",),
    "StepStarted": ("RUNNING",),
    "AttemptInDoubt": ("IN_DOUBT",),
    "AttemptEnded": ("ENDED",),
    "StepRetryScheduled": ("PENDING",),
    "StepSucceeded": ("SUCCEEDED",),
    "StepFailed": ("FAILED",),
    "StepSkipped": ("SKIPPED",),
    "StepResolved": ("PENDING", "SUCCEEDED"),
    "Unheard": ("OF",),
}


@st.composite
def journals(draw: st.DrawFn) -> list[JournalEvent]:
    """Up to three runs, each with its own clock, of whatever events; not always sensible ones."""
    events = []
    for run in draw(st.permutations(["a", "b", "c"]))[: draw(st.integers(1, 3))]:
        at_ms = draw(st.integers(0, 30))
        for seq in range(draw(st.integers(1, 9))):
            at_ms += draw(st.integers(0, 3))
            events.append(draw(event(run, seq, at_ms)))
    return events


@st.composite
def event(draw: st.DrawFn, run: str, seq: int, at_ms: int) -> JournalEvent:
    kind = draw(st.sampled_from(sorted(KINDS)))
    about_step = kind.startswith(("Step", "Attempt", "Unheard"))
    fence = draw(st.integers(0, 4))
    data: dict[str, Any] = {"fence": fence, "node": f"n{fence}", "by": run, "name": f"{run}{seq}"}
    if draw(st.booleans()):
        data |= {"queued_ms": at_ms, "labels": {"k": run}, "usage": {"wall_ms": seq}}
    if draw(st.booleans()):
        del data["fence"]
    return JournalEvent(
        workload="w",
        run=run,
        seq=seq,
        at_ms=at_ms,
        kind=kind,
        step=draw(st.sampled_from(["s1", "s2"])) if about_step else None,
        attempt=draw(st.sampled_from([1, 1, 2, None])) if about_step else None,
        state=draw(st.sampled_from(KINDS[kind])),
        reason=draw(st.sampled_from(["", "WHY"])),
        data=data,
    )


@dataclass(frozen=True)
class Delivery:
    """Batches that together bring every event at least once."""

    straight: list[JournalEvent]
    batches: list[list[JournalEvent]]


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    events = draw(journals())
    again = draw(st.lists(st.sampled_from(events), max_size=5))
    shuffled = draw(st.permutations([*events, *again]))
    batches, start = [], 0
    while start < len(shuffled):
        size = draw(st.integers(1, 8))
        batches.append(shuffled[start : start + size])
        start += size
    return Delivery(events, batches)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(delivery=deliveries())
async def test_any_order_and_repetition_gives_the_same_read_model(
    ledger: Ledger, delivery: Delivery
):
    straight, other = f"w{uuid.uuid4().hex}", f"w{uuid.uuid4().hex}"
    await ledger.append(renamed(delivery.straight, straight))
    for batch in delivery.batches:
        await ledger.append(renamed(batch, other))
    assert await read_model(ledger, other) == await read_model(ledger, straight)


def renamed(events: list[JournalEvent], workload: str) -> list[JournalEvent]:
    return [event.model_copy(update={"workload": workload}) for event in events]


async def read_model(ledger: Ledger, workload: str) -> Any:
    """Everything but the workload's id."""
    row = await ledger.workload(workload)
    assert row is not None
    return (
        replace(row, workload=""),
        [replace(step, workload="") for step in await ledger.steps(workload)],
        [replace(attempt, workload="") for attempt in await ledger.attempts(workload)],
        renamed(await ledger.events(workload), ""),
        await ledger.final_status(workload),
        workload in {unfinished.workload for unfinished in await ledger.unfinished()},
        [replace(gap, workload="") for gap in await ledger.gaps() if gap.workload == workload],
        {run: await ledger.has_end(workload, run) for run in "abc"},
    )


@given(journals())
def test_folding_a_step_keeps_its_invariants(events: list[JournalEvent]):
    entries = [entry_of(event) for event in events if event.step == "s1"]
    if not entries:
        return
    step, attempts = fold_step(entries)
    keys = [(row["attempt"], row["fence"]) for row in attempts]
    assert keys == sorted(set(keys))
    for row in attempts:
        for duration in (row["queue_wait_ms"], row["run_ms"]):
            assert duration is None or duration >= 0
        assert row["state"] == "ENDED" or row["outcome"] is None
    grants = [e for e in entries if e.kind == "StepGranted" and e.attempt is not None]
    assert {
        (e.attempt, e.facts().number("fence")) for e in grants if e.facts().number("fence")
    } <= {*keys}
    told = [e for e in sorted(entries, key=lambda e: e.key) if e.kind.startswith("Step")]
    assert (step or {}).get("state") == (told[-1].state if told else None)
