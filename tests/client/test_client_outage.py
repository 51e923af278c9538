"""The client while parts of the cluster are away: it says so, waits, and goes on."""

import asyncio
import time

import pytest
from support.cluster import Cluster, until

from headbay.client import HeadbayClient, Source
from headbay.client.errors import ServerUnreachableError
from headbay.domain.ids import workload_workflow_id

pytestmark = pytest.mark.cluster


@pytest.fixture
async def frail(tmp_path):
    """A cluster of a test's own, whose parts it may kill."""
    made = Cluster(tmp_path)
    try:
        await made.start_server()
        made.start_control()
        made.start_node("n1", "--cpu", "4", "--memory", "8Gi")
        await made.node_up("n1")
        yield made
    finally:
        made.stop()


def document(run):
    return {"apiVersion": "headbay/v1", "name": "w", "steps": [{"name": "s", "run": run}]}


async def running(handle):
    async def runs():
        return (await handle.status()).workload.counts.get("RUNNING")

    await until(runs, 30)


async def test_without_a_control_worker_the_ledger_answers_and_orders_are_kept(frail):
    async with await HeadbayClient.connect(environ=frail.env) as headbay:
        handle = await headbay.submit(document("sleep 300"))
        await running(handle)
        frail.parts["control"].kill()
        start = time.monotonic()
        reading = await handle.status()
        assert time.monotonic() - start < 5
        assert reading.source is Source.LEDGER
        assert "no control worker answered" in reading.note
        # What it last heard: a grant is told with the workload's next message.
        assert reading.workload.steps[0].state in ("QUEUED", "RUNNING")
        unheard = await headbay.submit(document("true"))
        start = time.monotonic()
        reading = await unheard.status()
        assert time.monotonic() - start < 5
        assert reading.source is Source.DESCRIPTION
        assert reading.workload.status == "RUNNING"
        answer = await handle.cancel("while nobody listens")
        assert (answer.accepted, answer.code) == (True, "RECORDED")
        nodes = await headbay.nodes()
        assert nodes.notes
        assert [n.state for n in nodes.nodes] == ["unknown"]
        frail.start_control()
        final = await handle.wait(timeout_s=60)
        assert final.workload.status == "CANCELLED"
        assert final.workload.cancel is not None
        assert final.workload.cancel.reason == "while nobody listens"
        assert (await unheard.wait(timeout_s=60)).workload.status == "SUCCEEDED"


async def test_followers_and_waiters_outlast_a_server_that_is_killed(frail):
    async with await HeadbayClient.connect(environ=frail.env) as headbay:
        handle = await headbay.submit(document("sleep 8; echo done"))
        await running(handle)
        troubles = []
        waiting = asyncio.create_task(handle.wait(timeout_s=100, on_trouble=troubles.append))
        seen = []

        async def watch():
            async for reading in handle.follow():
                seen.append(reading)  # noqa: PERF401 - one by one, as they come

        watching = asyncio.create_task(watch())
        await asyncio.sleep(1)
        frail.parts["server"].kill()

        async def noticed():
            return bool(troubles)

        await until(noticed, 60)
        frail.parts["server"].start()
        final = await waiting
        assert final.workload.status == "SUCCEEDED"
        await asyncio.wait_for(watching, 60)
        assert seen[-1].workload.status == "SUCCEEDED"
        assert len(troubles) <= 3


async def test_a_waiter_follows_a_reset_to_the_new_run(frail):
    async with await HeadbayClient.connect(environ=frail.env) as headbay:
        handle = await headbay.submit(document("sleep 2; echo again"))
        await running(handle)
        waiting = asyncio.create_task(handle.wait(timeout_s=100))
        await asyncio.sleep(0.3)
        await reset(headbay, handle.id)
        final = await waiting
        assert final.source is Source.RESULT
        assert final.workload.status == "SUCCEEDED"


async def reset(headbay, workload):
    """As `temporal workflow reset --type FirstWorkflowTask` does."""
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

    workflow = workload_workflow_id(workload)
    described = await headbay.temporal.get_workflow_handle(workflow).describe()
    await headbay.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=workflow, run_id=described.run_id),
            workflow_task_finish_event_id=4,
            request_id="reset-1",
            reason="test",
        )
    )


async def test_a_server_that_is_away_is_named(tmp_path):
    environ = {"TEMPORAL_ADDRESS": "127.0.0.1:1", "HEADBAY_STATE": str(tmp_path)}
    start = time.monotonic()
    with pytest.raises(ServerUnreachableError, match=r"127\.0\.0\.1:1") as caught:
        await HeadbayClient.connect(environ=environ, wait_s=0.5)
    assert time.monotonic() - start < 5
    assert caught.value.address == "127.0.0.1:1"
