"""Promises of the dev cluster's parts: leash, children, logs, ports, record."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headbay.activities.places import Places
from headbay.workers.dev import leash
from headbay.workers.dev.child import Child, ChildSpec
from headbay.workers.dev.layout import NodeShape, environment
from headbay.workers.dev.logfile import LogFile
from headbay.workers.dev.ports import Ports, choose
from headbay.workers.dev.process import end, is_running, start_ticks
from headbay.workers.dev.record import ClusterRecord, read, write

STUBBORN = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(60)"
)


async def until(holds, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.02)


def child(folder: Path, *command: str, grace_s: float = 5.0) -> Child:
    spec = ChildSpec(name="c", command=command, env=dict(os.environ), grace_s=grace_s)
    return Child(spec, LogFile(folder / "c.log"), changed=lambda: None)


def test_a_leashed_process_is_told_when_its_parent_is_killed(tmp_path):
    told = tmp_path / "told"
    payload = (
        "import pathlib, signal, sys, time\n"
        "def tell(*_): pathlib.Path(sys.argv[1]).write_text('TERM'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, tell)\n"
        "pathlib.Path(sys.argv[1] + '.ready').touch(); time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, sys.argv[1], str(os.getpid()), sys.executable, '-c',"
        " sys.argv[2], sys.argv[3]])\n"
        "time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent, leash.__file__, payload, str(told)])
    asyncio.run(until(Path(f"{told}.ready").exists))
    process.kill()
    process.wait()
    asyncio.run(until(told.exists))


def test_a_leashed_process_whose_parent_is_gone_already_does_not_start():
    ran = subprocess.run(
        [sys.executable, leash.__file__, "1", sys.executable, "-c", "print('started')"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert "started" not in ran.stdout


async def test_a_child_that_dies_is_started_again_and_its_deaths_are_counted(tmp_path):
    one = child(tmp_path, sys.executable, "-c", "import time; time.sleep(60)")
    one.start()
    await until(lambda: one.pid is not None)
    first = one.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: one.pid not in (None, first))
    assert one.deaths == 1
    assert one.last_exit == "SIGKILL"
    assert await one.stop()
    assert one.pid is None


async def test_a_child_that_keeps_dying_waits_longer_each_time(tmp_path):
    one = child(tmp_path, sys.executable, "-c", "print('born', flush=True); raise SystemExit(3)")
    one.start()
    began = time.monotonic()
    await until(lambda: one.deaths >= 3)
    assert time.monotonic() - began >= 0.2 + 0.4
    assert one.last_exit == "exit 3"
    await one.stop()
    assert one.log.tail(10).count("born") == one.deaths


async def test_a_deaf_child_is_killed_after_its_grace(tmp_path):
    one = child(tmp_path, sys.executable, "-c", STUBBORN, grace_s=0.3)
    one.start()
    await until(lambda: "deaf" in one.log.tail(1))
    pid, ticks = one.pid, one.ticks
    assert not await one.stop()
    assert not is_running(pid, ticks)
    assert one.deaths == 0


async def test_a_stop_during_the_pause_before_a_restart_starts_nothing(tmp_path):
    one = child(tmp_path, "/bin/false")
    one.start()
    await until(lambda: one.deaths == 4 and one.pid is None)
    assert await one.stop()
    assert one.deaths == 4


async def test_a_missing_program_is_an_exit_not_a_crash_of_the_supervisor(tmp_path):
    one = child(tmp_path, "/nonexistent/program")
    one.start()
    await until(lambda: one.deaths >= 1)
    await one.stop()
    assert any("nonexistent" in line for line in one.log.tail(20))


def test_a_process_is_known_by_its_start_time_too():
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    ticks = start_ticks(process.pid)
    assert ticks is not None
    assert not end(process.pid, ticks + 1, grace_s=0.1)
    assert is_running(process.pid, ticks)
    assert end(process.pid, ticks, grace_s=0.1)
    assert start_ticks(process.pid) is None, "a zombie does not run"
    process.wait()
    process.stdout.close()


def test_a_log_is_read_by_whole_lines_and_once(tmp_path):
    log = LogFile(tmp_path / "x.log")
    with os.fdopen(log.open(), "w") as writer:
        writer.write("one\ntw")
        writer.flush()
        assert log.new_lines() == ["one"]
        writer.write("o\n")
        writer.flush()
        assert log.new_lines() == ["two"]
        assert log.new_lines() == []


def test_the_tail_of_a_log_says_nothing_of_former_starts(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("of old\n")
    log = LogFile(path)
    assert log.tail(5) == []
    with path.open("a") as writer:
        writer.write("of now\n")
    assert log.tail(5) == ["of now"]


def test_a_log_rotates_under_its_writer_and_keeps_two_older_ones(tmp_path):
    log = LogFile(tmp_path / "x.log", rotate_bytes=100)
    with os.fdopen(log.open(), "w") as writer:
        for number in range(4):
            writer.write(f"{number}" * 150 + "\n")
            writer.flush()
            assert log.rotate()
        writer.write("last\n")
    assert log.new_lines() == ["last"]
    assert not log.rotate()
    older = sorted(path.name for path in tmp_path.iterdir())
    assert older == ["x.log", "x.log.1", "x.log.2"]
    assert (tmp_path / "x.log.1").read_text().startswith("333")
    assert (tmp_path / "x.log.2").read_text().startswith("222")


def test_ports_stay_the_same_unless_somebody_took_them(tmp_path):
    file = tmp_path / "ports.json"
    first, changes = choose(file)
    assert changes == []
    assert choose(file) == (first, [])
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", first.grpc))
        thief.listen()
        second, changes = choose(file)
    assert second.grpc != first.grpc
    assert second.ui == first.ui
    assert str(first.grpc) in changes[0]
    assert choose(file)[0] == second
    assert Ports.model_validate_json(file.read_bytes()) == second


def test_ports_that_cannot_be_read_are_chosen_anew(tmp_path):
    file = tmp_path / "ports.json"
    file.write_bytes(b"")
    ports, changes = choose(file)
    assert changes == []
    assert Ports.model_validate_json(file.read_bytes()) == ports


def test_a_record_is_replaced_whole_and_dies_with_its_supervisor(tmp_path):
    path = tmp_path / "dev.json"
    assert read(path) is None
    pid = os.getpid()
    ticks = start_ticks(pid)
    record = ClusterRecord(pid=pid, ticks=ticks, address="a:1", ui="http://a:2", started_ms=1)
    write(path, record)
    assert read(path) == record
    assert read(path).alive
    assert not record.model_copy(update={"ticks": ticks + 1}).alive
    assert [p.name for p in tmp_path.iterdir()] == ["dev.json"]


@pytest.mark.parametrize("left", [b"", b"{", b"[]", b'"x"', b'{"pid": "x"}', b"\xff", b"null"])
def test_a_damaged_record_is_as_none(tmp_path, left):
    places = Places(tmp_path)
    places.dev.mkdir(parents=True)
    places.dev_json.write_bytes(left)
    assert read(places.dev_json) is None
    assert places.dev_cluster() is None


def test_children_see_this_cluster_and_no_other_temporal(tmp_path):
    seen = environment(
        {"TEMPORAL_API_KEY": "k", "TEMPORAL_PROFILE": "prod", "HOME": "/h", "PATH": "/bin"},
        state=tmp_path,
        ports=Ports(grpc=1, ui=2),
        ledger="sqlite:///x",
        artifacts=tmp_path / "a",
    )
    assert seen["TEMPORAL_ADDRESS"] == "127.0.0.1:1"
    assert "TEMPORAL_API_KEY" not in seen
    assert "TEMPORAL_PROFILE" not in seen
    assert seen["HOME"] == "/h"


@pytest.mark.parametrize(("count", "names"), [(1, ["local"]), (3, ["local", "local-2", "local-3"])])
def test_the_first_node_is_the_submitters_machine(count, names):
    assert NodeShape(nodes=count).names == names
