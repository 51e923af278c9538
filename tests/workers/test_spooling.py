"""Promise: an order that could not be made durable leaves nothing, and nothing of it can run."""

import asyncio
import errno
import os
from types import SimpleNamespace

import pytest

from headbay.activities.artifacts import DirectoryStore
from headbay.activities.executor import ExecutorSettings
from headbay.activities.executor.null import NullExecutor
from headbay.activities.places import NodePlaces
from headbay.domain.attempt import LaunchSpec
from headbay.domain.outcome import Isolation, Outcome
from headbay.workers.node import supervision
from headbay.workers.node.results import without_exit
from headbay.workers.node.room import Room
from headbay.workers.node.scribe import Scribe
from headbay.workers.node.spool import Spool, Token, unit_name
from headbay.workers.node.supervision import Attempt
from headbay.workers.node.workspace import Workspaces

SPEC = LaunchSpec(
    workload="w", step="s", attempt=1, fence=7, allocation="a", pool="default", node="n", epoch=1,
    argv=["true"],
)  # fmt: skip


@pytest.fixture
async def node(tmp_path):
    """What an attempt needs of its node to be spooled: the real parts, on a real disk."""
    spool = Spool(NodePlaces(tmp_path / "n"))
    spool.open()
    workspaces = Workspaces(spool.places, DirectoryStore(tmp_path / "a"))
    workspaces.open()
    scribe = Scribe(spool.places.spool)
    yield SimpleNamespace(
        spool=spool,
        scribe=scribe,
        wire=None,
        room=Room({}),
        launches=asyncio.Semaphore(2),
        presence_age_ms=lambda: 0,
        isolation=Isolation.UNENFORCED,
        workspace=workspaces.of,
        executor=NullExecutor(ExecutorSettings(node="n", folder=tmp_path / "executor")),
    )
    await asyncio.to_thread(scribe.close)
    spool.close()


def attempt(node, number=1) -> Attempt:
    entry = node.spool.entry(unit_name("w", "s", number, 7))
    return Attempt(entry, SPEC, Token(b"t", "r"), node)


@pytest.mark.parametrize(
    ("free", "outcome", "kept"),
    [
        (0, Outcome.FAILED, True),
        (1 << 60, Outcome.FAILED, False),
        (1 << 60, Outcome.OUTPUT_CONTRACT_VIOLATION, True),
    ],
)
async def test_on_a_tight_disk_what_a_payload_left_goes_before_its_end_is_told(
    node, monkeypatch, free, outcome, kept
):
    """The server that has to take the completion may share the disk."""
    monkeypatch.setattr(supervision, "TIGHT_BYTES", free)
    ending = attempt(node)
    await ending.spool()
    (workspace,) = node.spool.places.work.glob("hb.*")
    (workspace / "large").write_text("x")
    seen = []

    async def complete(_token, _result) -> None:
        seen.append(workspace.exists())

    node.wire = SimpleNamespace(complete=complete)
    await ending._close(without_exit(SPEC, outcome, "", Isolation.UNENFORCED))
    assert seen == [kept]
    assert used(node) == []


def used(node) -> list[str]:
    folders = (node.spool.places.spool, node.spool.places.work)
    return [p.name for f in folders for p in f.iterdir() if p.name.startswith("hb.")]


async def test_a_spooled_order_has_its_entry_and_its_workspace(node):
    await attempt(node).spool()
    assert used(node) == [unit_name("w", "s", 1, 7)] * 2
    (entry,) = node.spool.entries()
    assert entry.spec == SPEC


async def test_an_order_whose_sync_failed_leaves_neither_entry_nor_workspace(node, monkeypatch):
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "gone")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="gone"):
            await attempt(node).spool()
    assert used(node) == []


async def test_an_order_in_whose_place_there_is_an_entry_leaves_that_alone(node):
    await attempt(node).spool()
    with pytest.raises(OSError, match=r"File exists|not empty"):
        await attempt(node).spool()
    (entry,) = node.spool.entries()
    assert entry.spec == SPEC


async def test_no_more_are_started_at_once_than_the_node_may_and_the_rest_keep_their_leases(node):
    started, beats, told = [], [], []
    some, free, kept = asyncio.Event(), asyncio.Event(), asyncio.Event()
    spawn = node.executor.spawn

    async def slow(folder):
        started.append(folder.name)
        if len(started) == 2:
            some.set()
        await free.wait()
        return await spawn(folder)

    async def heartbeat(token, details):
        beats.append(details["phase"])
        if len(beats) == 5:
            kept.set()
        return SimpleNamespace(cancel_requested=False)

    async def complete(_token, result):
        told.append(result.outcome)

    node.executor.spawn = slow
    node.wire = SimpleNamespace(heartbeat=heartbeat, complete=complete)
    five = [attempt(node, number) for number in range(1, 6)]
    for one in five:
        await one.spool()
    running = asyncio.gather(*(one.run() for one in five))
    async with asyncio.timeout(10):
        await some.wait()
        await kept.wait()
        for _ in range(100):  # Whoever could start would have.
            await asyncio.sleep(0)
        assert len(started) == 2
        assert all(one.entry.exists("lease") for one in five)
        free.set()
        await running
    assert told == [Outcome.SUCCEEDED] * 5
