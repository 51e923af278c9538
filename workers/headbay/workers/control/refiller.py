"""Fills gaps in the journal from Temporal: workflows remember every event of their run.

Events are lost to the ledger when it is away while a control worker dies. A workload's query
`journal` gives them back, also after it has closed, for as long as Temporal keeps its history.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import structlog
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from headbay.activities.ledger import Ledger, LedgerUnavailableError
from headbay.domain.ids import workload_of, workload_workflow_id
from headbay.domain.journal import JournalEvent
from headbay.workers.control.journaler import Journaler

__all__ = ["Refiller"]

log = structlog.get_logger(__name__)

EVERY_S = 60.0
SETTLED_AFTER = timedelta(seconds=30)
"""A workload that closed this long ago has told the journaler everything it will."""
QUERY_TIMEOUT = timedelta(seconds=10)


class Refiller:
    """Looks for gaps at start, after every outage of the ledger, and once a minute."""

    def __init__(self, client: Client, ledger: Ledger, journaler: Journaler) -> None:
        self._client = client
        self._ledger = ledger
        self._journaler = journaler
        self._since = datetime.fromtimestamp(0, UTC)

    async def run(self) -> None:
        """Refill until cancelled."""
        while True:
            try:
                filled = await self.refill()
                if filled:
                    log.info("journal.refilled", workloads=filled)
            except (LedgerUnavailableError, RPCError) as error:
                log.warning("journal.refill_failed", error=str(error))
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._journaler.recovered.wait()
            except TimeoutError:
                continue
            self._journaler.recovered.clear()

    async def refill(self) -> int:
        """Fill every gap that can be seen now; how many runs were filled.

        1. runs with a hole between their events; 2. runs that have closed without the ledger
        knowing their end.
        """
        runs = {(gap.workload, gap.run) for gap in await self._ledger.gaps()}
        horizon = datetime.fromtimestamp(time.time(), UTC) - SETTLED_AFTER
        query = (
            "WorkflowType = 'Workload' AND ExecutionStatus != 'Running' "
            f"AND CloseTime > '{self._since.isoformat()}' AND CloseTime <= '{horizon.isoformat()}'"
        )
        async for execution in self._client.list_workflows(query):
            workload = workload_of(execution.id)
            if workload is not None and not await self._ledger.has_end(workload, execution.run_id):
                runs.add((workload, execution.run_id))
        filled = 0
        for workload, run in sorted(runs):
            filled += await self._refill_run(workload, run)
        self._since = horizon - SETTLED_AFTER
        return filled

    async def _refill_run(self, workload: str, run: str) -> int:
        handle = self._client.get_workflow_handle(workload_workflow_id(workload), run_id=run)
        try:
            rows = await handle.query("journal", 0, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError) as error:
            log.warning("journal.gap_stays", workload=workload, run=run, error=str(error))
            return 0
        events = [JournalEvent.model_validate(row | {"run": run}) for row in rows]
        if events:
            await self._ledger.append(events)
        return 1
