"""Promise: a node that has run a thousand steps holds no more than one that has run a few."""

import os

from .harness.cluster import wait_clean

STEPS = int(os.environ.get("HEADBAY_LAB_STEPS") or 200)
"""A thousand take minutes on a node of the lab."""
WARM_UP = 50
A_WORKLOAD = 50
RSS_PAGES = 1_000
"""Pages by which a process's memory may differ from one look to another: 4 MiB."""

LOOK = r"""
echo cgroups $(find /sys/fs/cgroup -type d | wc -l)
echo units $(systemctl list-units --all --plain --no-legend | wc -l)
echo failed $(systemctl list-units --failed --plain --no-legend | wc -l)
echo spool $(find {spool} -mindepth 1 -path '*hb.*' | wc -l)
echo mounts $(wc -l </proc/1/mountinfo)
for pid in 1 $(systemctl show -P MainPID headbay-node) \
    $(cat /sys/fs/cgroup/system.slice/headbay-node.service/cgroup.procs); do
    echo fds-$pid $(ls /proc/$pid/fd | wc -l)
    echo threads-$pid $(ls /proc/$pid/task | wc -l)
    echo rss-$pid $(cut -d' ' -f2 /proc/$pid/statm)
done
"""


def look(machine, spool):
    """What the machine and Headbay's processes on it hold, by name."""
    lines = machine.check(LOOK.format(spool=spool)).splitlines()
    return {name: int(count) for name, count in (line.split() for line in lines)}


async def run(cluster, name, count):
    """That many steps, a workload after the other."""
    resources = {"cpu": "250m", "memory": "16Mi", "tasks": 4}
    for first in range(0, count, A_WORKLOAD):
        steps = [
            {"name": f"s{n}", "run": ["/bin/true"], "resources": resources}
            for n in range(min(A_WORKLOAD, count - first))
        ]
        status = await cluster.run(f"{name}-{first}", {"steps": steps}, 120)
        assert status["status"] == "SUCCEEDED", status


async def test_steps_leave_nothing_that_grows(lab, cluster):
    (machine,) = lab.machines(1)
    await cluster.start_worker(machine, "--cpu", "1")
    await run(cluster, "warm", WARM_UP)
    wait_clean(machine, cluster.spool(machine))
    before = look(machine, cluster.spool(machine))
    await run(cluster, "many", STEPS)
    wait_clean(machine, cluster.spool(machine))
    after = look(machine, cluster.spool(machine))
    print(f"{before}\n{after}")  # noqa: T201 - the figures are what it is run for by hand
    assert before.keys() == after.keys()
    grown = {
        name: (before[name], after[name])
        for name in before
        if after[name] - before[name] > (RSS_PAGES if name.startswith("rss") else 0)
    }
    assert not grown
