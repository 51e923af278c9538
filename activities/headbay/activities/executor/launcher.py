"""The node worker's end of the launcher: starts it, talks to it, replaces it when it fails.

A launcher that dies, or does not answer, is replaced. Every shim that it had not told to go sees
the end of its pipe then and leaves, so what was asked of it may be asked again.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from headbay.activities.executor.port import LaunchFailedError, Started

__all__ = ["Launcher"]

log = structlog.get_logger(__name__)

ANSWER_WITHIN_S = 10.0
LEAVE_WITHIN_S = 2.0


class Launcher:
    """One launcher process at a time.

    Args:
        program: The launcher's program. shim: What it starts.
        answer_within_s: How long it may take to answer before it is replaced.
    """

    def __init__(
        self, program: Path, shim: Path, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._program = program
        self._shim = shim
        self._answer_within_s = answer_within_s
        self._line: _Line | None = None
        self._starting = asyncio.Lock()

    async def spawn(self, directory: Path) -> Started:
        """Start a shim that waits to be told to go.

        Raises:
            LaunchFailedError: It could not be started, or the launcher died meanwhile.
        """
        answer = await self._call("spawn", directory=str(directory))
        return Started(answer["pid"], answer["ticks"])

    async def go(self, shim: Started, nonce: str, secrets: Mapping[str, str]) -> None:
        """Let a shim start its payload.

        Raises:
            LaunchFailedError: It is not known whether the shim heard it: look for its `begin`.
        """
        await self._call("go", pid=shim.pid, nonce=nonce, secrets=dict(secrets))

    async def drop(self, shim: Started) -> None:
        """Let a shim leave without starting anything."""
        await self._call("drop", pid=shim.pid)

    async def close(self) -> None:
        """End the launcher; running payloads go on."""
        if self._line is not None:
            await self._line.close()

    async def _call(self, op: str, **fields: Any) -> dict[str, Any]:
        line = await self._open()
        try:
            async with asyncio.timeout(self._answer_within_s):
                answer = await line.ask(op, fields)
        except (ConnectionError, TimeoutError) as error:
            line.kill()
            raise LaunchFailedError(f"the launcher did not answer {op}: {error!r}") from error
        if "error" in answer:
            raise LaunchFailedError(f"the launcher could not {op}: {answer['error']}")
        return answer

    async def _open(self) -> "_Line":
        async with self._starting:
            if self._line is not None and self._line.usable:
                return self._line
            if self._line is not None:
                log.warning("launcher.replaced", pid=self._line.pid)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                str(self._program),
                str(self._shim),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
                start_new_session=True,
            )
            self._line = _Line(process)
            return self._line


class _Line:
    """One launcher process, and who waits for its answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise LaunchFailedError("the launcher has no pipes")
        self.pid = process.pid
        self._process = process
        self._to = process.stdin
        self._from = process.stdout
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ended = False
        self._reader = asyncio.create_task(self._read())

    @property
    def usable(self) -> bool:
        """Whether it is worth asking."""
        return not self._ended and self._process.returncode is None

    async def ask(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Its answer.

        Raises:
            ConnectionError: It died.
        """
        number = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            if self._ended:
                raise ConnectionResetError("the launcher died")
            self._to.write(json.dumps({"id": number, "op": op, **fields}).encode() + b"\n")
            await self._to.drain()
            return await future
        finally:
            self._waiting.pop(number, None)

    def kill(self) -> None:
        """End it at once: it is broken."""
        self._ended = True
        if self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """Let it leave; one that does not is killed."""
        self._to.close()
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        try:
            while line := await self._from.readline():
                answer = json.loads(line)
                future = self._waiting.get(answer["id"])
                if future is not None and not future.done():
                    future.set_result(answer)
        except (ValueError, KeyError) as error:
            log.warning("launcher.garbled", pid=self.pid, error=repr(error))
            self.kill()
        self._ended = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the launcher died"))
        await self._process.wait()
