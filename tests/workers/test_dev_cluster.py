"""Promises of `headbay dev`, on real clusters: start, stop, crash, restart, reset."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.cluster import alive, free_port

from headbay.workers.dev.process import start_ticks
from headbay.workers.dev.record import ChildRecord, ClusterRecord, write

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

COUNT = """
echo $$ >> {folder}/pids
for i in $(seq {seconds}0); do [ -e {folder}/enough ] && break; sleep 0.1; done
echo end >> {folder}/ends
"""


class Dev:
    """One state directory and the commands on it."""

    def __init__(self, root: Path) -> None:
        self.state = root / "state"
        self.folder = root / "seen"
        self.folder.mkdir()
        dev = self.state / "dev"
        dev.mkdir(parents=True)
        (dev / "ports.json").write_text(json.dumps({"grpc": free_port(), "ui": free_port()}))
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HEADBAY_"))}
        self.env = keep | {"HEADBAY_STATE": str(self.state), "HOME": str(root)}

    def run(self, module: str, *words: str, timeout: float = 120, **options):
        return subprocess.run(
            [sys.executable, "-m", module, *words],
            env=self.env,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
            **options,
        )

    def dev(self, *words: str, code: int | None = 0):
        ran = self.run("headbay.workers.dev", *words)
        assert code is None or ran.returncode == code, (words, ran.returncode, ran.stderr)
        return ran

    def headbay(self, *words: str, code: int | None = 0, **options):
        ran = self.run("headbay.client.cli", *words, **options)
        assert code is None or ran.returncode == code, (words, ran.stdout, ran.stderr)
        return ran

    def status(self):
        return json.loads(self.dev("status", "-o", "json", code=None).stdout)

    def record(self):
        return json.loads((self.state / "dev" / "dev.json").read_text())

    def pids(self):
        record = self.record()
        return {c["name"]: c["pid"] for c in record["children"]} | {"supervisor": record["pid"]}

    def submit(self, workload: str, seconds: int = 20) -> None:
        document = {
            "name": workload,
            "steps": [
                {
                    "name": "s",
                    "run": COUNT.format(folder=self.folder, seconds=seconds),
                    "grace": "1s",
                }
            ],
        }
        self.headbay("submit", "--id", workload, "-", input=json.dumps(document))

    def payloads(self) -> list[int]:
        file = self.folder / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def step(self, workload: str):
        status = json.loads(self.headbay("status", workload, "-o", "json").stdout)
        return status["workload"]["steps"][0]

    def enough(self) -> None:
        (self.folder / "enough").touch()


def until(holds, seconds: float = 40.0, what: str = ""):
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return found


@pytest.fixture
def dev(tmp_path):
    cluster = Dev(tmp_path)
    yield cluster
    cluster.enough()
    cluster.dev("stop", code=None)
    for pid in cluster.payloads():
        until(lambda pid=pid: not alive(pid), what=f"payload {pid} gone")


def test_a_cluster_starts_once_says_what_it_is_and_leaves_nothing_behind(dev):
    started = dev.dev("start", "--cpu", "3", "--memory", "1Gi", "--nodes", "2")
    assert "ready after" in started.stderr
    assert "http://127.0.0.1:" in started.stderr
    status = dev.status()
    assert status["phase"] == "ready"
    assert status["live_attempts"] == 0
    assert status["down"] == []
    names = {"server", "control", "node-local", "node-local-2"}
    assert {child["name"] for child in status["children"]} == names
    nodes = json.loads(dev.headbay("node", "list", "-o", "json").stdout)
    offered = {n["name"]: n["capacity"]["cpu"] for n in nodes["nodes"]}
    assert offered == {"local": 3000, "local-2": 3000}

    pids = dev.pids()
    again = dev.dev("start")
    assert "is running" in again.stderr
    assert dev.pids() == pids
    second = dev.dev("run", code=4)
    assert "already running" in second.stderr

    assert "stopped" in dev.dev("stop").stderr
    assert [name for name, pid in pids.items() if alive(pid)] == []
    assert not (dev.state / "dev" / "dev.json").exists()
    assert dev.status() == {"running": False, "state": str(dev.state)}
    assert dev.dev("status", code=3).stdout.startswith("not running")
    assert "not running" in dev.dev("stop").stderr


def test_two_starts_at_once_make_one_cluster(dev):
    command = [sys.executable, "-m", "headbay.workers.dev", "start"]
    starts = [
        subprocess.Popen(command, env=dev.env, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    outcomes = [(start.communicate(timeout=90)[1], start.returncode) for start in starts]
    assert [code for _, code in outcomes] == [0, 0, 0], outcomes
    supervisors = subprocess.run(
        ["pgrep", "-f", "headbay.workers.dev run"], text=True, capture_output=True, check=False
    ).stdout.split()
    ours = [
        pid
        for pid in supervisors
        if f"HEADBAY_STATE={dev.state}" in Path(f"/proc/{pid}/environ").read_text().split("\0")
    ]
    assert ours == [str(dev.record()["pid"])]


def test_a_restart_resumes_everything_and_the_step_does_not_notice(dev):
    dev.dev("start")
    dev.submit("w1")
    (payload,) = until(dev.payloads, what="the step runs")
    before = dev.pids()
    stopped = dev.dev("stop")
    assert "1 running steps go on until their lease runs out" in stopped.stderr
    assert [name for name, pid in before.items() if alive(pid)] == []
    assert alive(payload)
    dev.dev("start")
    assert alive(payload)
    dev.enough()
    dev.headbay("wait", "w1", "--timeout", "60s")
    assert dev.payloads() == [payload]
    assert [a["attempt"] for a in dev.step("w1")["attempts"]] == [1]


def test_a_killed_supervisor_takes_its_children_along_and_no_step(dev):
    dev.dev("start")
    dev.submit("w1")
    (payload,) = until(dev.payloads, what="the step runs")
    pids = dev.pids()
    os.kill(pids["supervisor"], signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids.values()), 30, f"all of {pids} gone")
    assert dev.dev("status", code=3).stdout.startswith("not running")
    assert alive(payload)
    dev.dev("start")
    dev.enough()
    dev.headbay("wait", "w1", "--timeout", "60s")
    assert dev.payloads() == [payload]


def test_a_leftover_that_ignores_its_end_is_ended_at_the_next_start(dev):
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(1, flush=True); time.sleep(99)"
    )
    command = [sys.executable, "-c", stubborn]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as leftover:
        leftover.stdout.readline()
        ticks = start_ticks(leftover.pid)
        children = [ChildRecord(name="control", pid=leftover.pid, ticks=ticks)]
        record = ClusterRecord(pid=1, ticks=1, address="", ui="", started_ms=0, children=children)
        write(dev.state / "dev" / "dev.json", record)
        dev.dev("start")
        assert not alive(leftover.pid)
    assert dev.status()["phase"] == "ready"


def test_every_process_may_be_killed_at_once_in_mid_step(dev):
    dev.dev("start")
    dev.submit("w1")
    (payload,) = until(dev.payloads, what="the step runs")
    before = dev.pids()
    for name in ("server", "control", "node-local"):
        os.kill(before[name], signal.SIGKILL)

    def back():
        now = dev.pids()
        return all(now[n] not in (None, before[n]) for n in ("server", "control", "node-local"))

    until(back, what="all were started again")
    dev.enough()
    dev.headbay("wait", "w1", "--timeout", "90s")
    assert dev.payloads() == [payload]
    assert all(c["deaths"] >= 1 and c["last_exit"] for c in dev.record()["children"])
    assert dev.pids()["supervisor"] == before["supervisor"]


def test_stop_kill_ends_steps_and_the_next_start_repeats_them(dev):
    dev.dev("start")
    dev.submit("w1")
    (payload,) = until(dev.payloads, what="the step runs")
    stopped = dev.dev("stop", "--kill")
    assert "ending 1 running steps" in stopped.stderr
    assert not alive(payload)
    dev.dev("start")
    until(lambda: len(dev.payloads()) == 2, what="the step runs again")
    dev.enough()
    dev.headbay("wait", "w1", "--timeout", "60s")
    assert dev.step("w1")["attempts"][0]["outcome"] == "PREEMPTED"


def test_reset_spares_running_steps_and_secrets_unless_told_otherwise(dev):
    dev.dev("start")
    secret = dev.state / "secrets" / "token"
    secret.parent.mkdir(mode=0o700)
    secret.write_text("hunter2")
    dev.submit("w1")
    (payload,) = until(dev.payloads, what="the step runs")
    refused = dev.dev("reset", "--yes", code=1)
    assert "nothing was deleted" in refused.stderr
    assert alive(payload)
    unasked = dev.dev("reset", "--kill", code=1)
    assert "--yes" in unasked.stderr
    assert alive(payload)
    dev.dev("stop")
    still = dev.dev("reset", "--yes", code=1)
    assert "nothing was deleted" in still.stderr, "a stopped cluster's steps count, too"
    dev.dev("reset", "--yes", "--kill")
    assert not alive(payload)
    assert [path.name for path in dev.state.iterdir()] == ["secrets"]
    assert secret.read_text() == "hunter2"


def test_a_start_that_fails_says_why_and_leaves_nothing_behind(dev):
    failed = dev.dev("start", "--executor", "nonsense", code=1)
    assert "node-local died" in failed.stderr
    assert "nonsense" in failed.stderr
    assert not (dev.state / "dev" / "dev.json").exists()
    dev.dev("start")


def test_a_taken_port_is_left_to_its_owner(dev):
    import socket

    ports = json.loads((dev.state / "dev" / "ports.json").read_text())
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", ports["grpc"]))
        owner.listen()
        dev.dev("start")
        record = dev.record()
    assert record["address"] != f"127.0.0.1:{ports['grpc']}"
    assert record["ui"] == f"http://127.0.0.1:{ports['ui']}"
