"""Promise: every step has its own scope with the limits it asked for, and leaves nothing."""

import asyncio
import json

import pytest
from support.cluster import until

from .harness.cluster import wait_clean

MIB = 1 << 20

FAN = {
    "steps": [
        {"name": "build", "run": "echo built > wheel.txt", "artifacts": ["wheel.txt"]},
        {
            "name": "test",
            "dependsOn": "build",
            "matrix": {"SHARD": ["1", "2", "3", "4"]},
            "resources": {"cpu": 1, "cpuLimit": "1500m", "memory": "64Mi", "tasks": 20},
            "placement": {"nodeSelector": {"kind": "lab"}},
            "timeout": "5m",
            "run": "cat inputs/build/wheel.txt; head -c 20000000 /dev/zero | tail | wc -c\n"
            "while [ ! -e /srv/artifacts/go ]; do sleep 0.2; done\n"
            "echo $SHARD > result.txt",
            "artifacts": ["result.txt"],
        },
        {
            "name": "report",
            "dependsOn": ["build", "test"],
            "trigger": "all_done",
            "run": "cat inputs/test-*/result.txt | sort | tr -d '\\n' > all; "
            "printf '\"%s\"' $(cat all) > $HEADBAY_OUTPUT",
        },
    ]
}


def scopes(machine):
    """Active scopes of attempts, with what the machine's cgroup files say of each."""
    script = (
        "for d in /sys/fs/cgroup/headbay.slice/headbay-*.slice/hb.*.scope; "
        "do [ -d $d ] || continue; "
        "echo $(basename $d) $(cat $d/payload/memory.max $d/payload/memory.swap.max "
        "$d/payload/pids.max $d/payload/memory.oom.group $d/memory.max $d/pids.max) "
        "$(tr ' ' / <$d/payload/cpu.max) $(wc -l <$d/payload/cgroup.procs) "
        "$(wc -l <$d/shim/cgroup.procs) $(wc -l <$d/cgroup.procs); done"
    )
    lines = [line.split() for line in machine.check(script).splitlines()]
    return {name: facts for name, *facts in lines}


async def test_two_nodes_run_a_workload_in_scopes_with_exactly_its_limits(lab, cluster):
    machines = lab.machines(2)
    go = lab.store / "go"
    go.unlink(missing_ok=True)
    for machine in machines:
        cluster.install_worker(machine, "--label", "kind=lab", "--cpu", "2")
    for machine in machines:
        await cluster.node_up(machine.name, 60)
    await cluster.submit("fan", FAN)

    async def four_run():
        found = [await asyncio.to_thread(scopes, machine) for machine in machines]
        return found if sum(map(len, found)) == 4 and all(found) else None

    found = await until(four_run, 90, "four shards in scopes, on both nodes")
    await until(four_run, 5, "still")
    for name, facts in [pair for one in found for pair in one.items()]:
        memory, swap, tasks, group, loose_memory, loose_tasks, cpu, inside, shim, own = facts
        assert (memory, swap, tasks, group) == (str(64 * MIB), "0", "20", "1"), name
        assert (loose_memory, loose_tasks) == (str(96 * MIB), "28"), name
        assert cpu == "150000/100000", name
        assert int(inside) >= 1, name
        assert (shim, own) == ("1", "0"), name
    go.touch()
    status = await cluster.ended("fan")
    assert status["status"] == "SUCCEEDED", json.dumps(status, indent=1)
    ends = {step["name"]: step["attempts"][-1] for step in status["steps"]}
    assert {ends[f"test-{n}"]["node"] for n in range(1, 5)} == {m.name for m in machines}
    for end in ends.values():
        usage = end["usage"]
        assert end["isolation"] == "enforced"
        assert usage["cpu_user_us"] + usage["cpu_system_us"] > 0
        assert 0 < usage["memory_peak_bytes"] <= 1 << 30
        assert usage["pids_peak"] >= 1
    assert all(
        64 * MIB >= ends[f"test-{n}"]["usage"]["memory_peak_bytes"] > 15 * MIB for n in range(1, 5)
    )
    report = next(step for step in status["steps"] if step["name"] == "report")
    assert report["output"]["value"] == "1234"
    for machine in machines:
        wait_clean(machine, cluster.spool(machine))


