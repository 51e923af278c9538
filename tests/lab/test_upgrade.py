"""Promise: a node's worker is replaced under running steps, none notices, and it is soon ready."""

import shlex
from statistics import median

from .conftest import REPOSITORY
from .harness.cluster import wait_clean

STEPS = 100
STARTS = 3
PACKAGES = ("domain", "activities", "workflows", "workers", "client")
GATE = "/var/tmp/gate"
LAUNCHER = (
    "for pid in $(cat /sys/fs/cgroup/system.slice/headbay-node.service/cgroup.procs); do "
    "tr '\\0' ' ' </proc/$pid/cmdline; echo; done | grep launcher_process"
)


def release(machine, version):
    """A copy of Headbay on the machine, as a package manager would install it; its folder."""
    folder = f"/opt/headbay-{version}"
    sources = shlex.join(f"{REPOSITORY}/{package}" for package in PACKAGES)
    machine.check(f"mkdir -p {folder} && cp -r {sources} {folder}/")
    return folder


def service(folder):
    """Lines of the unit that make its worker run that release, and tell when it is ready."""
    path = ":".join(f"{folder}/{package}" for package in PACKAGES)
    return f"Type=notify\nEnvironment=PYTHONPATH={path}"


def start_ms(machine):
    """How long the worker takes until it says that it is ready: the median of some starts."""
    script = (
        "systemctl stop headbay-node; a=$(date +%s%N); systemctl start headbay-node; "
        "b=$(date +%s%N); echo $(((b - a) / 1000000))"
    )
    return median(int(machine.check(script)) for _ in range(STARTS))


async def test_a_worker_is_replaced_under_a_hundred_running_steps(lab, cluster):
    (machine,) = lab.machines(1)
    machine.check(f"rm -f {GATE}; mkfifo -m 666 {GATE}")
    former, later = release(machine, "1"), release(machine, "2")
    await cluster.start_worker(machine, "--cpu", "2", service=service(former))
    empty_ms = start_ms(machine)
    print(f"ready after {empty_ms} ms when empty")  # noqa: T201 - a figure for people
    await cluster.node_up(machine.name, 60)

    small = {"cpu": "10m", "memory": "12Mi", "tasks": 4}
    steps = [
        {"name": f"s{n}", "run": f"read _ <{GATE}; echo woken", "resources": small, "lease": "2m"}
        for n in range(STEPS)
    ]
    await cluster.submit("upgrade", {"steps": steps})
    payloads = "pgrep -fc '[r]ead _ <'"
    machine.wait_until(f"[ $({payloads}) = {STEPS} ]", 180)
    assert former in machine.check(LAUNCHER)

    machine.check("systemctl stop headbay-node")
    machine.check(f"rm -r {former}")  # Nothing of it is there for those that still run of it.
    cluster.install_worker(machine, "--cpu", "2", service=service(later))
    full_ms = start_ms(machine)
    print(f"ready after {full_ms} ms with {STEPS} entries")  # noqa: T201 - a figure for people
    assert later in machine.check(LAUNCHER)
    assert int(machine.check(payloads)) == STEPS

    await cluster.node_up(machine.name, 60)
    machine.check(f"echo >{GATE}")
    status = await cluster.ended("upgrade", 240)
    ends = [step["attempts"] for step in status["steps"]]
    assert [one for one in ends if len(one) > 1 or one[0]["outcome"] != "SUCCEEDED"] == []
    logs = " ".join(shlex.quote(one[0]["log"]["path"]) for one in ends)
    assert int(machine.check(f"cat {logs} | grep -c woken")) == STEPS
    wait_clean(machine, cluster.spool(machine), 60)
    assert full_ms <= 2 * empty_ms, (full_ms, empty_ms)
