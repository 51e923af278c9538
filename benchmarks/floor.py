"""The floors: what Temporal alone does with the same server and the same number of processes.

One workflow worker and one activity worker, as Headbay has a control worker and a node worker.
Every activity makes one acknowledged heartbeat, since a lease needs one. Nothing here imports
Headbay's workflows.
"""

import asyncio
import signal
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.api.workflowservice.v1 import RecordActivityTaskHeartbeatRequest
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

__all__ = ["ACTIVITY_QUEUE", "WORKFLOW_QUEUE", "FanOut", "One", "serve"]

WORKFLOW_QUEUE = "floor"
ACTIVITY_QUEUE = "floor-activities"

HEARTBEAT = timedelta(seconds=30)
ENDS = timedelta(minutes=10)


@workflow.defn
class One:
    """A workflow of one activity: the floor of a single-step workload."""

    @workflow.run
    async def run(self, argument: dict[str, str]) -> dict[str, str]:
        """Run the activity; its answer."""
        return await _step(argument)


@workflow.defn
class FanOut:
    """A workflow of many activities at once: the floor of a DAG."""

    @workflow.run
    async def run(self, count: int) -> int:
        """Run them; how many answered."""
        answers = await asyncio.gather(*(_step({"step": f"s{n}"}) for n in range(count)))
        return len(answers)


async def _step(argument: dict[str, str]) -> dict[str, str]:
    answer: dict[str, str] = await workflow.execute_activity(
        "floor_step",
        argument,
        result_type=dict[str, str],
        task_queue=ACTIVITY_QUEUE,
        heartbeat_timeout=HEARTBEAT,
        schedule_to_start_timeout=ENDS,
        start_to_close_timeout=ENDS,
        retry_policy=RetryPolicy(maximum_attempts=1),
    )
    return answer


class Steps:
    """The activity."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name="floor_step")
    async def step(self, argument: dict[str, str]) -> dict[str, str]:
        """Make one heartbeat that the server has acknowledged, then answer."""
        await self._client.workflow_service.record_activity_task_heartbeat(
            RecordActivityTaskHeartbeatRequest(
                namespace=self._client.namespace, task_token=activity.info().task_token
            )
        )
        return argument


async def serve(role: str, address: str, slots: int) -> None:
    """Run one of the two workers until SIGTERM."""
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    if role == "workflows":
        worker = Worker(
            client,
            task_queue=WORKFLOW_QUEUE,
            workflows=[One, FanOut],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_workflow_tasks=200,
            max_cached_workflows=1_000,
        )
    else:
        worker = Worker(
            client,
            task_queue=ACTIVITY_QUEUE,
            activities=[Steps(client).step],
            max_concurrent_activities=slots,
        )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with worker:
        print("ready", flush=True)
        await stop.wait()


def main() -> None:
    """`python -m benchmarks.floor_worker ROLE ADDRESS SLOTS`."""
    role, address, slots = sys.argv[1:]
    asyncio.run(serve(role, address, int(slots)))
