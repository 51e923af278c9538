"""Logs of steps that ran on nodes of this machine.

An attempt's output is one file: where its result says once it has ended, in the node's spool while
it runs. Logs of other machines are named, not fetched.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from headbay.activities.places import BadNameError, Places
from headbay.client.errors import LogsElsewhereError, StepNotFoundError
from headbay.client.following import Follower
from headbay.client.reading import Reader, is_final
from headbay.domain.attempt import LogRef
from headbay.domain.lifecycle import AttemptState
from headbay.domain.status import AttemptStatus, StepStatus, WorkloadStatus

__all__ = ["LogPiece", "LogReader", "tail"]

CHUNK: Final = 256 * 1024
TAIL_BYTES: Final = 16 * 1024
POLL_S: Final = 0.1
SPOOLED: Final = "out.log"

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


def tail(log: LogRef, lines: int) -> list[str] | None:
    """The last lines of a log, None if it is not on this machine."""
    try:
        with Path(log.path).open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - TAIL_BYTES))
            kept = file.read()
    except OSError:
        return None
    return kept.decode(errors="replace").splitlines()[-lines:]


@dataclass
class _Tail:
    """One attempt's file, read as it grows.

    Attributes:
        ended: The attempt has ended: what is there is all.
    """

    step: str
    attempt: int
    node: str
    log: LogRef | None = None
    ended: bool = False
    file: BinaryIO | None = field(default=None, repr=False)
    done: bool = False

    def read(self, places: Places, fence: int) -> bytes:
        """What has come since the last time, b"" if nothing."""
        if self.file is None:
            path = self._find(places, fence)
            if path is None:
                return b""
            self.file = path.open("rb")
        return self.file.read(CHUNK)

    def _find(self, places: Places, fence: int) -> Path | None:
        if self.log is not None and Path(self.log.path).is_file():
            return Path(self.log.path)
        # Fences are unique in a pool, so no other attempt's entry can match.
        spool = places.node(self.node).spool
        for entry in spool.glob(f"hb.*.a{self.attempt}.f{fence}*/{SPOOLED}"):
            return entry
        return None

    def elsewhere(self) -> LogsElsewhereError:
        """Where the log is."""
        path = self.log.path if self.log is not None else ""
        return LogsElsewhereError(self.step, self.attempt, self.node, path)

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
        status = (await self._reader.read(workload)).workload
        if step is not None and status.steps:
            _choose(status, step)
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
        for key, opened in self._tails.items():
            while data := opened.read(self._places, key[2]):
                yield LogPiece(opened.step, opened.attempt, data)
            if note := _left_out(opened):
                yield LogPiece(opened.step, opened.attempt, note=note)

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
                for key, opened in self._tails.items():
                    if opened.done:
                        continue
                    if data := opened.read(self._places, key[2]):
                        quiet = False
                        yield LogPiece(opened.step, opened.attempt, data)
                    elif opened.ended or final:
                        if note := _left_out(opened):
                            yield LogPiece(opened.step, opened.attempt, note=note)
                        opened.close()
                if quiet and final:
                    return
                if quiet:
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
            opened = _Tail(step.name, attempt.attempt, attempt.node)
            self._tails[key] = opened
            opened.log = attempt.log
            if not self._is_here(opened):
                self._elsewhere.append(opened.elsewhere())
                opened.close()
        opened.log = attempt.log
        opened.ended = attempt.state is AttemptState.ENDED

    def _is_here(self, opened: _Tail) -> bool:
        if opened.log is not None and Path(opened.log.path).is_file():
            return True
        try:
            return self._places.node(opened.node).root.is_dir()
        except BadNameError:
            return False


def _choose(status: WorkloadStatus, step: str | None) -> list[StepStatus]:
    if step is None:
        return status.steps
    chosen = [s for s in status.steps if step in (s.name, s.base)]
    if not chosen:
        raise StepNotFoundError(status.id, step, [s.name for s in status.steps])
    return chosen


def _left_out(opened: _Tail) -> str:
    log = opened.log
    if log is None or log.seen_bytes <= log.kept_bytes:
        return ""
    left = log.seen_bytes - log.kept_bytes
    return f"{opened.step}: {left} bytes in the middle were not kept (it printed {log.seen_bytes})"
