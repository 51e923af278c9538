"""A node worker killed at any seam of its protocol: no second execution beside a first, no loss."""

import asyncio
import sys
from pathlib import Path

import pytest
from support import dying_node
from support.cluster import Cluster, spool_entries, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SIZE = ("--cpu", "2", "--memory", "1Gi")
PRESENCE = [point for point in dying_node.POINTS if "presence" in point]
STARTED = {
    f"{when} {seam}"
    for when in ("before", "after")
    for seam in ("the completion", "the burial", "the entry vanishes")
} | {"after go"}
"""Points at which the payload was told to go: it must be found again, not run again."""


def payload(log: Path) -> str:
    """Says so if it ever runs beside itself."""
    return (
        f"mkdir {log}.lock || echo OVERLAP >> {log}; echo start >> {log}; sleep 0.7; "
        f"rmdir {log}.lock; echo end >> {log}"
    )


async def test_a_node_killed_at_any_seam_of_its_protocol_loses_and_doubles_nothing(tmp_path):
    cluster = Cluster(tmp_path)
    try:
        await cluster.start_server()
        cluster.start_control()
        for number, point in enumerate(dying_node.POINTS):
            if point not in PRESENCE:
                await die_and_return(cluster, f"w{number}", point)
    finally:
        cluster.stop()


@pytest.mark.parametrize("point", PRESENCE)
async def test_a_node_killed_while_it_spools_its_presence_is_there_again(tmp_path, point):
    """A cluster each: a node that registers again in the same life is ordered no new presence."""
    cluster = Cluster(tmp_path)
    try:
        await cluster.start_server()
        cluster.start_control()
        await die_and_return(cluster, "w", point)
    finally:
        cluster.stop()


async def die_and_return(cluster: Cluster, workload: str, point: str) -> None:
    log = cluster.root / f"{workload}.log"
    command = [sys.executable, dying_node.__file__, point, "--name", "n1", *SIZE]
    dying = cluster.add("n1", command)
    if point not in PRESENCE:
        await cluster.node_up("n1")
    step = {"run": payload(log), "lease": "8s", "grace": "1s", "resources": {"memory": "16Mi"}}
    handle = await cluster.submit(workload, {"steps": [{"name": "s", **step}]})
    status = await asyncio.to_thread(dying.process.wait, 60)
    assert status == -9, f"{point}: it ended by itself ({status})"
    cluster.start_node("n1", *SIZE)
    result = await asyncio.wait_for(handle.result(), 90)
    assert result["status"] == "SUCCEEDED", point
    lines = log.read_text().split()
    assert "OVERLAP" not in lines, f"{point}: it ran beside itself"
    assert lines.count("end") == 1 or point not in STARTED, f"{point}: {lines}"
    assert lines.count("start") == lines.count("end"), f"{point}: {lines}"

    async def clean() -> bool:
        pool = await cluster.pool()
        return not (pool["allocations"] or pool["pending"] or spool_entries(cluster))

    await until(clean, 40, f"{point}: nothing allocated or spooled")
    cluster.parts["n1"].kill()
