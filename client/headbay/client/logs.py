"""Logs of steps that ran on nodes of this machine.

An attempt's output is one file: where its result says once it has ended, in the node's spool while
it runs. Logs of other machines are named, not fetched.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from headbay.activities.places import BadNameError, Places
from headbay.client.errors import AttemptNotFoundError, LogsElsewhereError, StepNotFoundError
from headbay.client.following import Follower
from headbay.client.reading import Reader, is_final
from headbay.domain.lifecycle import AttemptState
from headbay.domain.status import AttemptStatus, StepStatus, WorkloadStatus

__all__ = ["LogPiece", "LogReader", "find_log", "tail"]

CHUNK: Final = 256 * 1024
TAIL_BYTES: Final = 16 * 1024
POLL_S: Final = 0.1
SPOOLED: Final = "out.log"

MOVING_S: Final = 3.0
"""How long the log of an ended attempt may be on its way from the spool."""

FULL: Final = "{}: prints more than is kept; the last of it is shown when it has ended"

Key = tuple[str, int, int]
"""(step, attempt, fence)"""


@dataclass(frozen=True)
class LogPiece:
    """Some output of one attempt, as it came.

    Attributes:
        note: For people: what is missing, and why; "" usually.
    """

    step: str
    attempt: int
    data: bytes = b""
    note: str = ""


def find_log(places: Places, attempt: AttemptStatus) -> Path | None:
    """The file of an attempt's output on this machine, None if it is not (or no longer) here.

    It moves once, right after the end: from the spool to where the result says.
    """
    kept = None if attempt.log is None else Path(attempt.log.path)
    if kept is not None and kept.is_file():
        return kept
    try:
        spool = places.node(attempt.node).spool
    except BadNameError:
        return None
    # Fences are unique in a pool, so no other attempt's entry can match.
    for spooled in spool.glob(f"hb.*.a{attempt.attempt}.f{attempt.fence}/{SPOOLED}"):
        return spooled
    return kept if kept is not None and kept.is_file() else None


def tail(places: Places, attempt: AttemptStatus, lines: int) -> list[str] | None:
    """The last lines of an attempt's output, None if it is not on this machine."""
    for _ in range(2):
        path = find_log(places, attempt)
        try:
            if path is not None:
                return _last_lines(path, lines)
        except FileNotFoundError:
            continue  # Just moved.
    return None


def _last_lines(path: Path, lines: int) -> list[str]:
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()[-lines:]


@dataclass
class _Tail:
    """One attempt's file, read as it grows.

    Attributes:
        attempt: As last seen.
        ended_at: When it was first seen ended, on the monotonic clock; what is there is all.
        done: Nothing more is wanted of it.
    """

    step: str
    attempt: AttemptStatus
    ended_at: float | None = None
    file: BinaryIO | None = field(default=None, repr=False)
    done: bool = False
    told_full: bool = False

    def read(self, places: Places) -> bytes:
        """What has come since the last time, b"" if nothing."""
        if self.file is None:
            path = find_log(places, self.attempt)
            try:
                self.file = path.open("rb") if path is not None else None
            except FileNotFoundError:
                return b""  # Just moved: next time it is there.
        return self.file.read(CHUNK) if self.file is not None else b""

    def exhausted(self) -> bool:
        """Whether nothing more can come: asked after a read that gave nothing."""
        if self.ended_at is None:
            return False
        printed = self.attempt.log is not None and self.attempt.log.seen_bytes > 0
        if self.file is None and printed:
            return time.monotonic() - self.ended_at > MOVING_S
        return True

    def full(self) -> bool:
        """Whether it prints more than is kept as it comes; true once."""
        if self.told_full or self.file is None or self.ended_at is not None:
            return False
        self.told_full = Path(f"{self.file.name}.ring").exists()
        return self.told_full

    def elsewhere(self) -> LogsElsewhereError:
        """Where the log is."""
        attempt = self.attempt
        path = attempt.log.path if attempt.log is not None else ""
        return LogsElsewhereError(self.step, attempt.attempt, attempt.node, path)

    def close(self) -> None:
        """No more is wanted."""
        self.done = True
        if self.file is not None:
            self.file.close()


