"""The port every ledger implements; one conformance suite runs over all of them.

A ledger is a projection of what workloads decided: an append-only journal, and a read model that
is derived from it in the same transaction. It decides nothing.
"""

from collections.abc import Sequence
from typing import Protocol, Self

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

__all__ = ["EventKey", "Ledger"]

EventKey = tuple[int, str, int]
"""(at_ms, run, seq): the order of a workload's events.

Within a run ``at_ms`` never falls, so that it agrees with ``seq``; runs of one workload
(continue-as-new, reset) follow each other in time.
"""


class Ledger(Protocol):
    """SQL store of the journal, accounts, idempotency keys and fence high-water marks.

    Every method may be called again after any failure. All raise
    `headbay.activities.ledger.LedgerUnavailableError` while the database is away, within a few
    seconds, and work again by themselves when it is back.
    """

    @classmethod
    def of_url(cls, url: str) -> Self:
        """The ledger at a URL; nothing is opened yet.

        Raises:
            BadLedgerUrlError: The URL is not one of this kind.
        """
        ...

    @property
    def url(self) -> str:
        """Where it is, fit to be shown: without a password."""
        ...

    async def migrate(self, *, dry_run: bool = False) -> list[str]:
        """Bring the tables up to date, in one transaction; several processes may call it at once.

        Returns:
            Names of the migrations that were applied (``dry_run``: that would be).

        Raises:
            LedgerSchemaError: A newer Headbay has migrated it, or an applied migration has changed.
        """
        ...

    async def append(self, events: Sequence[JournalEvent]) -> int:
        """Write events and what follows from them, all or nothing, durably.

        Any order, any number of times, any batches: the read model depends only on which events
        are there. An event is identified by (workload, run, seq); the first text of one wins.

        Returns:
            Number of events that were not there before.
        """
        ...

    async def gaps(self) -> list[Gap]:
        """Runs whose journal has holes, oldest workload first."""
        ...

    async def has_end(self, workload: str, run: str) -> bool:
        """Whether this run has recorded that the workload finished."""
        ...

    async def unfinished(self) -> list[WorkloadRow]:
        """Workloads that have not finished as far as told, oldest first."""
        ...

    async def workload(self, workload: str) -> WorkloadRow | None:
        """One workload."""
        ...

    async def list_workloads(self, query: WorkloadQuery) -> WorkloadPage:
        """Workloads, newest first (without their documents).

        Raises:
            ValueError: ``query.page`` is no page's token.
        """
        ...

    async def steps(self, workload: str) -> list[StepRow]:
        """Its steps that something has happened to, by name."""
        ...

    async def attempts(self, workload: str) -> list[AttemptRow]:
        """Its attempts, by step, number and fence."""
        ...

    async def events(
        self, workload: str, *, after: EventKey | None = None, limit: int | None = None
    ) -> list[JournalEvent]:
        """Its journal in order, across runs; with ``after`` only what follows that event."""
        ...

    async def final_status(self, workload: str) -> dict[str, object] | None:
        """JSON of the `WorkloadStatus` it finished with; None if it has not, or runs again."""
        ...

    async def claim_key(self, key: str, digest: str) -> Claim:
        """Claim an idempotency key for a document; the first claim holds for ever."""
        ...

    async def raise_fence(self, pool: str, fence: int) -> int:
        """Raise a pool's high-water mark; a lower fence changes nothing. The mark afterwards."""
        ...

    async def fence(self, pool: str) -> int:
        """A pool's high-water mark, 0 if none."""
        ...

    async def ping(self) -> None:
        """Return if the database answers."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads; idempotent."""
        ...
