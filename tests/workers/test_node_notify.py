"""Promises of what the service manager is told, over a socket of its kind."""

import asyncio
import os
import socket
import subprocess
import sys
import time

import pytest
import structlog

from headbay.workers.node.notify import Notifier
from headbay.workers.node.workspace import PASSED


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """(socket, its address as a manager writes it)."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(10)
    name = (
        str(tmp_path / "notify") if request.param == "path" else f"@headbay-{os.urandom(8).hex()}"
    )
    listener.bind("\0" + name[1:] if name.startswith("@") else name)
    with listener:
        yield listener, name


@pytest.fixture
def take():
    """Makes notifiers, and closes them."""
    made = []

    def make(environ):
        made.append(Notifier.take(environ))
        return made[-1]

    yield make
    for notifier in made:
        notifier.close()


def heard(listener):
    return listener.recv(4096).decode()


def test_ready_status_and_stopping_are_said_in_the_protocol(manager, take):
    """A manager hears READY, STATUS on one line, and STOPPING; by path and by abstract name."""
    listener, name = manager
    notifier = take({"NOTIFY_SOCKET": name})
    notifier.ready("a: up,\n3 running")
    assert heard(listener) == "READY=1\nSTATUS=a: up, 3 running"
    notifier.stopping()
    assert heard(listener) == "STOPPING=1\nSTATUS=stopping"


async def test_a_loop_that_turns_gives_signs_of_life_and_one_that_hangs_does_not(manager, take):
    """The pings come from the event loop's own timer: three in a watchdog's time, none if hung."""
    listener, name = manager
    listener.setblocking(False)
    notifier = take({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "300000"})
    running = [0]
    keeping = asyncio.create_task(notifier.keep(lambda: f"{running[0]} running"))

    async def next_words():
        async with asyncio.timeout(10):
            return (await asyncio.get_running_loop().sock_recv(listener, 4096)).decode()

    assert [await next_words() for _ in range(2)] == ["WATCHDOG=1", "STATUS=0 running"]
    assert await next_words() == "WATCHDOG=1"
    running[0] = 2
    assert [await next_words() for _ in range(2)] == ["WATCHDOG=1", "STATUS=2 running"]
    time.sleep(0.5)  # noqa: ASYNC251 - this is the hang
    with pytest.raises(BlockingIOError):
        listener.recv(4096)
    keeping.cancel()


def test_children_find_neither_socket_nor_watchdog(take):
    """What the manager gave the worker is for the worker alone: nobody else may speak for it."""
    given = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1", "PATH": "/"}
    take(given)
    assert given == {"PATH": "/"}
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(PASSED)


async def test_a_watchdog_of_another_process_gets_no_pings(manager, take):
    """A watchdog that WATCHDOG_PID gives to another process is not this one's."""
    listener, name = manager
    environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getpid() + 1)}
    keeping = asyncio.create_task(take(environ).keep(lambda: "fine"))
    assert await asyncio.to_thread(heard, listener) == "STATUS=fine"
    keeping.cancel()
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(4096)


def test_a_manager_that_is_gone_is_told_of_once_and_harms_nothing(tmp_path, take):
    """A socket that nobody reads is one warning, however often it is tried."""
    notifier = take({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    with structlog.testing.capture_logs() as said:
        notifier.ready("up")
        notifier.status("again")
        notifier.stopping()
    assert [line["event"] for line in said] == ["notify.failed"]
    assert said[0]["log_level"] == "warning"


async def test_without_a_manager_nothing_is_said_and_nobody_waits(take):
    """A worker that nobody supervises has nothing to keep up."""
    notifier = take({})
    notifier.ready("up")
    async with asyncio.timeout(5):
        await notifier.keep(lambda: "never asked")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cpu", "2", "--reserve-cpu", "1"], "contradict"),
        (["--reserve-memory", "900Ti"], "this machine has"),
        (["--label", "zone"], "KEY=VALUE"),
    ],
)
def test_an_option_that_cannot_be_meant_ends_the_worker_for_good(tmp_path, options, said):
    """Exit 2, which the unit's RestartPreventExitStatus names; nothing is connected to."""
    ran = subprocess.run(
        [sys.executable, "-m", "headbay.workers.node", "--name", "n", *options],
        env=os.environ | {"HEADBAY_STATE": str(tmp_path), "TEMPORAL_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert said in ran.stdout + ran.stderr
