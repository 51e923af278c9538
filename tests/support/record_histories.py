"""`python -m support.record_histories` (from tests/): record workflow histories for replay.

Run it once per release that changes a workflow on purpose, with `--name RELEASE`; old recordings
stay, since workflows of that age may still run.
"""

import argparse
import asyncio
import gzip
import tempfile
from pathlib import Path

from temporalio.client import WorkflowFailureError

from headbay.domain.ids import POOL_QUEUE, node_workflow_id, pool_workflow_id
from headbay.domain.node import NodeState
from support.cluster import Cluster, until

HISTORIES = Path(__file__).parent.parent / "workflows" / "histories"
SMALL = {"memory": "16Mi"}


async def record(root: Path, target: Path) -> None:
    """Live through what workflows must be able to replay."""
    cluster = Cluster(root, control_options=["--pool-continue-after", "120"])
    try:
        await cluster.start_server()
        cluster.start_control()
        await cluster.client.start_workflow(
            "Node",
            NodeState(name="n1", continue_after_events=20),
            id=node_workflow_id("n1"),
            task_queue=POOL_QUEUE,
        )
        cluster.start_node("n1", "--cpu", "4", "--memory", "4Gi")
        await cluster.node_up("n1")
        await live(cluster)
        await save(cluster, target)
    finally:
        cluster.stop()


async def live(cluster: Cluster) -> None:
    """Success, failure, retry, matrix, cancel, doubt, loss, cordon, a pool that continues."""
    step = {"name": "s", "run": "true", "resources": SMALL}
    documents = {
        "one": {"steps": [step]},
        "dag": {
            "maxParallel": 3,
            "steps": [
                {**step, "name": "m", "matrix": {"N": [str(n) for n in range(6)]}},
                {**step, "name": "join", "dependsOn": "m", "trigger": "all_done"},
            ],
        },
        "fails": {
            "steps": [
                {
                    **step,
                    "run": "exit 3",
                    "retry": {"maxAttempts": 2, "backoff": {"initial": "1s"}},
                },
                {**step, "name": "after", "dependsOn": "s"},
            ]
        },
        "huge": {"steps": [{**step, "resources": {"cpu": 64}}]},
        "portions": {
            "defaults": {"env": {f"V{n}": "x" * 60_000 for n in range(5)}},
            "steps": [
                {**step, "name": f"s{n}", "resources": {**SMALL, "cpu": "100m"}} for n in range(4)
            ],
        },
    }
    long_dag = {
        "maxParallel": 4,
        "steps": [
            {**step, "name": "m", "matrix": {"N": [str(n) for n in range(30)]}},
            {**step, "name": "join", "dependsOn": "m"},
        ],
    }
    continued = await cluster.submit("continued", long_dag, {"continue_after_events": 60})
    handles = [await cluster.submit(name, document) for name, document in documents.items()]
    await asyncio.gather(*(h.result() for h in handles), return_exceptions=True)
    await continued.result()
    long = {"steps": [{**step, "run": "sleep 300", "lease": "8s", "grace": "1s"}]}
    cancelled = await cluster.submit("cancelled", long)

    async def runs() -> bool:
        return (await cluster.step("cancelled", "s"))["state"] == "RUNNING"

    await until(runs)
    await cancelled.execute_update("cancel", {"by": "ann", "reason": "enough"})
    node = cluster.client.get_workflow_handle(node_workflow_id("n1"))
    await node.execute_update("cordon", {"by": "ann", "reason": "look"})
    await node.signal("uncordon", {"by": "ann"})
    await drains(cluster)
    mark = cluster.root / "mark"
    doubt = await cluster.submit(
        "doubt",
        {
            "steps": [
                {
                    **step,
                    "run": f"touch {mark}; sleep 300",
                    "repeat": "never",
                    "lease": "8s",
                    "grace": "1s",
                }
            ]
        },
    )

    async def started() -> bool:
        return mark.exists()

    await until(started)
    cluster.parts["n1"].kill()

    async def unresolved() -> bool:
        return (await cluster.step("doubt", "s"))["state"] == "UNRESOLVED"

    await until(unresolved, 60)
    await doubt.execute_update("resolve", {"step": "s", "verdict": "failure", "by": "ann"})

    async def lost() -> bool:
        return (await cluster.node())["state"] == "lost"

    await until(lost, 40)
    cluster.parts["n1"].start()
    await cluster.node_up("n1")
    many = [await cluster.submit(f"many{n}", documents["one"]) for n in range(40)]
    await asyncio.gather(*(h.result() for h in many))
    try:
        await doubt.result()
    except WorkflowFailureError:
        return
    raise AssertionError("a step resolved as failure must fail its workload")


async def drains(cluster: Cluster) -> None:
    """A drain whose deadline another one moves, and one that is taken back."""
    node = cluster.client.get_workflow_handle(node_workflow_id("n1"))
    long = {"name": "s", "run": "sleep 300", "grace": "1s", "resources": SMALL}
    drained = await cluster.submit("drained", {"steps": [long]})

    async def state() -> str:
        return (await cluster.step("drained", "s"))["state"]

    async def runs() -> bool:
        return await state() == "RUNNING"

    async def preempted() -> bool:
        return await state() == "QUEUED"

    await until(runs)
    await node.execute_update("drain", {"by": "ann", "deadline_s": 6})
    await node.execute_update("drain", {"by": "ann", "deadline_s": 1})
    await until(preempted)
    await drained.execute_update("cancel", {"by": "ann"})
    await node.execute_update("drain", {"by": "ann", "deadline_s": 3_600})
    await node.execute_update("uncordon", {"by": "ann"})


async def save(cluster: Cluster, target: Path) -> None:
    """Write every run of the interesting workflows."""

    names = ["one", "dag", "fails", "huge", "cancelled", "doubt", "continued", "portions"]
    wanted = [f"headbay/w/{name}" for name in names]
    wanted += [pool_workflow_id("default"), node_workflow_id("n1")]
    for workflow_id in wanted:
        query = f"WorkflowId = '{workflow_id}'"
        runs = [execution async for execution in cluster.client.list_workflows(query)]
        runs.sort(key=lambda execution: execution.start_time)
        for number, execution in enumerate(runs[:4]):
            handle = cluster.client.get_workflow_handle(workflow_id, run_id=execution.run_id)
            history = await handle.fetch_history()
            name = workflow_id.removeprefix("headbay/").replace("/", "-")
            body = gzip.compress(history.to_json().encode(), mtime=0)
            (target / f"{name}.{number}.json.gz").write_bytes(body)


def main() -> None:
    """Entry point."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--name", required=True, help="release whose histories these are")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as root:
        target = HISTORIES / arguments.name
        target.mkdir(parents=True, exist_ok=True)
        asyncio.run(record(Path(root), target))


if __name__ == "__main__":
    main()