class LogReader:
    """Reads one workload's logs."""

    def __init__(self, places: Places, reader: Reader, follower: Follower) -> None:
        self._places = places
        self._reader = reader
        self._follower = follower
        self._tails: dict[Key, _Tail] = {}
        self._elsewhere: list[LogsElsewhereError] = []

    async def read(
        self, workload: str, step: str | None, *, follow: bool, attempt: int | None
    ) -> AsyncIterator[LogPiece]:
        """Output in pieces; see `headbay.client.client.HeadbayClient.logs`."""
        reading = await self._reader.read(workload)
        status = reading.workload
        chosen = _choose(status, step) if status.steps else []
        made = {known.name: known.attempts_made for known in chosen}
        waits = follow and not is_final(reading)
        if attempt is not None and not waits and max(made.values(), default=0) < attempt:
            raise AttemptNotFoundError(workload, attempt, made)
        pieces = (
            self._follow(workload, step, attempt) if follow else self._once(status, step, attempt)
        )
        found = False
        try:
            async for piece in pieces:
                found = True
                yield piece
        finally:
            for opened in self._tails.values():
                opened.close()
        if self._elsewhere and not found:
            raise self._elsewhere[0]
        for error in self._elsewhere:
            yield LogPiece(step="", attempt=0, note=str(error))

    async def _once(
        self, status: WorkloadStatus, step: str | None, attempt: int | None
    ) -> AsyncIterator[LogPiece]:
        self._take(status, step, attempt, every=False)
        for opened in self._tails.values():
            while not opened.done:
                if data := opened.read(self._places):
                    yield LogPiece(opened.step, opened.attempt.attempt, data)
                elif opened.ended_at is None or opened.exhausted():
                    opened.close()
                else:
                    await asyncio.sleep(POLL_S)

    async def _follow(
        self, workload: str, step: str | None, attempt: int | None
    ) -> AsyncIterator[LogPiece]:
        """Read what grows until the workload has ended and everything was read.

        Every attempt is shown, in the order in which it is seen: a retry does not hide what it
        repeats.
        """
        readings = self._follower.follow(workload, None)
        coming = asyncio.ensure_future(anext(readings))
        final = False
        try:
            while True:
                quiet = True
                if not final and coming.done():
                    reading = coming.result()
                    final = is_final(reading)
                    self._take(reading.workload, step, attempt, every=True)
                    if not final:
                        coming = asyncio.ensure_future(anext(readings))
                live = [opened for opened in self._tails.values() if not opened.done]
                for opened in live:
                    number = opened.attempt.attempt
                    if data := opened.read(self._places):
                        quiet = False
                        yield LogPiece(opened.step, number, data)
                    elif opened.exhausted() or (final and opened.ended_at is None):
                        opened.close()
                    elif opened.full():
                        yield LogPiece(opened.step, number, note=FULL.format(opened.step))
                if final and all(opened.done for opened in live):
                    return
                if quiet and final:
                    await asyncio.sleep(POLL_S)
                elif quiet:
                    await asyncio.wait({coming}, timeout=POLL_S)
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            await readings.aclose()

    def _take(
        self, status: WorkloadStatus, step: str | None, attempt: int | None, *, every: bool
    ) -> None:
        """Know the attempts that have output."""
        for known in _choose(status, step) if status.steps else []:
            begun = [a for a in known.attempts if a.node and a.fence]
            chosen = begun if every else begun[-1:]
            if attempt is not None:
                chosen = [a for a in begun if a.attempt == attempt]
            for one in chosen:
                self._add(known, one)

    def _add(self, step: StepStatus, attempt: AttemptStatus) -> None:
        key = (step.name, attempt.attempt, attempt.fence)
        opened = self._tails.get(key)
        if opened is None:
            opened = self._tails[key] = _Tail(step.name, attempt)
            if not self._is_here(attempt):
                self._elsewhere.append(opened.elsewhere())
                opened.close()
        opened.attempt = attempt
        if attempt.state is AttemptState.ENDED and opened.ended_at is None:
            opened.ended_at = time.monotonic()

    def _is_here(self, attempt: AttemptStatus) -> bool:
        if find_log(self._places, attempt) is not None:
            return True
        try:
            return self._places.node(attempt.node).root.is_dir()
        except BadNameError:
            return False


def _choose(status: WorkloadStatus, step: str | None) -> list[StepStatus]:
    if step is None:
        return status.steps
    chosen = [s for s in status.steps if step in (s.name, s.base)]
    if not chosen:
        raise StepNotFoundError(status.id, step, [s.name for s in status.steps])
    return chosen