@pytest.fixture
async def node(lab, cluster):
    """One node with a worker, and its neighbour's room."""
    (machine,) = lab.machines(1)
    await cluster.start_worker(
        machine, "--cpu", "8", "--allow-root-user", service="PrivateMounts=yes"
    )
    return machine


def last(status, step="s"):
    """The last attempt of a step."""
    return next(s for s in status["steps"] if s["name"] == step)["attempts"][-1]


def flags(attempt):
    """What was observed beside its outcome."""
    return attempt.get("flags", [])


async def first_end(cluster, workload, document):
    """How the first attempt of its step ended; the workload is cancelled then."""
    await cluster.submit(workload, document)

    async def ended():
        attempts = (await cluster.step(workload, "s"))["attempts"]
        return attempts and attempts[0].get("outcome") and attempts[0]

    end = await until(ended, 60, "the first attempt ended")
    await cluster.client.get_workflow_handle(f"headbay/w/{workload}").signal("cancel", {"by": "t"})
    await cluster.ended(workload)
    return end


EAT = "python3 -c 'x = bytearray({mib} << 20); print(len(x))'"


async def test_memory_beyond_the_limit_kills_that_step_alone_and_grows_with_retry(cluster, node):
    status = await cluster.run(
        "eater",
        {
            "steps": [
                {
                    "name": "s",
                    "run": EAT.format(mib=100),
                    "resources": {"cpu": 1, "memory": "64Mi"},
                    "retry": {"maxAttempts": 2, "oom": {"memoryFactor": 2, "maxMemory": "256Mi"}},
                },
                {
                    "name": "neighbour",
                    "run": "for i in $(seq 50); do sleep 0.1; done",
                    "resources": {"cpu": 1, "memory": "32Mi"},
                },
            ]
        },
    )
    assert status["status"] == "SUCCEEDED", status
    first, second = next(s for s in status["steps"] if s["name"] == "s")["attempts"]
    assert (first["outcome"], flags(first)) == ("OOM_KILLED", ["oom_observed"])
    assert first["usage"]["memory_peak_bytes"] >= 63 * MIB
    assert second["outcome"] == "SUCCEEDED"
    assert second["usage"]["memory_peak_bytes"] > 100 * MIB
    assert last(status, "neighbour")["outcome"] == "SUCCEEDED"
    wait_clean(node, cluster.spool(node))


FORKS = """
import os, sys, time
for _ in range(20):
    try:
        child = os.fork()
    except BlockingIOError:
        sys.exit(5)
    if child == 0:
        time.sleep(60)
        os._exit(0)
"""

CAUSES = {
    "signaled": ({"run": "kill -KILL $$"}, "SIGNALED", []),
    "segfault": ({"run": ["/bin/sh", "-c", "kill -SEGV $$"]}, "SIGNALED", []),
    "timeout": (
        {"run": "trap '' TERM; sleep 100", "timeout": "2s", "grace": "1s"},
        "TIMED_OUT",
        [],
    ),
    "no-such-program": ({"run": ["/no/such/program"]}, "EXEC_FAILED", []),
    "exit-127": ({"run": "exit 127"}, "FAILED", []),
    "pids": (
        {"run": ["python3", "-c", FORKS], "resources": {"tasks": 6}},
        "FAILED",
        ["leftovers_killed", "pids_limit_hit"],
    ),
    "leftovers": ({"run": "setsid sleep 100 & disown; true"}, "SUCCEEDED", ["leftovers_killed"]),
    "spared": (
        {
            # The main process is spared by the kernel, its child is not.
            "user": "root",
            "run": "echo -1000 > /proc/self/oom_score_adj\n"
            f"(echo 0 > /proc/self/oom_score_adj; exec {EAT.format(mib=100)}) || true\nexit 0",
            "resources": {"memory": "64Mi"},
        },
        "SUCCEEDED",
        ["oom_observed"],
    ),
}


