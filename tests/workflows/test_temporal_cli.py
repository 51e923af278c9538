"""Every operation with nothing but Temporal's own command line."""

import asyncio
import json

import pytest
from support.cluster import Cluster, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


async def temporal(cluster: Cluster, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "temporal",
        *words,
        env=cluster.env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def signal(cluster: Cluster, workflow: str, name: str, order: object) -> None:
    await temporal(
        cluster, "workflow", "signal", "-w", workflow, "--name", name, "--input", json.dumps(order)
    )


async def query(cluster: Cluster, workflow: str, name: str, *argument: object):
    words = ["workflow", "query", "-w", workflow, "--type", name, "-o", "json"]
    for value in argument:
        words += ["--input", json.dumps(value)]
    return json.loads(await temporal(cluster, *words))["queryResult"][0]


async def start(cluster: Cluster, workload: str, document: dict) -> None:
    body = {"apiVersion": "headbay/v1", "name": workload, **document}
    await temporal(
        cluster,
        *("workflow", "start", "--type", "Workload", "--task-queue", "headbay"),
        *("-w", f"headbay/w/{workload}", "--input", json.dumps(body)),
    )


async def until_query(cluster: Cluster, workflow: str, holds, *question: object):
    async def look():
        answer = await query(cluster, workflow, *question)
        return answer if holds(answer) else None

    return await until(look, 45, f"{question} of {workflow}")


async def test_a_workload_is_started_watched_explained_and_cancelled(cluster):
    await start(cluster, "cli", {"steps": [{"name": "s", "run": "sleep 300", "grace": "1s"}]})
    await until_query(
        cluster, "headbay/w/cli", lambda s: s["steps"][0]["state"] == "RUNNING", "state"
    )
    await start(
        cluster,
        "waits",
        {"steps": [{"name": "s", "run": "true", "resources": {"cpu": 4, "memory": "16Mi"}}]},
    )
    rows = await until_query(
        cluster, "headbay/pool/default", bool, "explain", {"workload": "waits"}
    )
    assert rows[0]["reasons"][0]["code"] == "INSUFFICIENT_FREE"
    queues = await query(cluster, "headbay/pool/default", "queues")
    assert (queues[0]["pending"], queues[0]["running"]) == (1, 1)
    assert len(await query(cluster, "headbay/pool/default", "allocations")) == 1
    await signal(cluster, "headbay/w/cli", "cancel", {"by": "ann", "reason": "enough"})
    status = await until_query(
        cluster, "headbay/w/cli", lambda s: s["status"] == "CANCELLED", "state"
    )
    assert status["cancel"]["by"] == "ann"
    journal = await query(cluster, "headbay/w/cli", "journal", 0)
    assert [event["seq"] for event in journal] == list(range(len(journal)))
    assert journal[-1]["kind"] == "WorkloadFinished"
    await until_query(cluster, "headbay/w/waits", lambda s: s["status"] == "SUCCEEDED", "state")


async def test_a_node_is_cordoned_uncordoned_and_drained(cluster):
    node = "headbay/node/n1"
    await signal(cluster, node, "cordon", {"by": "ann", "reason": "disk"})
    state = await until_query(cluster, node, lambda s: s["cordoned"], "state")
    assert (state["by"], state["reason"]) == ("ann", "disk")
    await start(cluster, "held", {"steps": [{"name": "s", "run": "sleep 300", "grace": "1s"}]})
    rows = await until_query(cluster, "headbay/pool/default", bool, "explain", {"workload": "held"})
    assert rows[0]["reasons"][0]["code"] == "NODES_CORDONED"
    await signal(cluster, node, "uncordon", {"by": "ann"})
    await until_query(
        cluster, "headbay/w/held", lambda s: s["steps"][0]["state"] == "RUNNING", "state"
    )
    await signal(cluster, node, "drain", {"by": "ann", "deadline_s": 1})
    status = await until_query(
        cluster,
        "headbay/w/held",
        lambda s: (s["steps"][0].get("attempts") or [{}])[0].get("outcome") == "PREEMPTED",
        "state",
    )
    assert status["status"] == "RUNNING", "a preempted step waits for another place"
    (row,) = await query(cluster, "headbay/pool/default", "nodes")
    assert (row["draining"], row["used"]) == (True, {})
    await signal(cluster, "headbay/w/held", "cancel", {"by": "ann"})
    await until_query(cluster, "headbay/w/held", lambda s: s["status"] == "CANCELLED", "state")


async def test_an_unresolved_step_is_resolved(cluster, tmp_path):
    mark = tmp_path / "started"
    await start(
        cluster,
        "doubt",
        {
            "steps": [
                {
                    "name": "s",
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

    await until(started, 30, "the step has started")
    cluster.parts["n1"].kill()
    await until_query(
        cluster, "headbay/w/doubt", lambda s: s["steps"][0]["state"] == "UNRESOLVED", "state"
    )
    order = {"step": "s", "verdict": "success", "by": "ann", "reason": "looked at the target"}
    await signal(cluster, "headbay/w/doubt", "resolve", order)
    status = await until_query(
        cluster, "headbay/w/doubt", lambda s: s["status"] == "SUCCEEDED", "state"
    )
    assert status["steps"][0]["reason"] == "RESOLVED"


async def test_what_was_refused_can_be_read_back(cluster):
    await signal(cluster, "headbay/node/n1", "cordon", {"by": 5})
    (row,) = await until_query(cluster, "headbay/node/n1", bool, "refusals")
    assert row["code"] == "BAD_ARGUMENT"


async def test_a_drain_that_follows_another_one_counts_at_once(cluster):
    node = "headbay/node/n1"
    await start(cluster, "moved", {"steps": [{"name": "s", "run": "sleep 300", "grace": "1s"}]})
    await until_query(
        cluster, "headbay/w/moved", lambda s: s["steps"][0]["state"] == "RUNNING", "state"
    )
    await signal(cluster, node, "drain", {"by": "ann", "deadline_s": 3_600})
    await until_query(cluster, node, lambda s: s["draining"], "state")
    await signal(cluster, node, "drain", {"by": "ann", "deadline_s": 0})
    await until_query(
        cluster,
        "headbay/w/moved",
        lambda s: (s["steps"][0].get("attempts") or [{}])[0].get("outcome") == "PREEMPTED",
        "state",
    )
    await signal(cluster, node, "drain", {"by": "ann", "deadline_s": 10**15})
    await until_query(cluster, node, bool, "refusals")
    await signal(cluster, "headbay/w/moved", "cancel", {"by": "ann"})
    await until_query(cluster, "headbay/w/moved", lambda s: s["status"] == "CANCELLED", "state")


async def test_a_node_that_does_not_come_back_is_retired(cluster):
    node = "headbay/node/n1"
    await signal(cluster, node, "retire", {"by": "ann"})
    (row,) = await until_query(cluster, node, bool, "refusals")
    assert row["code"] == "NODE_ALIVE", "one that is alive must be stopped first"
    cluster.parts["n1"].kill()
    await until_query(cluster, node, lambda s: s["state"] == "lost", "state")
    await signal(cluster, node, "retire", {"by": "ann", "reason": "scrapped"})
    await until_query(cluster, "headbay/pool/default", lambda pool: not pool["nodes"], "state")
    shown = await temporal(cluster, "workflow", "describe", "-w", node, "-o", "json")
    assert json.loads(shown)["workflowExecutionInfo"]["status"].endswith("COMPLETED")
