"""A helper process of the node worker: starts it, talks to it, replaces it when it fails.

Requests and answers are JSON lines on its standard input and output, each answer with the request's
``id``. A helper that dies, or does not answer, is replaced at the next request.
"""

import asyncio
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from headbay.activities.executor.port import LaunchFailedError

__all__ = ["Helper", "HelperGoneError", "RefusedError"]

log = structlog.get_logger(__name__)

ANSWER_WITHIN_S = 10.0
LEAVE_WITHIN_S = 2.0


class HelperGoneError(LaunchFailedError):
    """It died or did not answer: nobody knows whether it did what was asked."""


class RefusedError(LaunchFailedError):
    """It answered that it could not do it.

    Attributes:
        errno: Why, as the kernel numbers it; 0 if it has no number.
    """

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno


class Helper:
    """One process of its kind at a time.

    Args:
        name: What it is called in messages and logs.
        command: How it is started.
        environment: All of its environment.
        answer_within_s: How long it may take to answer before it is replaced.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._name = name
        self._command = list(command)
        self._environment = dict(environment)
        self._answer_within_s = answer_within_s
        self._line: _Line | None = None
        self._starting = asyncio.Lock()

    async def close(self) -> None:
        """End it."""
        if self._line is not None:
            await self._line.close()

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Its answer.

        Raises:
            HelperGoneError: It died, or did not answer in time and was killed.
            RefusedError: It could not do it, and says why.
        """
        line = await self._open()
        try:
            async with asyncio.timeout(self._answer_within_s):
                answer = await line.ask(op, fields)
        except (ConnectionError, TimeoutError) as error:
            line.kill()
            raise HelperGoneError(f"the {self._name} did not answer {op}: {error!r}") from error
        if "error" in answer:
            why = f"the {self._name} could not {op}: {answer['error']}"
            raise RefusedError(why, answer.get("errno", 0))
        return answer

    async def _open(self) -> "_Line":
        async with self._starting:
            if self._line is not None and self._line.usable:
                return self._line
            if self._line is not None:
                log.warning("helper.replaced", helper=self._name, pid=self._line.pid)
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
            self._line = _Line(process)
            return self._line


class _Line:
    """One process, and who waits for its answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise LaunchFailedError("a helper without pipes")
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
                raise ConnectionResetError("it died")
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
            log.warning("helper.garbled", pid=self.pid, error=repr(error))
            self.kill()
        self._ended = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("it died"))
        await self._process.wait()
