"""Promise: what a workload says twice because its workflow task was lost neither leaks nor hangs.

A frozen server loses workflow tasks in whose middle the pool was already told of releases. They
are taken again from recorded history, with more in it, and tell the pool again.
"""

import asyncio
import signal

import pytest
from support.cluster import Cluster, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

STEPS = 1_000
FROZEN_S = 11.0
"""Longer than the ten seconds that a workflow task may take."""


async def test_a_wide_workload_survives_a_server_that_freezes_again_and_again(tmp_path):
    cluster = Cluster(tmp_path)
    try:
        await cluster.start_server()
        cluster.start_control()
        cluster.start_node("n1", "--cpu", "256", "--memory", "256Gi", executor="null")
        await cluster.node_up("n1")
        step = {"resources": {"cpu": 1, "memory": "1Mi", "tasks": 1}, "run": ["true"]}
        document = {"steps": [{"name": f"s{n}", **step} for n in range(STEPS)]}
        handle = await cluster.submit("wide", document)
        for _ in range(2):
            done = (await cluster.status("wide") or {"counts": {}})["counts"].get("SUCCEEDED", 0)

            async def further(done: int = done) -> bool:
                counts = (await cluster.status("wide") or {"counts": {}})["counts"]
                return counts.get("SUCCEEDED", 0) > done + 100

            await until(further, 60, "steps succeed")
            cluster.parts["server"].process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(FROZEN_S)
            cluster.parts["server"].process.send_signal(signal.SIGCONT)
        status = await asyncio.wait_for(handle.result(), 120)
        assert status["counts"] == {"SUCCEEDED": STEPS}

        async def free() -> bool:
            pool = await cluster.pool()
            return (pool["allocations"], pool["pending"], pool["workloads"]) == (0, 0, 0)

        await until(free, 20, "the pool holds nothing any more")
    finally:
        cluster.parts["server"].process.send_signal(signal.SIGCONT)
        cluster.stop()
