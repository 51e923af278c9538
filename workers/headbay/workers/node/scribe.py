"""One thread writes the spool: what is asked for at the same time shares its syncs and wake-ups.

A sync commits the disk's journal, whether for one order or for twenty, and every change of threads
costs the interpreter a switch. So jobs are taken as they have piled up, run one after the other,
synced together, and answered together. Jobs are short: what may take long has threads of its own.
"""

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Scribe"]

LINGER_S = 0.015
BUSY_S = 0.03
"""Where one job follows another so soon, each waits for company: the throughput of a busy node
counts more than these milliseconds, and a job that comes alone does not wait."""

Job = Callable[[], Sequence[int]]
Asked = tuple[Job, "asyncio.Future[None]"]


class Scribe:
    """The thread, and its letter box.

    Args:
        folder: Its names are made durable together with whatever a job wants synced.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._asked: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="scribe", daemon=True)
        self._thread.start()

    async def write(self, job: Job) -> None:
        """Run a job; what it wrote is durable on return.

        Args:
            job: Returns open descriptors to sync and close; none if nothing need be durable.

        Raises:
            OSError: What the job raised, or its sync: then nothing is known to be durable.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        self._asked.put((job, future))
        await future

    def close(self) -> None:
        """Finish what was asked for, and end."""
        self._asked.put(None)
        self._thread.join()
        os.close(self._folder)

    def _serve(self) -> None:
        worked = 0.0
        while (first := self._asked.get()) is not None:
            if time.monotonic() - worked < BUSY_S:
                time.sleep(LINGER_S)
            batch = [first]
            last = False
            while not self._asked.empty():
                more = self._asked.get()
                if more is None:
                    last = True
                    break
                batch.append(more)
            answers = self._work(batch)
            worked = time.monotonic()
            self._loop.call_soon_threadsafe(_tell, answers)
            if last:
                return

    def _work(
        self, batch: list[Asked]
    ) -> list[tuple["asyncio.Future[None]", BaseException | None]]:
        answers: list[tuple[asyncio.Future[None], BaseException | None]] = []
        written: list[tuple[asyncio.Future[None], Sequence[int]]] = []
        for job, future in batch:
            try:
                descriptors = job()
            except Exception as error:  # noqa: BLE001 - told to whoever asked
                answers.append((future, error))
            else:
                written.append((future, descriptors))
        synced = [_sync(descriptors) for _, descriptors in written]
        folder = None
        if any(descriptors for _, descriptors in written):
            folder = _fsync(self._folder)
        for (future, descriptors), failed in zip(written, synced, strict=True):
            answers.append((future, failed or (folder if descriptors else None)))
        return answers


def _sync(descriptors: Sequence[int]) -> OSError | None:
    """Sync and close all of them; the first error."""
    failed: OSError | None = None
    for fd in descriptors:
        failed = _fsync(fd) or failed
        os.close(fd)
    return failed


def _fsync(fd: int) -> OSError | None:
    try:
        os.fsync(fd)
    except OSError as error:
        return error
    return None


def _tell(answers: list[tuple["asyncio.Future[None]", BaseException | None]]) -> None:
    for future, error in answers:
        if future.done():
            continue  # Nobody waits any more.
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
