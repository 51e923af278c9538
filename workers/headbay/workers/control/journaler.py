"""Writes the journal to the ledger, in batches, and keeps going when the ledger is away.

The ledger is a projection: workloads run on without it. What a writer could not keep, or lost in
a crash, the refiller takes from Temporal's histories.
"""

import asyncio
from collections import deque

import structlog

from headbay.activities.ledger import Ledger, LedgerUnavailableError
from headbay.domain.journal import JournalEvent

__all__ = ["Journaler"]

log = structlog.get_logger(__name__)

LINGER_S = 0.002
BATCH = 500
KEPT_EVENTS = 200_000
"""Events kept in memory while the ledger is away; beyond it the oldest are left to the refiller."""
RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)
ANSWER_WITHIN_S = 1.0


class Journaler:
    """One writer for all workflows of a control worker.

    Attributes:
        recovered: Set whenever the ledger answers again after an outage.
        task: Ends only by a fault that waiting does not heal, such as a newer schema: the control
            worker must end with it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: deque[tuple[list[JournalEvent], asyncio.Future[bool]]] = deque()
        self._kept: deque[JournalEvent] = deque(maxlen=KEPT_EVENTS)
        self._arrived = asyncio.Event()
        self._away = False
        self.recovered = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name="journaler")

    async def write(self, events: list[JournalEvent]) -> bool:
        """Whether the ledger has the events for sure; False if it is away or slow."""
        if not events:
            return True
        if self._away:
            self._kept.extend(events)
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((events, future))
        self._arrived.set()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await asyncio.shield(future)
        except TimeoutError:
            return False

    async def close(self) -> None:
        """Write what waits, if the ledger is there, and stop."""
        await asyncio.gather(*(future for _, future in self._waiting))
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self._kept:
            log.warning("ledger.events_left_to_refiller", events=len(self._kept))

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(LINGER_S)
            batch: list[tuple[list[JournalEvent], asyncio.Future[bool]]] = []
            size = 0
            while self._waiting and size < BATCH:
                batch.append(self._waiting.popleft())
                size += len(batch[-1][0])
            if not self._waiting:
                self._arrived.clear()
            events = [event for part, _ in batch for event in part]
            try:
                await self._append(events)
                written = True
            except LedgerUnavailableError as error:
                log.warning("ledger.away", error=str(error), kept=len(events))
                self._kept.extend(events)
                written = False
            for _, future in batch:
                if not future.done():
                    future.set_result(written)
            if not written:
                await self._outlast()

    async def _append(self, events: list[JournalEvent]) -> None:
        await self._ledger.append(events)
        fences: dict[str, int] = {}
        for event in events:
            fence, pool = event.data.get("fence"), event.data.get("pool")
            if event.kind == "StepGranted" and isinstance(fence, int) and isinstance(pool, str):
                fences[pool] = max(fences.get(pool, 0), fence)
        for pool, fence in fences.items():
            await self._ledger.raise_fence(pool, fence)

    async def _outlast(self) -> None:
        """Hold the events until the ledger is back, then write them all."""
        self._away = True
        while self._waiting:
            part, future = self._waiting.popleft()
            self._kept.extend(part)
            if not future.done():
                future.set_result(False)
        self._arrived.clear()
        attempt = 0
        while self._kept:
            await asyncio.sleep(RETRY_S[min(attempt, len(RETRY_S) - 1)])
            attempt += 1
            events = [self._kept[i] for i in range(min(BATCH, len(self._kept)))]
            try:
                await self._append(events)
            except LedgerUnavailableError:
                continue
            for _ in events:
                self._kept.popleft()
            attempt = 0
        self._away = False
        self.recovered.set()
        log.info("ledger.back")
