"""Waits for workloads, and follows them: one long poll for the end, cheap queries on the way."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import TerminatedError
from temporalio.service import RPCError, RPCStatusCode

from headbay.client.connection import QUERY_TIMEOUT, answered, is_away
from headbay.client.errors import WaitTimeoutError
from headbay.client.models import Reading, Source
from headbay.client.reading import Reader, is_final
from headbay.domain.ids import workload_workflow_id

__all__ = ["OUTAGE_S", "Follower", "OnTrouble"]

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
GROWTH: Final = 1.5

OUTAGE_S: Final = 300.0
"""How long a server that does not answer is waited for before giving up."""

OnTrouble = Callable[[str], None]
"""Told, once per outage, that somebody does not answer."""


class Follower:
    """Follows workloads with one client."""

    def __init__(self, temporal: Client, reader: Reader) -> None:
        self._temporal = temporal
        self._reader = reader

    async def wait(
        self, workload: str, timeout_s: float | None, on_trouble: OnTrouble | None
    ) -> Reading:
        """The final reading.

        Raises:
            WaitTimeoutError: It goes on.
            NotFoundError: There is no such workload.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._closed(workload, on_trouble)
        except TimeoutError as error:
            raise WaitTimeoutError(workload, timeout_s or 0.0) from error

    async def follow(
        self, workload: str, on_trouble: OnTrouble | None
    ) -> AsyncGenerator[Reading, None]:
        """A reading now, one after every change that is seen, and the final one.

        Pauses grow to two seconds while nothing changes. Changes between two looks arrive as one.
        """
        last = await self._reader.read(workload)
        yield last
        if is_final(last) and last.source is not Source.WORKFLOW:
            return
        closed = asyncio.create_task(self._closed(workload, on_trouble))
        try:
            pause = FIRST_PAUSE_S
            while not (await asyncio.wait({closed}, timeout=pause))[0]:
                seen = await self._look(workload, on_trouble)
                if seen is None or seen.workload == last.workload:
                    pause = min(pause * GROWTH, LONGEST_PAUSE_S)
                    continue
                last, pause = seen, FIRST_PAUSE_S
                yield last
            final = await closed
            if final.workload != last.workload or final.source is not last.source:
                yield final
        finally:
            closed.cancel()
            await asyncio.gather(closed, return_exceptions=True)

    async def _look(self, workload: str, on_trouble: OnTrouble | None) -> Reading | None:
        """A glance; an unreachable server is the waiter's business."""
        try:
            seen = await self._reader.glance(workload)
        except RPCError as error:
            if not is_away(error):
                raise
            return None
        if seen is None and on_trouble is not None:
            on_trouble("no control worker answers: what is shown may be out of date")
        return seen

    async def _closed(self, workload: str, on_trouble: OnTrouble | None) -> Reading:
        """Wait until the workload has ended, through outages and resets."""
        away_since: float | None = None
        pause = FIRST_PAUSE_S
        while True:
            try:
                if await self._ended(workload):
                    return await self._reader.read(workload)
                away_since, pause = None, FIRST_PAUSE_S
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return await self._reader.read(workload)
                if not is_away(error):
                    raise
                now = time.monotonic()
                if away_since is None:
                    away_since = now
                    if on_trouble is not None:
                        on_trouble(f"Temporal does not answer ({error.message}): trying again")
                if now - away_since > OUTAGE_S:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _ended(self, workload: str) -> bool:
        """Wait for the current run's end; False if another run has taken over (a reset)."""
        handle: Any = self._temporal.get_workflow_handle(workload_workflow_id(workload))
        try:
            await handle.result()
        except WorkflowFailureError as failure:
            if not isinstance(failure.cause, TerminatedError):
                return True
            described = await answered(handle.describe(rpc_timeout=QUERY_TIMEOUT))
            return described.status is not WorkflowExecutionStatus.RUNNING
        return True