async def test_each_end_is_named_for_its_cause(cluster, node):
    steps = [{"name": name, **step} for name, (step, _, _) in CAUSES.items()]
    for step in steps:
        step["resources"] = {"cpu": "100m", "memory": "64Mi"} | step.get("resources", {})
    status = await cluster.run("causes", {"steps": steps})
    ends = {name: last(status, name) for name in CAUSES}
    found = {name: (end["outcome"], flags(end)) for name, end in ends.items()}
    assert found == {name: (outcome, flags) for name, (_, outcome, flags) in CAUSES.items()}, status
    wait_clean(node, cluster.spool(node))


async def test_the_nodes_own_memory_limit_is_the_nodes_fault(cluster, node):
    """Several at once: what dies slowly must not make a supervisor the next to be killed."""
    node.check("systemctl set-property --runtime headbay.slice MemoryMax=100M")
    eater = {"run": EAT.format(mib=300), "resources": {"cpu": "100m", "memory": "500Mi"}}
    names = [f"s{n}" for n in range(6)]
    try:
        await cluster.submit("node-oom", {"steps": [{"name": name, **eater} for name in names]})

        async def ended():
            attempts = [await cluster.attempts("node-oom", name) for name in names]
            return all(one and one[0].get("outcome") for one in attempts) and attempts

        ends = [attempts[0] for attempts in await until(ended, 90, "every first attempt ended")]
    finally:
        node.check("systemctl set-property --runtime headbay.slice MemoryMax=infinity")
    await cluster.handle("node-oom").signal("cancel", {"by": "t"})
    await cluster.ended("node-oom")
    found = {(end["outcome"], *flags(end)) for end in ends}
    assert found == {("OOM_NODE", "oom_observed")}, json.dumps(ends)


async def test_a_limit_that_cannot_be_kept_starts_nothing(cluster, node):
    marker = "/var/tmp/must-not-exist"
    pid = node.check("systemctl show -P MainPID headbay-node").strip()
    node.check(f"nsenter -t {pid} -m mount -o remount,bind,ro /sys/fs/cgroup")
    end = await first_end(
        cluster, "limitless", {"steps": [{"name": "s", "run": f"touch {marker}"}]}
    )
    assert end["outcome"] == "LIMIT_NOT_APPLIED", json.dumps(end)
    assert "nothing was started" in end["message"], end
    assert node.run(f"test -e {marker}").status == 1
    wait_clean(node, cluster.spool(node))


async def test_a_scope_that_the_node_refuses_is_not_started(cluster, node):
    marker = "/var/tmp/must-not-exist"
    node.check("systemctl set-property --runtime headbay.slice TasksMax=1")
    try:
        end = await first_end(
            cluster, "scopeless", {"steps": [{"name": "s", "run": f"touch {marker}"}]}
        )
    finally:
        node.check("systemctl set-property --runtime headbay.slice TasksMax=infinity")
    assert end["outcome"] == "NOT_STARTED", json.dumps(end)
    assert node.run(f"test -e {marker}").status == 1


async def test_a_payload_is_nobody_with_no_rights_to_gain_and_cannot_move_its_limits(cluster, node):
    script = (
        "id -u; grep -E 'NoNewPrivs|CapEff' /proc/self/status | tr -d '\\t'; ulimit -c; "
        "me=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); "
        "(echo max > $me/memory.max) 2>&1 | grep -o 'Read-only\\|denied' || true; "
        "(echo $$ > /sys/fs/cgroup/cgroup.procs) 2>&1 | grep -o 'Read-only\\|denied' || true; "
        "env | cut -d= -f1 | "
        "grep -E 'NOTIFY|TEMPORAL|PYTHON|LD_|DBUS|INVOCATION|CREDENTIALS' || echo clean"
    )
    await cluster.run(
        "rights",
        {"steps": [{"name": "s", "run": script}, {"name": "r", "run": script, "user": "root"}]},
    )
    logs = {}
    for step in ("s", "r"):
        attempt = last(await cluster.status("rights"), step)
        logs[step] = node.read(attempt["log"]["path"]).split("\n")
    uid = node.check("id -u nobody").strip()
    assert logs["s"][:4] == [uid, "CapEff:0000000000000000", "NoNewPrivs:1", "0"], logs
    assert logs["s"][4] in ("Read-only", "denied"), logs
    assert logs["s"][-2] == "clean", logs
    assert logs["r"][0] == "0", logs
    assert logs["r"][4:6] == ["Read-only", "Read-only"], logs
