"""Promise: whatever a payload does, it is gone in time, and the machine is well afterwards."""

import os
import time

import pytest
from support.cluster import until

from .harness.cluster import wait_clean

SMALL = {"cpu": "500m", "memory": "64Mi", "tasks": 40}


@pytest.fixture
async def node(lab, cluster):
    """One node with a worker."""
    (machine,) = lab.machines(1)
    await cluster.start_worker(machine, "--cpu", "8")
    return machine


HOSTILE = {
    "fork-bomb": "f() { f | f & }; f; sleep 100",
    "stopped": "kill -STOP $$",
    "daemon": "(setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &) ; sleep 100",
    "deaf": "trap '' TERM INT HUP; while :; do sleep 1; done",
}


async def test_hostile_payloads_are_gone_when_their_time_is_up(cluster, node):
    steps = [
        {"name": name, "run": run, "resources": SMALL, "timeout": "3s", "grace": "1s"}
        for name, run in HOSTILE.items()
    ]
    steps.append(
        {
            "name": "holder",
            "run": "setsid sleep 1000 & disown; echo done",
            "resources": SMALL,
            "timeout": "60s",
        }
    )
    status = await cluster.run("hostile", {"steps": steps}, 200)
    ends = {step["name"]: step["attempts"][-1] for step in status["steps"]}
    assert {name: ends[name]["outcome"] for name in HOSTILE} == dict.fromkeys(HOSTILE, "TIMED_OUT")
    for name in HOSTILE:
        assert ends[name]["usage"]["wall_ms"] < 15_000, name
    assert ends["fork-bomb"]["usage"]["pids_peak"] <= 40
    # A grandchild that holds the output open holds nothing up.
    assert ends["holder"]["outcome"] == "SUCCEEDED"
    assert "leftovers_killed" in ends["holder"]["flags"]
    assert ends["holder"]["usage"]["wall_ms"] < 15_000
    wait_clean(node, cluster.spool(node))
    assert node.run("true", seconds=5).status == 0


async def test_a_frozen_payload_is_thawed_to_be_killed(cluster, node):
    step = {"name": "s", "run": "sleep 1000", "resources": SMALL, "timeout": "6s", "grace": "1s"}
    await cluster.submit("frozen", {"steps": [step]})
    node.wait_until(
        "for d in /sys/fs/cgroup/headbay.slice/headbay-*/hb.frozen.*/payload; do "
        "grep -q . $d/cgroup.procs && echo 1 > $d/cgroup.freeze; done"
    )
    status = await cluster.ended("frozen", 60)
    assert status["steps"][0]["attempts"][-1]["outcome"] == "TIMED_OUT"
    wait_clean(node, cluster.spool(node))


LOG_BYTES = int(os.environ.get("HEADBAY_LAB_LOG_BYTES") or 1_000_000_000)
"""More, such as 10_000_000_000, takes minutes on a node of the lab."""


async def test_gigabytes_without_a_newline_are_counted_exactly(cluster, node):
    step = {
        "name": "s",
        "run": ["/usr/bin/head", "-c", str(LOG_BYTES), "/dev/zero"],
        "resources": SMALL,
    }
    before = time.monotonic()
    status = await cluster.run("flood", {"steps": [step]}, 300)
    end = status["steps"][0]["attempts"][-1]
    assert end["outcome"] == "SUCCEEDED", end
    assert end["log"]["seen_bytes"] == LOG_BYTES, time.monotonic() - before
    assert end["log"]["kept_bytes"] <= 64 << 20
    on_disk = int(node.check(f"stat -c %s {end['log']['path']}"))
    assert on_disk <= end["log"]["kept_bytes"] + 4_096
    wait_clean(node, cluster.spool(node))


async def test_a_stop_by_the_nodes_operator_ends_a_step_and_says_so(cluster, node):
    await cluster.submit("stopped", {"steps": [{"name": "s", "run": "sleep 1000"}]})
    unit = "systemctl list-units --plain --no-legend 'hb.stopped.*.scope' | grep -q hb."
    node.wait_until(unit)
    node.check("systemctl stop 'hb.stopped.*.scope'")

    async def ended():
        attempts = await cluster.attempts("stopped")
        return attempts[0].get("outcome") and attempts[0]

    end = await until(ended, 30, "the first attempt ended")
    assert end["outcome"] == "PREEMPTED", end
    await cluster.handle("stopped").signal("cancel", {"by": "t"})
    await cluster.ended("stopped")
    wait_clean(node, cluster.spool(node))
