"""What the ledger knows: workloads that Temporal has forgotten, or cannot answer for just now.

The ledger is optional and may be away; then the second value of each answer says so.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headbay.activities.ledger import (
    BadLedgerUrlError,
    Ledger,
    LedgerSchemaError,
    LedgerUnavailableError,
    WorkloadPage,
    WorkloadQuery,
    open_ledger,
    read_status,
)
from headbay.domain.journal import JournalEvent
from headbay.domain.status import WorkloadStatus

__all__ = ["NO_LEDGER", "Past"]

NO_LEDGER = "no ledger is configured (HEADBAY_LEDGER)"

T = TypeVar("T")


class Past:
    """Reads one ledger, opened when it is first needed; never writes to it."""

    def __init__(self, url: str | None) -> None:
        self.url = url
        self._ledger: Ledger | None = None

    async def status(self, workload: str) -> tuple[WorkloadStatus | None, str]:
        """A workload's status as last heard; and why it cannot be told, "" if it can."""
        return await self._ask(lambda ledger: read_status(ledger, workload), None)

    async def digest(self, workload: str) -> tuple[str | None, str]:
        """Digest of the document that an id was used for, None if it was not."""

        async def ask(ledger: Ledger) -> str | None:
            row = await ledger.workload(workload)
            return row.digest or None if row is not None else None

        found, why = await self._ask(ask, None)
        # Without a ledger nothing remembers for longer than Temporal: there is nothing to check.
        return found, "" if self.url is None else why

    async def events(self, workload: str) -> tuple[list[JournalEvent], str]:
        """The journal across all runs."""
        return await self._ask(lambda ledger: ledger.events(workload), [])

    async def page(self, query: WorkloadQuery) -> tuple[WorkloadPage, str]:
        """Workloads, newest first."""
        return await self._ask(lambda ledger: ledger.list_workloads(query), WorkloadPage([]))

    async def ping(self) -> str:
        """Why the ledger cannot be read, "" if it can."""

        async def ask(ledger: Ledger) -> None:
            await ledger.list_workloads(WorkloadQuery(limit=1))

        return (await self._ask(ask, None))[1]

    async def close(self) -> None:
        """Let go of the ledger."""
        if self._ledger is not None:
            await self._ledger.close()

    async def _ask(self, question: Callable[[Ledger], Awaitable[T]], otherwise: T) -> tuple[T, str]:
        if self.url is None:
            return otherwise, NO_LEDGER
        try:
            if self._ledger is None:
                self._ledger = open_ledger(self.url)
            return await question(self._ledger), ""
        except (BadLedgerUrlError, LedgerSchemaError, LedgerUnavailableError) as error:
            return otherwise, str(error)
