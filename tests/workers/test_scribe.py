"""Promise: what is told durable was synced; one job's fault is its own; nothing is left open."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from headbay.workers.node.scribe import Scribe


@pytest.fixture
async def scribe(tmp_path):
    made = Scribe(tmp_path)
    yield made
    await asyncio.to_thread(made.close)


@pytest.fixture
def synced(monkeypatch) -> list[str]:
    """What was synced, by its path, in order."""
    paths: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def writing(path: Path):
    def job() -> list[int]:
        return [os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)]

    return job


async def test_a_job_is_answered_after_its_files_and_the_folder_were_synced(
    scribe, tmp_path, synced
):
    await scribe.write(writing(tmp_path / "a"))
    assert synced == [str(tmp_path / "a"), str(tmp_path)]


async def test_jobs_that_pile_up_share_the_sync_of_the_folder(scribe, tmp_path, synced):
    gate = threading.Event()

    def block() -> list[int]:
        gate.wait(10)
        return []

    first = asyncio.create_task(scribe.write(block))
    rest = [asyncio.create_task(scribe.write(writing(tmp_path / str(n)))) for n in range(20)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *rest)
    assert sorted(synced) == sorted([str(tmp_path), *(str(tmp_path / str(n)) for n in range(20))])


async def test_what_needs_no_sync_gets_none(scribe, synced):
    await scribe.write(list)
    assert synced == []


async def test_a_job_that_fails_is_told_so_and_its_neighbours_are_not(scribe, tmp_path):
    def fails() -> list[int]:
        raise OSError(errno.ENOSPC, "full")

    asked = (writing(tmp_path / "a"), fails, writing(tmp_path / "b"))
    answers = await asyncio.gather(*map(scribe.write, asked), return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None), OSError, type(None)]
    assert (tmp_path / "b").exists()


@pytest.mark.parametrize("bad", ["a", "."])
async def test_nothing_is_told_durable_whose_sync_failed(scribe, tmp_path, monkeypatch, bad):
    def fsync(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").resolve() == (tmp_path / bad).resolve():
            raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="gone"):
        await scribe.write(writing(tmp_path / "a"))
    if bad == "a":
        await scribe.write(writing(tmp_path / "b"))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_no_descriptor_stays_open(scribe, tmp_path):
    before = descriptors()
    await asyncio.gather(*(scribe.write(writing(tmp_path / str(n))) for n in range(50)))
    assert descriptors() <= before


async def test_who_does_not_wait_any_more_harms_nobody(scribe, tmp_path):
    gate = threading.Event()

    def block() -> list[int]:
        gate.wait(10)
        return []

    gone = asyncio.create_task(scribe.write(block))
    await asyncio.sleep(0)
    gone.cancel()
    gate.set()
    await scribe.write(writing(tmp_path / "a"))


async def test_what_was_asked_for_before_the_end_is_done(tmp_path):
    scribe = Scribe(tmp_path)
    asked = [asyncio.create_task(scribe.write(writing(tmp_path / str(n)))) for n in range(9)]
    await asyncio.sleep(0)
    await asyncio.to_thread(scribe.close)
    await asyncio.gather(*asked)
    assert names(tmp_path) == sorted(map(str, range(9)))
