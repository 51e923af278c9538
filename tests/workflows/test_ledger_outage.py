"""The ledger is a projection: its loss stops nothing, and its journal ends without a gap."""

import asyncio

import pytest
from support.cluster import Cluster, until
from support.postgres import PostgresServer

from headbay.activities.ledger import open_ledger

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(300)]


@pytest.mark.parametrize("control_dies_too", [False, True], ids=["ledger", "ledger-and-control"])
async def test_postgresql_killed_during_a_hundred_workloads_leaves_a_gapless_journal(
    tmp_path, control_dies_too
):
    server = PostgresServer()
    cluster = Cluster(tmp_path / "cluster", ledger=server.url)
    try:
        await cluster.start_server()
        cluster.start_control()
        cluster.start_node("n1", "--cpu", "4", "--memory", "4Gi")
        await cluster.node_up("n1")
        document = {
            "steps": [
                {"name": "a", "run": "true", "resources": {"memory": "16Mi"}},
                {"name": "b", "run": "true", "dependsOn": "a", "resources": {"memory": "16Mi"}},
            ]
        }
        handles = await asyncio.gather(*(cluster.submit(f"w{n}", document) for n in range(100)))
        await handles[5].result()
        server.kill()
        done = asyncio.gather(*(h.result() for h in handles))
        await handles[40].result()
        if control_dies_too:
            cluster.parts["control"].kill()
        server.start()
        if control_dies_too:
            cluster.parts["control"].start()
        results = await asyncio.wait_for(done, 150)
        assert {r["status"] for r in results} == {"SUCCEEDED"}
        ledger = open_ledger(server.url)
        try:

            async def complete() -> bool:
                if await ledger.gaps() or await ledger.unfinished():
                    return False
                for number in range(100):
                    events = await ledger.events(f"w{number}")
                    kinds = [event.kind for event in events]
                    if [event.seq for event in events] != list(range(len(events))):
                        return False
                    if kinds[-1:] != ["WorkloadFinished"] or kinds.count("AttemptEnded") != 2:
                        return False
                return True

            await until(complete, 130, "every workload's journal is complete")
            rows = await ledger.attempts("w99")
            assert [row.outcome for row in rows] == ["SUCCEEDED", "SUCCEEDED"]
        finally:
            await ledger.close()
    except BaseException:
        print(cluster.logs())  # noqa: T201 - shown for failed tests only
        raise
    finally:
        cluster.stop()
        server.stop()
