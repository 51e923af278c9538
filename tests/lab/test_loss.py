"""Promise: power loss, partitions and frozen machines never make a step run twice at once."""

import asyncio
import time

import pytest
from support.cluster import until

from headbay.domain.ids import pool_workflow_id

from .harness import oracle
from .harness.cluster import wait_clean

TTL_S = 30


@pytest.fixture
async def nodes(lab, cluster):
    """Two nodes with workers that start at boot, and no traces of former payloads."""
    machines = lab.machines(2)
    for machine in machines:
        machine.heal()
        for file in machine.records.iterdir():
            file.unlink()
        cluster.install_worker(machine, "--cpu", "2")
        machine.check("systemctl enable -q headbay-node; sync")
    for machine in machines:
        await cluster.node_up(machine.name, 60)
    return machines


def step(seconds, **more):
    """A step that leaves a trace."""
    return {"steps": [{"name": "s", "run": oracle.command("s", seconds), **more}]}


async def running(cluster, workload, machines):
    """The machine that runs the step, once its payload has left a trace; and the others."""

    async def begun():
        return [m for m in machines if any(m.records.iterdir())]

    (where,) = await until(begun, 60, f"{workload} runs")
    return where, next(m for m in machines if m is not where)


async def node_state(cluster, name):
    """What the pool calls a node."""
    found = await cluster.query(pool_workflow_id("default"), "nodes")
    return next(node["state"] for node in found if node["name"] == name)


async def lost_within(cluster, name, seconds):
    """Until the pool has noticed a loss."""

    async def lost():
        return await node_state(cluster, name) != "up"

    await until(lost, seconds, f"{name} noticed as lost")


async def test_power_loss_is_noticed_and_the_step_runs_elsewhere_after_its_lease(cluster, nodes):
    await cluster.submit("power", step(4))
    where, other = await running(cluster, "power", nodes)
    where.power_off()
    await lost_within(cluster, where.name, 20)
    status = await cluster.ended("power", 150)
    first, second = status["steps"][0]["attempts"]
    assert (first["outcome"], first["node"]) == ("NODE_LOST", where.name), first
    assert (second["outcome"], second["node"]) == ("SUCCEEDED", other.name), second
    where.boot()
    where.wait_ready()
    await cluster.node_up(where.name, 90)
    assert len(oracle.check(oracle.traces(nodes))["s"]) == 2
    for machine in nodes:
        wait_clean(machine, cluster.spool(machine))


async def test_a_machine_that_comes_back_with_another_boot_id_frees_its_step_at_once(
    cluster, nodes
):
    await cluster.submit("reboot", step(4, lease="10m"))
    where, _ = await running(cluster, "reboot", nodes)
    where.power_off()
    where.boot()
    where.wait_ready()
    # The lease has ten minutes left: only the boot id can prove the end.
    status = await cluster.ended("reboot", 120)
    first, second = status["steps"][0]["attempts"]
    assert first["outcome"] == "NODE_LOST", first
    assert second["outcome"] == "SUCCEEDED", second
    assert len(oracle.check(oracle.traces(nodes))["s"]) == 2


async def test_a_partition_shorter_than_the_lease_is_not_noticed_by_a_step(cluster, nodes):
    await cluster.submit("short", step(20))
    where, _ = await running(cluster, "short", nodes)
    where.cut()
    await asyncio.sleep(8)  # the length of the partition is what is tested
    where.heal()
    status = await cluster.ended("short", 120)
    (only,) = status["steps"][0]["attempts"]
    assert only["outcome"] == "SUCCEEDED", only
    assert len(oracle.check(oracle.traces(nodes))["s"]) == 1


async def test_a_partition_longer_than_the_lease_ends_the_step_before_it_runs_elsewhere(
    cluster, nodes
):
    await cluster.submit("long", step(60))
    where, other = await running(cluster, "long", nodes)
    where.cut()
    cut = time.monotonic()
    # The node itself must end the payload, within the lease, without hearing from anybody.
    where.wait_until("! pgrep -f '[t]icker.py'", TTL_S + 5)
    assert time.monotonic() - cut < TTL_S + 2

    async def elsewhere():
        return any(other.records.iterdir())

    await until(elsewhere, 120, "it runs elsewhere")
    where.heal()
    status = await cluster.ended("long", 150)
    assert [a["node"] for a in status["steps"][0]["attempts"]][-1] == other.name
    assert status["steps"][0]["attempts"][-1]["outcome"] == "SUCCEEDED"
    assert len(oracle.check(oracle.traces(nodes))["s"]) == 2
    await cluster.node_up(where.name, 90)
    wait_clean(where, cluster.spool(where))


async def test_a_machine_frozen_past_its_lease_is_fenced_when_it_thaws(cluster, nodes):
    await cluster.submit("freeze", step(30))
    where, other = await running(cluster, "freeze", nodes)
    where.freeze()
    try:

        async def elsewhere():
            return any(other.records.iterdir())

        await until(elsewhere, 150, "it runs elsewhere")
    finally:
        where.thaw()
    thawed = time.time_ns()
    status = await cluster.ended("freeze", 150)
    last = status["steps"][0]["attempts"][-1]
    assert (last["outcome"], last["node"]) == ("SUCCEEDED", other.name)
    where.wait_until("! pgrep -f '[t]icker.py'", 10)
    stale = [t for t in oracle.traces(nodes) if t.node == where.name]
    # Invariant 2: until its shim's first poll after the thaw, and no longer.
    assert all(t.last - thawed < 2_000_000_000 and not t.ended for t in stale), stale
    await cluster.node_up(where.name, 90)
    wait_clean(where, cluster.spool(where))
