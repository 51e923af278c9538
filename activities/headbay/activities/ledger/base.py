"""What both SQL ledgers do alike: everything that is one statement by name."""

import json
import time
from abc import ABC, abstractmethod
from itertools import groupby
from typing import Any

from headbay.activities.ledger.decoding import (
    attempt_row,
    list_parameters,
    page_of,
    step_row,
    workload_row,
)
from headbay.activities.ledger.port import EventKey
from headbay.activities.ledger.projection import event_of
from headbay.activities.ledger.rows import (
    AttemptRow,
    Claim,
    Gap,
    StepRow,
    WorkloadPage,
    WorkloadQuery,
    WorkloadRow,
)
from headbay.domain.journal import JournalEvent

__all__ = ["SqlLedger"]


class SqlLedger(ABC):
    """Reads, idempotency keys and fences of `headbay.activities.ledger.Ledger`; see there."""

    @abstractmethod
    async def _rows(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        """Rows of a named statement that changes nothing, its columns in order."""

    @abstractmethod
    async def _change(self, statement: str, **parameters: Any) -> int:
        """Run a named statement in a transaction of its own; how many rows it changed."""

    async def gaps(self) -> list[Gap]:
        """Runs whose journal has holes."""
        rows = await self._rows("missing_ranges")
        return [
            Gap(workload, run, [(row["first"], row["last"]) for row in group])
            for (workload, run), group in groupby(rows, lambda row: (row["workload"], row["run"]))
        ]

    async def has_end(self, workload: str, run: str) -> bool:
        """Whether this run has recorded the workload's end."""
        return bool(await self._rows("has_end", workload=workload, run=run))

    async def unfinished(self) -> list[WorkloadRow]:
        """Workloads that have not finished."""
        return [workload_row(row) for row in await self._rows("unfinished")]

    async def workload(self, workload: str) -> WorkloadRow | None:
        """One workload."""
        rows = await self._rows("workload", workload=workload)
        return workload_row(rows[0]) if rows else None

    async def list_workloads(self, query: WorkloadQuery) -> WorkloadPage:
        """Workloads, newest first."""
        rows = await self._rows("list_workloads", **list_parameters(query))
        return page_of([workload_row(row) for row in rows], query.limit)

    async def steps(self, workload: str) -> list[StepRow]:
        """Its steps."""
        return [step_row(row) for row in await self._rows("steps", workload=workload)]

    async def attempts(self, workload: str) -> list[AttemptRow]:
        """Its attempts."""
        return [attempt_row(row) for row in await self._rows("attempts", workload=workload)]

    async def events(
        self, workload: str, *, after: EventKey | None = None, limit: int | None = None
    ) -> list[JournalEvent]:
        """Its journal."""
        at_ms, run, seq = after or (None, None, None)
        rows = await self._rows(
            "events", workload=workload, at_ms=at_ms, run=run, seq=seq, limit=limit
        )
        return [event_of(tuple(row.values())) for row in rows]

    async def final_status(self, workload: str) -> dict[str, object] | None:
        """JSON of the status it finished with."""
        rows = await self._rows("final_status", workload=workload)
        status = json.loads(rows[0]["data"]).get("status") if rows else None
        return status if isinstance(status, dict) else None

    async def claim_key(self, key: str, digest: str) -> Claim:
        """Claim an idempotency key. Keys are never deleted, so two statements are enough."""
        now_ms = time.time_ns() // 1_000_000
        if await self._change("claim_key", key=key, digest=digest, claimed_ms=now_ms):
            return Claim(key, "new", digest, now_ms)
        row = (await self._rows("claimed_key", key=key))[0]
        held = row["digest"]
        return Claim(key, "same" if held == digest else "conflict", held, row["claimed_ms"])

    async def raise_fence(self, pool: str, fence: int) -> int:
        """Raise a pool's high-water mark."""
        await self._change("raise_fence", pool=pool, fence=fence)
        return await self.fence(pool)

    async def fence(self, pool: str) -> int:
        """A pool's high-water mark."""
        rows = await self._rows("fence", pool=pool)
        return int(rows[0]["fence"]) if rows else 0

    async def ping(self) -> None:
        """Return if the database answers."""
        await self._rows("ping")
