"""One process of the dev cluster, kept running: started, watched, restarted, ended."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from headbay.workers.dev import leash
from headbay.workers.dev.logfile import LogFile
from headbay.workers.dev.process import start_ticks

__all__ = ["Child", "ChildSpec"]

log = structlog.get_logger(__name__)

FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 10.0
HEALTHY_AFTER_S = 20.0
"""A child that ran this long starts again at once when it dies."""


@dataclass(frozen=True)
class ChildSpec:
    """What to run.

    Attributes:
        grace_s: From SIGTERM to SIGKILL.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    grace_s: float = 15.0


@dataclass
class Child:
    """A supervised process.

    Attributes:
        changed: Called whenever the child starts or dies.
        deaths: How often it ended without being told to, since the cluster's start.
    """

    spec: ChildSpec
    log: LogFile
    changed: Callable[[], None]
    pid: int | None = None
    ticks: int | None = None
    deaths: int = 0
    started_ms: int | None = None
    last_exit: str = ""
    _stopping: bool = False
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin to keep it running."""
        self._task = asyncio.create_task(self._keep(), name=f"child {self.spec.name}")

    async def failure(self) -> None:
        """Wait until supervision itself fails; raises what it failed with."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> bool:
        """SIGTERM, then after the grace SIGKILL. True if it ended by itself in time."""
        self._stopping = True
        if self._task is None:
            return True
        if self.pid is None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            return True
        os.kill(self.pid, signal.SIGTERM)
        done, _ = await asyncio.wait([self._task], timeout=self.spec.grace_s)
        if done:
            return True
        log.warning("child.killed", child=self.spec.name, grace_s=self.spec.grace_s)
        os.kill(self.pid, signal.SIGKILL)
        await self._task
        return False

    async def _keep(self) -> None:
        backoff = FIRST_BACKOFF_S
        while True:
            began = time.monotonic()
            process = self._spawn()
            # The process is reaped in here alone, so the pid stays ours until then.
            code = await self._ended(process)
            self.pid = self.ticks = None
            self.last_exit = _describe(code)
            if self._stopping:
                self.changed()
                return
            self.deaths += 1
            if time.monotonic() - began > HEALTHY_AFTER_S:
                backoff = FIRST_BACKOFF_S
            log.warning(
                "child.died", child=self.spec.name, how=self.last_exit, again_in_s=round(backoff, 1)
            )
            self.changed()
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        leashed = [sys.executable, "-I", "-S", str(Path(leash.__file__)), str(os.getpid())]
        descriptor = self.log.open()
        try:
            process = subprocess.Popen(
                [*leashed, *self.spec.command],
                env=dict(self.spec.env),
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                # A terminal's Ctrl-C is for the supervisor, which then ends them in order.
                process_group=0,
            )
        finally:
            os.close(descriptor)
        self.pid, self.ticks = process.pid, start_ticks(process.pid)
        self.started_ms = time.time_ns() // 1_000_000
        log.info("child.started", child=self.spec.name, pid=process.pid)
        self.changed()
        return process

    async def _ended(self, process: subprocess.Popen[bytes]) -> int:
        """Wait without a thread: a pidfd becomes readable when its process ends."""
        descriptor = os.pidfd_open(process.pid)
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return process.wait()


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
