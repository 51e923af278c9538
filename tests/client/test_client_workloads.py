"""The client library on a real cluster: submit, follow, wait, cancel, read."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import pytest
from support.cluster import Cluster, until

from headbay.activities.places import Places
from headbay.client import (
    AttemptNotFoundError,
    BadWorkloadIdError,
    ConflictError,
    HeadbayClient,
    ListFilter,
    LogsElsewhereError,
    NotFoundError,
    Source,
    StepNotFoundError,
    WaitTimeoutError,
)
from headbay.domain.document import DocumentRefusedError
from headbay.domain.ids import CONTROL_QUEUE, workload_workflow_id

pytestmark = pytest.mark.cluster


def document(name="one", run="true", **more):
    return {"apiVersion": "headbay/v1", "name": name, "steps": [{"name": "s", "run": run}]} | more


SLEEPS = "sleep 300"


async def finished(headbay, doc, **more):
    return await (await headbay.submit(doc, **more)).wait(timeout_s=60)


async def test_a_workload_goes_from_submission_to_its_result(headbay):
    handle = await headbay.submit(document(run="echo hi"))
    assert handle.created
    assert handle.id.startswith("one-")
    final = await handle.wait(timeout_s=60)
    assert final.source is Source.RESULT
    assert final.workload.id == handle.id
    assert final.workload.status == "SUCCEEDED"
    assert final.workload.steps[0].attempts[0].exit_code == 0


async def test_the_same_id_and_document_are_the_same_workload(headbay):
    doc = document("idem")
    first = await headbay.submit(doc, id="idem-1")
    again = await headbay.submit(doc, id="idem-1")
    assert (first.created, again.created) == (True, False)
    assert again.digest == first.digest
    final = await again.wait(timeout_s=60)
    # Finished ones are found too: the id is the key for ever, not while it runs.
    late = await headbay.submit(doc, id="idem-1")
    assert late.created is False
    assert (await late.status()).workload.submitted_ms == final.workload.submitted_ms


async def test_a_different_document_under_the_same_id_is_a_conflict(headbay):
    await headbay.submit(document("conflict"), id="conflict-1")
    with pytest.raises(ConflictError, match="headbay status conflict-1") as caught:
        await headbay.submit(document("conflict", run="false"), id="conflict-1")
    assert caught.value.code == "CONFLICT"
    assert caught.value.ours != caught.value.theirs


@pytest.fixture
async def forgetful(cluster, tmp_path):
    """A client whose Temporal remembers nothing, beside the same ledger: as after retention."""
    other = Cluster(tmp_path / "other", ledger=cluster.env["HEADBAY_LEDGER"])
    try:
        await other.start_server()
        async with await HeadbayClient.connect(environ=other.env) as client:
            yield client
    finally:
        other.stop()


async def test_an_id_is_kept_beyond_temporals_memory_by_the_ledger(headbay, forgetful):
    doc = document("kept")
    await finished(headbay, doc, id="kept-1")

    async def told():
        listed = await forgetful.list(ListFilter(limit=1000))
        return {"kept-1": "SUCCEEDED"}.items() <= {w.id: w.status for w in listed.workloads}.items()

    await until(told, 20)
    assert (await forgetful.submit(doc, id="kept-1")).created is False
    with pytest.raises(ConflictError):
        await forgetful.submit(document("kept", run="false"), id="kept-1")
    reading = await forgetful.status("kept-1")
    assert reading.source is Source.LEDGER
    assert "no longer keeps it" in reading.note
    assert reading.workload.steps[0].attempts[0].exit_code == 0
    waited = await forgetful.wait("kept-1", timeout_s=10)
    assert waited.workload.status == "SUCCEEDED"
    listed = await forgetful.list(ListFilter(limit=1000))
    assert [w.source for w in listed.workloads if w.id == "kept-1"] == [Source.LEDGER]
    assert (await forgetful.history("kept-1")).events[-1].kind == "WorkloadFinished"


async def test_a_foreign_clients_workload_is_recognised_by_its_document(headbay):
    doc = document("foreign")
    await headbay.temporal.start_workflow(
        "Workload", args=[doc], id=workload_workflow_id("foreign-1"), task_queue=CONTROL_QUEUE
    )
    assert (await headbay.submit(doc, id="foreign-1")).created is False
    with pytest.raises(ConflictError):
        await headbay.submit(document("foreign", run="false"), id="foreign-1")


async def test_a_refused_document_starts_nothing(headbay):
    with pytest.raises(DocumentRefusedError) as caught:
        await headbay.submit(document(run=3), id="refused-1")
    assert caught.value.problems[0].path == "steps[0].run"
    with pytest.raises(NotFoundError):
        await headbay.status("refused-1")


async def test_a_bad_id_is_refused_before_anything_is_asked(headbay):
    with pytest.raises(BadWorkloadIdError):
        await headbay.submit(document(), id="a b")
    with pytest.raises(BadWorkloadIdError):
        await headbay.status("a/b")


async def test_following_shows_the_way_and_ends_with_the_result(headbay):
    handle = await headbay.submit(
        {
            "apiVersion": "headbay/v1",
            "name": "way",
            "steps": [
                {"name": "a", "run": "sleep 1"},
                {"name": "b", "run": "sleep 1", "dependsOn": "a"},
            ],
        }
    )
    seen = [reading async for reading in handle.follow()]
    states = [{s.name: s.state.value for s in r.workload.steps} for r in seen]
    assert {"a": "SUCCEEDED", "b": "RUNNING"} in states
    assert seen[-1].source is Source.RESULT
    assert states[-1] == {"a": "SUCCEEDED", "b": "SUCCEEDED"}
    for earlier, later in pairwise(seen):
        assert earlier.workload != later.workload or earlier.source is not later.source


async def test_following_is_cheap_while_nothing_changes(headbay, monkeypatch):
    handle = await headbay.submit(document("cheap", run=SLEEPS))
    looks = 0
    glance = headbay._reader.glance

    async def counted(workload):
        nonlocal looks
        looks += 1
        return await glance(workload)

    monkeypatch.setattr(headbay._reader, "glance", counted)

    async def watch():
        async for _ in handle.follow():
            pass

    watching = asyncio.create_task(watch())
    await asyncio.sleep(6)
    assert looks <= 16
    await handle.cancel()
    await asyncio.wait_for(watching, 30)


async def test_waiting_no_longer_than_wanted_leaves_it_alone(headbay):
    handle = await headbay.submit(document("patience", run=SLEEPS))
    start = time.monotonic()
    with pytest.raises(WaitTimeoutError, match="goes on"):
        await handle.wait(timeout_s=0.5)
    assert time.monotonic() - start < 3
    assert (await handle.status()).workload.status == "RUNNING"
    await handle.cancel()
    await handle.wait(timeout_s=30)


async def test_a_failed_workload_is_a_result_not_an_exception(headbay):
    final = await finished(headbay, document("failing", run="exit 3"))
    assert final.workload.status == "FAILED"
    assert final.workload.steps[0].attempts[0].exit_code == 3
    assert final.source is Source.RESULT


async def test_cancel_is_answered_and_kept_and_repeatable(headbay):
    handle = await headbay.submit(document("cancelled", run=SLEEPS))
    assert (await handle.cancel("not needed")).accepted
    again = await handle.cancel("really")
    final = await handle.wait(timeout_s=30)
    assert final.workload.status == "CANCELLED"
    assert final.workload.cancel is not None
    assert final.workload.cancel.reason == "not needed"
    assert "@" in final.workload.cancel.by
    assert again.accepted or again.code == "ALREADY_FINISHED"
    late = await handle.cancel()
    assert (late.accepted, late.code) == (False, "ALREADY_FINISHED")


async def test_operations_on_what_is_not_there_say_so(headbay):
    for call in (
        headbay.cancel("nobody"),
        headbay.resolve("nobody", "s", "retry"),
        headbay.status("nobody"),
        headbay.history("nobody"),
        headbay.wait("nobody"),
        headbay.explain("nobody"),
    ):
        with pytest.raises(NotFoundError) as caught:
            await call
        assert caught.value.name == "nobody"
    with pytest.raises(NotFoundError):
        await headbay.cordon("nobody")


async def test_only_an_unresolved_step_can_be_resolved(headbay):
    handle = await headbay.submit(document("resolved", run=SLEEPS))
    answer = await handle.resolve("s", "success")
    assert not answer.accepted
    assert answer.message
    await handle.cancel()


async def test_a_terminated_workflow_reads_as_failed_and_says_why(headbay):
    handle = await headbay.submit(document("ended", run=SLEEPS))
    workflow = headbay.temporal.get_workflow_handle(workload_workflow_id(handle.id))

    async def runs():
        return (await handle.status()).workload.counts.get("RUNNING")

    await until(runs, 30)
    waiting = asyncio.create_task(handle.wait(timeout_s=30))
    await workflow.terminate(reason="by hand")
    final = await waiting
    assert (final.workload.status, final.workload.reason) == ("FAILED", "TERMINATED")
    assert "by hand" in final.workload.message
    assert final.workload.steps[0].name == "s"


async def test_a_refusal_by_the_workflow_itself_reads_as_failed(headbay):
    await headbay.temporal.start_workflow(
        "Workload",
        args=[{"steps": 3}],
        id=workload_workflow_id("refused-2"),
        task_queue=CONTROL_QUEUE,
    )
    final = await headbay.wait("refused-2", timeout_s=30)
    assert (final.workload.status, final.workload.reason) == ("FAILED", "DOCUMENT_REFUSED")


async def test_explain_names_what_would_help(headbay):
    blocker = await headbay.submit(
        {
            "apiVersion": "headbay/v1",
            "name": "blocker",
            "steps": [{"name": "s", "run": SLEEPS, "resources": {"cpu": 4}}],
        }
    )

    async def runs():
        return (await blocker.status()).workload.counts.get("RUNNING")

    await until(runs, 30)
    waits = await headbay.submit(
        {
            "apiVersion": "headbay/v1",
            "name": "waits",
            "steps": [
                {"name": "s", "run": "true", "resources": {"cpu": 3}},
                {"name": "t", "run": "true", "dependsOn": "s"},
            ],
        }
    )

    async def queued():
        return (await waits.explain()).steps[0].reasons

    await until(queued, 30)
    found = await waits.explain()
    first, second = found.steps
    assert first.position is not None
    assert first.reasons[0].code == "INSUFFICIENT_FREE"
    assert second.waits_for == {"s": "QUEUED"}
    with pytest.raises(StepNotFoundError, match="it has: s, t"):
        await waits.explain("nope")
    queue = next(q for q in (await headbay.queues()).queues if q.name == "default")
    assert queue.pending >= 1
    assert [w.step for w in queue.next if w.workload == waits.id] == ["s"]
    await waits.cancel()
    await blocker.cancel()
    await blocker.wait(timeout_s=30)


async def test_lists_filter_by_label_exactly_and_tell_failed_from_cancelled(headbay):
    labels = {"Team": "Web's"}
    failed = await headbay.submit(document("f", run="false", labels=labels))
    cancelled = await headbay.submit(document("c", run=SLEEPS, labels=labels))
    other = await headbay.submit(document("o", labels={"Team": "web's"}))
    await cancelled.cancel()
    for handle in (failed, cancelled, other):
        await handle.wait(timeout_s=30)

    async def listed(**wanted):
        rows = (await headbay.list(ListFilter(labels=labels, **wanted))).workloads
        return {row.id: row.status.value for row in rows}

    both = {failed.id: "FAILED", cancelled.id: "CANCELLED"}

    async def settled():
        return await listed() == both

    await until(settled, 20, "both in the list")
    assert await listed(failed=True) == {failed.id: "FAILED"}
    assert await listed(running=True) == {}
    assert await listed(queue="other") == {}


async def test_history_comes_from_the_ledger_and_is_complete(headbay):
    handle = await headbay.submit(document("told"))
    await handle.wait(timeout_s=30)

    async def complete():
        history = await handle.history()
        kinds = [event.kind for event in history.events]
        return history.source is Source.LEDGER and kinds[-1:] == ["WorkloadFinished"] and kinds

    kinds = await until(complete, 20)
    assert kinds[0] == "WorkloadSubmitted"
    assert "AttemptEnded" in kinds


async def test_without_a_ledger_history_is_the_workflows_and_says_so(headbay, cluster):
    handle = await headbay.submit(document("untold"))
    await handle.wait(timeout_s=30)
    environ = {k: v for k, v in cluster.env.items() if k != "HEADBAY_LEDGER"}
    async with await HeadbayClient.connect(environ=environ) as client:
        history = await client.history(handle.id)
    assert history.source is Source.WORKFLOW
    assert "no ledger is configured" in history.note
    assert history.events[-1].kind == "WorkloadFinished"
    assert history.events[0].run


async def test_nodes_are_cordoned_and_taken_back(headbay):
    assert (await headbay.cordon("n1", "disk swap")).accepted

    async def shown(cordoned):
        row = next(n for n in (await headbay.nodes()).nodes if n.name == "n1")
        return row if row.cordoned is cordoned else None

    async def is_cordoned():
        return await shown(True)

    async def is_back():
        return await shown(False)

    row = await until(is_cordoned, 20)
    assert (row.state, row.reason) == ("up", "disk swap")
    assert row.capacity["cpu"] == 4000
    assert row.isolation == "unenforced"
    assert (await headbay.uncordon("n1")).accepted
    await until(is_back, 20)


async def test_logs_are_read_while_it_runs_and_afterwards(headbay):
    handle = await headbay.submit(
        document("loud", run="echo one; sleep 1; echo two >&2; echo three; exit 1")
    )
    pieces = [piece async for piece in handle.logs(follow=True)]
    assert b"".join(p.data for p in pieces) == b"one\ntwo\nthree\n"
    assert {(p.step, p.attempt) for p in pieces if p.data} == {("s", 1)}
    again = [piece.data async for piece in handle.logs("s")]
    assert b"".join(again) == b"one\ntwo\nthree\n"
    with pytest.raises(StepNotFoundError):
        _ = [piece async for piece in handle.logs("nope")]


async def test_every_attempt_is_shown_when_following(headbay):
    retried = {
        "apiVersion": "headbay/v1",
        "name": "retried",
        "steps": [
            {
                "name": "s",
                "run": "echo try; exit 1",
                "retry": {"maxAttempts": 3, "backoff": {"initial": "10ms"}},
            }
        ],
    }
    handle = await headbay.submit(retried)
    pieces = [p async for p in handle.logs(follow=True) if p.data]
    assert sorted((p.attempt, p.data) for p in pieces) == [
        (1, b"try\n"),
        (2, b"try\n"),
        (3, b"try\n"),
    ]
    last = [p.attempt async for p in handle.logs()]
    assert last == [3]
    with pytest.raises(AttemptNotFoundError, match="attempts so far: s 3"):
        _ = [p async for p in headbay.logs(handle.id, attempt=4)]


async def test_logs_of_another_machine_are_named(headbay, tmp_path):
    handle = await headbay.submit(document("far", run="echo hi"))
    await handle.wait(timeout_s=30)
    log = (await handle.status()).workload.steps[0].attempts[0].log
    assert log is not None

    kept = Path(log.path)

    async def moved():
        return await asyncio.to_thread(kept.exists)

    await until(moved, 20)
    aside = await asyncio.to_thread(kept.rename, kept.with_name("aside"))
    headbay.places = Places(tmp_path / "another-machine")
    try:
        with pytest.raises(LogsElsewhereError, match="on node n1") as caught:
            _ = [piece async for piece in handle.logs()]
        assert caught.value.path == log.path
    finally:
        await asyncio.to_thread(aside.rename, kept)
