"""What every ledger promises; the same tests over SQLite and PostgreSQL."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from support.journal import Journal, one_step

from headbay.activities.ledger import (
    AttemptRow,
    Gap,
    Ledger,
    LedgerUnavailableError,
    StepRow,
    WorkloadQuery,
    open_ledger,
    read_status,
)
from headbay.domain.attempt import OutputRef
from headbay.domain.journal import JournalEvent
from headbay.domain.lifecycle import StepState
from headbay.domain.outcome import Outcome


async def test_a_workload_is_read_as_it_was_told(ledger: Ledger):
    events = one_step(
        "w1", name="nightly", queue="ci", pool="p", priority=7, labels={"team": "a"}, digest="abc"
    )
    assert await ledger.append(events) == len(events)

    row = await ledger.workload("w1")
    assert row is not None
    assert (row.name, row.queue, row.pool, row.priority) == ("nightly", "ci", "p", 7)
    assert (row.labels, row.digest, row.steps) == ({"team": "a"}, "abc", 1)
    assert (row.state, row.reason, row.run) == ("SUCCEEDED", "", "run-1")
    assert (row.submitted_ms, row.finished_ms) == (events[0].at_ms, events[-1].at_ms)
    assert row.updated_ms == events[-1].at_ms
    assert row.cancel_ms is None

    assert await ledger.steps("w1") == [
        StepRow("w1", "build", "run-1", "SUCCEEDED", "", 1, events[4].at_ms)
    ]
    granted, ended = events[2], events[3]
    assert await ledger.attempts("w1") == [
        AttemptRow(
            workload="w1",
            step="build",
            attempt=1,
            fence=1,
            run="run-1",
            pool="p",
            queue="ci",
            labels={"team": "a"},
            node="n1",
            allocation="alloc-1",
            resources={"cpu": 1_000},
            state="ENDED",
            outcome="SUCCEEDED",
            exit_code=0,
            flags=["leftovers_killed"],
            queued_ms=events[1].at_ms,
            granted_ms=granted.at_ms,
            started_ms=granted.at_ms + 7,
            ended_ms=granted.at_ms + 480,
            queue_wait_ms=40,
            run_ms=473,
            cpu_user_us=5_000,
            cpu_system_us=700,
            memory_peak_bytes=1 << 20,
            isolation="unenforced",
            log_path="/logs/x",
            log_seen_bytes=10,
            log_kept_bytes=9,
        )
    ]
    assert ended.data["usage"]["pids_peak"] is None
    assert await ledger.events("w1") == events
    assert await ledger.final_status("w1") == events[-1].data["status"]
    assert await ledger.unfinished() == []
    assert await ledger.workload("w2") is None
    assert await ledger.final_status("w2") is None


async def test_appending_again_changes_nothing(ledger: Ledger):
    events = one_step("w1")
    await ledger.append(events)
    before = await everything(ledger, "w1")
    assert await ledger.append(events) == 0
    assert await ledger.append([*events[2:4], *events[2:4]]) == 0
    assert await ledger.append([]) == 0
    assert await everything(ledger, "w1") == before


async def test_the_first_text_of_an_event_stays(ledger: Ledger):
    first = JournalEvent(workload="w", run="r", seq=0, at_ms=5, kind="WorkloadSubmitted")
    other = first.model_copy(update={"kind": "WorkloadFinished", "state": "FAILED"})
    await ledger.append([first])
    assert await ledger.append([other]) == 0
    assert await ledger.events("w") == [first]


async def test_a_batch_is_written_whole_or_not_at_all(ledger: Ledger):
    good = one_step("w1")
    bad = good[0].model_copy(update={"seq": 2**70})
    with pytest.raises(Exception, match=r"(?i)int|range"):
        await ledger.append([*good, bad])
    assert await ledger.events("w1") == []
    assert await ledger.workload("w1") is None
    await ledger.append(good)
    assert len(await ledger.events("w1")) == len(good)


async def test_requests_that_were_never_granted_end_with_their_step(ledger: Ledger):
    journal = Journal("w")
    journal.submitted()
    journal.queued()
    await ledger.append(journal.events)
    [waiting] = await ledger.attempts("w")
    assert (waiting.state, waiting.fence, waiting.queue_wait_ms) == ("REQUESTED", 0, None)

    refused = journal.add("StepFailed", "build", state="FAILED", reason="TOO_BIG")
    await ledger.append([refused])
    [attempt] = await ledger.attempts("w")
    assert (attempt.state, attempt.outcome, attempt.reason) == ("ENDED", None, "TOO_BIG")
    assert attempt.ended_ms == refused.at_ms


async def test_every_retry_has_its_own_account(ledger: Ledger):
    journal = Journal("w")
    journal.submitted()
    for number in (1, 2):
        journal.queued(attempt=number)
        journal.granted(attempt=number, fence=10 * number)
        outcome = Outcome.FAILED if number == 1 else Outcome.SUCCEEDED
        journal.ended(attempt=number, fence=10 * number, outcome=outcome, exit_code=number - 1)
        if number == 1:
            journal.add("StepRetryScheduled", "build", 2, state="PENDING", reason="FAILED")
    journal.add("StepSucceeded", "build", 2, state="SUCCEEDED")
    await ledger.append(journal.events)
    first, second = await ledger.attempts("w")
    assert (first.fence, first.outcome, first.exit_code) == (10, "FAILED", 0)
    assert (second.fence, second.outcome, second.exit_code) == (20, "SUCCEEDED", 1)
    [step] = await ledger.steps("w")
    assert (step.state, step.attempts) == ("SUCCEEDED", 2)


async def test_a_late_exit_corrects_the_account(ledger: Ledger):
    journal = Journal("w")
    journal.submitted()
    journal.queued()
    journal.granted()
    journal.add("AttemptInDoubt", "build", 1, state="IN_DOUBT", reason="HEARTBEAT")
    await ledger.append(journal.events)
    assert (await ledger.attempts("w"))[0].state == "IN_DOUBT"
    assert (await ledger.steps("w"))[0].state == "RUNNING"

    lost = journal.ended(outcome=Outcome.LEASE_LOST)
    late = journal.ended(outcome=Outcome.SUCCEEDED, exit_code=0)
    await ledger.append([late])
    await ledger.append([lost])
    [attempt] = await ledger.attempts("w")
    assert (attempt.state, attempt.outcome, attempt.exit_code) == ("ENDED", "SUCCEEDED", 0)


async def test_continue_as_new_goes_on_where_the_former_run_was(ledger: Ledger):
    first = Journal("w", "zz")
    first.submitted()
    first.queued()
    second = first.continued("aa")
    second.granted()
    second.ended()
    second.add("StepSucceeded", "build", 1, state="SUCCEEDED")
    second.finished()
    await ledger.append(second.events)
    await ledger.append(first.events)
    [attempt] = await ledger.attempts("w")
    assert (attempt.fence, attempt.queue_wait_ms) == (1, 40)
    assert (await ledger.steps("w"))[0].state == "SUCCEEDED"
    row = await ledger.workload("w")
    assert row is not None
    assert (row.state, row.run, row.name) == ("SUCCEEDED", "aa", "ci")
    assert [e.run for e in await ledger.events("w")] == ["zz"] * 2 + ["aa"] * 4
    assert await ledger.has_end("w", "aa")
    assert not await ledger.has_end("w", "zz")
    assert await ledger.gaps() == []


async def test_a_reset_runs_a_finished_workload_again(ledger: Ledger):
    first = Journal("w", "bb")
    first.events = one_step("w")[:0]
    first.submitted()
    first.queued()
    first.granted(fence=5)
    first.ended(fence=5, outcome=Outcome.FAILED, exit_code=1)
    first.add("StepFailed", "build", state="FAILED", reason="FAILED")
    first.finished("FAILED", "STEP_FAILED")
    await ledger.append(first.events)
    assert await ledger.unfinished() == []

    again = first.replayed("aa", first.events[:2], after_ms=1_000)
    again.granted(fence=9)
    await ledger.append(again.events[2:])  # what it replayed was journaled by the former run
    [row] = await ledger.unfinished()
    assert (row.state, row.finished_ms) == ("RUNNING", None)
    assert await ledger.final_status("w") is None
    assert await ledger.gaps() == [Gap("w", "aa", [(0, 1)])]

    await ledger.append(again.events[:2])  # refilled
    assert await ledger.gaps() == []
    rows = await ledger.attempts("w")
    assert [(r.attempt, r.fence, r.outcome, r.state) for r in rows] == [
        (1, 5, "FAILED", "ENDED"),
        (1, 9, None, "RUNNING"),
    ]
    again.ended(fence=9)
    again.add("StepSucceeded", "build", 1, state="SUCCEEDED")
    again.finished()
    await ledger.append(again.events)
    status = await ledger.final_status("w")
    assert status is not None
    assert status["status"] == "SUCCEEDED"


async def test_an_attempt_that_was_given_away_after_a_reset_does_not_run_for_ever(ledger: Ledger):
    first = Journal("w", "bb")
    first.submitted()
    first.queued()
    first.granted(fence=5)
    again = first.replayed("aa", first.events[:2], after_ms=1_000)
    again.granted(fence=9)
    await ledger.append([*first.events, *again.events])
    old, new = await ledger.attempts("w")
    assert (old.fence, old.state, old.outcome, old.reason) == (5, "ENDED", "UNKNOWN", "SUPERSEDED")
    assert (new.fence, new.state) == (9, "RUNNING")


async def test_unknown_kinds_and_strange_data_stay_in_the_journal(ledger: Ledger):
    journal = Journal("w")
    journal.submitted(name="n\0ul \ud800", labels={"a": 1, "b": "x\0"}, priority="high")
    journal.add("MoonRose", "build", 1, state="RISEN", data={"text": "\0 \ud800 ☾", "big": 2**80})
    journal.add("AttemptEnded", "build", 1, state="ENDED", reason="UNKNOWN", data={"fence": "no"})
    journal.add("WorkloadFinished", state="FAILED", data={"status": 7})
    await ledger.append(journal.events)
    assert await ledger.events("w") == journal.events
    assert await ledger.steps("w") == []
    [attempt] = await ledger.attempts("w")
    assert (attempt.fence, attempt.outcome, attempt.flags) == (0, "UNKNOWN", [])
    row = await ledger.workload("w")
    assert row is not None
    assert (row.name, row.labels, row.priority) == ("n\ufffdul ?", {"b": "x\ufffd"}, 0)
    assert await ledger.final_status("w") is None


async def test_cancel_requests_are_shown_the_first_one_counts(ledger: Ledger):
    journal = Journal("w")
    journal.submitted()
    first = journal.add("CancelRequested", data={"by": "ann", "reason": "late"})
    journal.add("CancelRequested", data={"by": "bob", "reason": ""})
    await ledger.append(journal.events[::-1])
    row = await ledger.workload("w")
    assert row is not None
    assert (row.cancel_ms, row.cancel_by, row.cancel_reason) == (first.at_ms, "ann", "late")
    assert row.state == "RUNNING"


async def test_gaps_name_what_is_missing(ledger: Ledger):
    for workload in ("w1", "w2"):
        journal = Journal(workload)
        for number in range(10):
            journal.add("Tick", data={"n": number})
        kept = [e for e in journal.events if e.seq not in {0, 1, 4, 7, 8}]
        await ledger.append(kept if workload == "w1" else journal.events)
    assert await ledger.gaps() == [Gap("w1", "run-1", [(0, 1), (4, 4), (7, 8)])]
    await ledger.append(journal_of("w1", 10)[:8])
    assert await ledger.gaps() == [Gap("w1", "run-1", [(8, 8)])]
    await ledger.append(journal_of("w1", 10))
    assert await ledger.gaps() == []


async def test_the_journal_is_read_from_where_one_was(ledger: Ledger):
    events = journal_of("w", 10)
    await ledger.append(events)
    seen = await ledger.events("w", limit=4)
    assert seen == events[:4]
    last = seen[-1]
    rest = await ledger.events("w", after=(last.at_ms, last.run, last.seq))
    assert rest == events[4:]


async def test_lists_are_filtered_and_paged_newest_first(ledger: Ledger):
    for number in range(12):
        journal = Journal(f"w{number:02}", at_ms=1_000 * number)
        parity = "even" if number % 2 == 0 else "odd"
        journal.submitted(
            queue="q1" if number < 6 else "q2",
            name=f"n{number}",
            labels={"parity": parity, "team": "a"},
        )
        if number % 3 == 0:
            journal.finished("FAILED", "STEP_FAILED")
        await ledger.append(journal.events)

    async def ids(**wanted: Any) -> list[str]:
        page = await ledger.list_workloads(WorkloadQuery(**wanted))
        return [row.workload for row in page.rows]

    assert await ids() == [f"w{n:02}" for n in range(11, -1, -1)]
    assert await ids(states=("FAILED",)) == ["w09", "w06", "w03", "w00"]
    assert await ids(states=("FAILED", "RUNNING"), queue="q1", limit=2) == ["w05", "w04"]
    assert await ids(labels={"parity": "odd", "team": "a"}, queue="q2") == ["w11", "w09", "w07"]
    assert await ids(labels={"parity": "odd", "team": "b"}) == []
    assert await ids(labels={"parity": "\0"}) == []
    assert await ids(name="n3") == ["w03"]
    assert await ids(since_ms=9_000, before_ms=11_000) == ["w10", "w09"]
    assert await ids(pool="other") == []

    query, seen = WorkloadQuery(labels={"parity": "even"}, limit=4), []
    while True:
        page = await ledger.list_workloads(query)
        seen.append([row.workload for row in page.rows])
        if not page.next:
            break
        query = replace(query, page=page.next)
    assert seen == [["w10", "w08", "w06", "w04"], ["w02", "w00"]]
    with pytest.raises(ValueError, match="token"):
        await ledger.list_workloads(replace(query, page="~~~"))
    with pytest.raises(ValueError, match="limit"):
        await ledger.list_workloads(WorkloadQuery(limit=0))


async def test_labels_follow_the_submission(ledger: Ledger):
    journal = Journal("w")
    journal.submitted(labels={"v": "1"})
    await ledger.append(journal.events)
    again = journal.continued("run-2")
    again.submitted(labels={"v": "2"})
    await ledger.append(again.events)
    page = await ledger.list_workloads(WorkloadQuery(labels={"v": "1"}))
    assert page.rows == []
    page = await ledger.list_workloads(WorkloadQuery(labels={"v": "2"}))
    assert [row.workload for row in page.rows] == ["w"]


async def test_an_idempotency_key_is_claimed_once(ledger: Ledger):
    claims = await asyncio.gather(*(ledger.claim_key("k", f"digest-{n % 2}") for n in range(8)))
    assert [claim.verdict for claim in claims].count("new") == 1
    winner = next(claim for claim in claims if claim.verdict == "new")
    for number, claim in enumerate(claims):
        assert (claim.digest, claim.claimed_ms) == (winner.digest, winner.claimed_ms)
        if claim is not winner:
            same = f"digest-{number % 2}" == winner.digest
            assert claim.verdict == ("same" if same else "conflict")


async def test_fences_only_rise(ledger: Ledger):
    assert await ledger.fence("p") == 0
    raised = await asyncio.gather(*(ledger.raise_fence("p", n) for n in (5, 9, 2, 9, 7)))
    assert max(raised) == 9
    assert await ledger.raise_fence("p", 3) == 9
    assert (await ledger.fence("p"), await ledger.fence("other")) == (9, 0)


async def test_many_writers_lose_nothing_and_agree(ledger: Ledger, ledger_url: str):
    journals = [one_step(f"w{n}") for n in range(10)]
    writers = [ledger, *(open_ledger(ledger_url) for _ in range(3))]

    async def write(number: int, writer: Ledger) -> None:
        # Each brings every fourth event of every workload, and some that others bring, too.
        mine = [e for events in journals for e in events if e.seq % 4 in (number, number + 1)]
        for start in range(0, len(mine), 3):
            await writer.append(mine[start : start + 3])

    await asyncio.gather(*(write(number, writer) for number, writer in enumerate(writers)))
    for writer in writers[1:]:
        await writer.close()
    assert await ledger.gaps() == []
    for number, events in enumerate(journals):
        workload = f"w{number}"
        assert await ledger.events(workload) == events
        [attempt] = await ledger.attempts(workload)
        assert (attempt.outcome, attempt.queue_wait_ms, attempt.run_ms) == ("SUCCEEDED", 40, 473)
        row = await ledger.workload(workload)
        assert row is not None
        assert (row.state, row.name) == ("SUCCEEDED", "ci")


async def test_writers_of_the_same_attempt_see_each_other(ledger: Ledger, ledger_url: str):
    """Each folds what all have written: a fold of half the events must not be the last word."""
    journals = [
        # Every event by a run of its own, so that they have no row in common but the workload's.
        [event.model_copy(update={"run": f"run-{event.seq}"}) for event in one_step(f"w{n}")]
        for n in range(8)
    ]
    writers = [ledger, *(open_ledger(ledger_url) for _ in range(3))]
    for events in journals:
        await ledger.append(events[:1])
    await asyncio.gather(
        *(
            writers[(event.seq + position) % 4].append([event])
            for position, events in enumerate(journals)
            for event in events[1:]
        )
    )
    for writer in writers[1:]:
        await writer.close()
    for number in range(len(journals)):
        [attempt] = await ledger.attempts(f"w{number}")
        assert (attempt.state, attempt.node, attempt.queue_wait_ms) == ("ENDED", "n1", 40)
        assert (await ledger.steps(f"w{number}"))[0].state == "SUCCEEDED"
        row = await ledger.workload(f"w{number}")
        assert row is not None
        assert row.state == "SUCCEEDED"


async def test_a_status_is_made_of_what_was_told(ledger: Ledger):
    assert await read_status(ledger, "w") is None
    journal = Journal("w")
    journal.submitted(queue="q", labels={"a": "b"})
    journal.queued()
    granted = journal.granted()
    output = OutputRef(sha256="0" * 64, size_bytes=2, inline=True, value={})
    journal.ended(output=output, exit_code=0)
    journal.add("StepSucceeded", "build", 1, state="SUCCEEDED")
    journal.queued("test")
    journal.add("CancelRequested", data={"by": "ann"})
    await ledger.append(journal.events)
    status = await read_status(ledger, "w")
    assert status is not None
    assert (status.id, status.queue, status.labels) == ("w", "q", {"a": "b"})
    assert (status.started_ms, status.finished_ms) == (granted.at_ms, None)
    assert status.cancel is not None
    assert status.cancel.by == "ann"
    assert status.counts == {"QUEUED": 1, "SUCCEEDED": 1}
    build, test = status.steps
    assert (build.name, build.state, build.output) == ("build", StepState.SUCCEEDED, output)
    assert build.attempts[0].outcome is Outcome.SUCCEEDED
    assert (test.state, test.attempts[0].state) == (StepState.QUEUED, "REQUESTED")

    journal.finished("CANCELLED", "CANCEL_REQUESTED")
    await ledger.append(journal.events)
    status = await read_status(ledger, "w")
    assert status is not None
    assert (status.status, status.reason) == ("CANCELLED", "CANCEL_REQUESTED")


async def test_a_closed_ledger_says_so(ledger: Ledger):
    await ledger.ping()
    await ledger.close()
    await ledger.close()
    with pytest.raises(LedgerUnavailableError, match="closed"):
        await ledger.ping()
    with pytest.raises(LedgerUnavailableError):
        await ledger.append(one_step("w"))


def journal_of(workload: str, length: int) -> list[JournalEvent]:
    journal = Journal(workload)
    for number in range(length):
        journal.add("Tick", data={"n": number})
    return journal.events


async def everything(ledger: Ledger, workload: str) -> object:
    return (
        await ledger.workload(workload),
        await ledger.steps(workload),
        await ledger.attempts(workload),
        await ledger.events(workload),
    )
