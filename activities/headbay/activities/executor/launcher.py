"""The node worker's end of the launcher: starts it, talks to it, replaces it when it dies."""

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


class Launcher:
    """One launcher process at a time."""

    def __init__(self, program: Path, shim: Path) -> None:
        self._program = program
        self._shim = shim
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
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
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()
        if self._reader is not None:
            await self._reader

    async def _call(self, op: str, **fields: Any) -> dict[str, Any]:
        process = await self._running()
        number = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        line = json.dumps({"id": number, "op": op, **fields}).encode() + b"\n"
        try:
            if process.stdin is None:
                raise LaunchFailedError("the launcher has no standard input")
            process.stdin.write(line)
            await process.stdin.drain()
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = await future
        except (ConnectionError, TimeoutError) as error:
            raise LaunchFailedError(f"the launcher did not answer {op}: {error!r}") from error
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise LaunchFailedError(f"the launcher could not {op}: {answer['error']}")
        return answer

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return self._process
            if self._process is not None:
                log.warning("launcher.died", status=self._process.returncode)
            self._process = await asyncio.create_subprocess_exec(
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
            self._reader = asyncio.create_task(self._read(self._process))
            return self._process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            return
        while line := await process.stdout.readline():
            answer = json.loads(line)
            future = self._waiting.get(answer["id"])
            if future is not None and not future.done():
                future.set_result(answer)
        await process.wait()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the launcher died"))
