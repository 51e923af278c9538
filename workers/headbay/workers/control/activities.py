"""Activities of the control worker: what workflows tell pools, ledger, workloads and nodes."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import structlog
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from headbay.activities.ledger import Ledger
from headbay.domain.exchange import Delivery, ExchangeAnswer
from headbay.domain.ids import workload_workflow_id
from headbay.domain.pool import DeliveryOutcome, HolderState
from headbay.workers.control.batcher import Senders
from headbay.workers.control.journaler import Journaler
from headbay.workflows.calls import (
    CENSUS,
    DELIVER,
    EXCHANGE,
    HOLDERS,
    REPORT,
    Asked,
    CensusOrder,
    DeliveryBatch,
    ExchangeOrder,
    HolderBatch,
    HolderQuery,
    ReportOrder,
)

__all__ = ["ControlActivities"]

log = structlog.get_logger(__name__)

RPC_TIMEOUT = timedelta(seconds=2)
CONCURRENT_RPCS = 64


class ControlActivities:
    """All activities of a control worker."""

    def __init__(
        self, client: Client, senders: Senders, journaler: Journaler, ledger: Ledger
    ) -> None:
        self._client = client
        self._senders = senders
        self._journaler = journaler
        self._ledger = ledger
        self._rpcs = asyncio.Semaphore(CONCURRENT_RPCS)

    @activity.defn(name=EXCHANGE)
    async def exchange(self, order: ExchangeOrder) -> Asked:
        """Tell the pool and the ledger, in the name of the run that asks."""
        run = activity.info().workflow_run_id
        if run is None:
            raise RuntimeError("`exchange` is a workflow's activity")
        events = [event.model_copy(update={"run": run}) for event in order.events]

        async def ask() -> ExchangeAnswer | None:
            if order.exchange is None:
                return None
            message = order.exchange.model_copy(
                update={
                    "run": run,
                    "holds": [g.model_copy(update={"run": run}) for g in order.exchange.holds],
                }
            )
            return await self._senders.exchange(order.pool, message)

        answer, journaled, _ = await asyncio.gather(
            ask(), self._journaler.write(events), asyncio.sleep(order.linger_ms / 1_000)
        )
        return Asked(answer=answer, journaled=journaled)

    @activity.defn(name=REPORT)
    async def report(self, order: ReportOrder) -> None:
        """Tell a pool of a node."""
        await self._senders.report(order.pool, order.report)

    @activity.defn(name=DELIVER)
    async def deliver(self, batch: DeliveryBatch) -> list[str]:
        """Signal every run what its pool has for it; one DeliveryOutcome each, in order."""
        return list(await asyncio.gather(*(self._deliver(d) for d in batch.deliveries)))

    async def _deliver(self, delivery: Delivery) -> DeliveryOutcome:
        handle = self._client.get_workflow_handle(
            workload_workflow_id(delivery.workload), run_id=delivery.run
        )
        parts = (
            ("grants", delivery.grants),
            ("gone", delivery.gone),
            ("refused", delivery.refusals),
        )
        async with self._rpcs:
            try:
                for signal, items in parts:
                    if items:
                        payload = [item.model_dump(mode="json") for item in items]
                        await handle.signal(signal, payload, rpc_timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return DeliveryOutcome.HOLDER_GONE
                log.warning("delivery.unknown", workload=delivery.workload, error=str(error))
                return DeliveryOutcome.UNKNOWN
        return DeliveryOutcome.DELIVERED

    @activity.defn(name=HOLDERS)
    async def holders(self, batch: HolderBatch) -> list[str]:
        """Whether these runs are open; one HolderState each, in order."""
        return list(await asyncio.gather(*(self._holder(h) for h in batch.holders)))

    async def _holder(self, holder: HolderQuery) -> HolderState:
        handle = self._client.get_workflow_handle(
            workload_workflow_id(holder.workload), run_id=holder.run
        )
        async with self._rpcs:
            try:
                description = await handle.describe(rpc_timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return HolderState.CLOSED
                log.warning("holder.unknown", workload=holder.workload, error=str(error))
                return HolderState.UNKNOWN
        running = description.status is WorkflowExecutionStatus.RUNNING
        return HolderState.OPEN if running else HolderState.CLOSED

    @activity.defn(name=CENSUS)
    async def census(self, order: CensusOrder) -> int:
        """Call in every open node and workload; the highest fence that the ledger remembers.

        Nodes answer with their inventory, workloads ask again for everything outstanding. Both
        are idempotent, so calling one twice is harmless.
        """
        await asyncio.gather(
            self._signal_all("Node", "report", order.pool),
            self._signal_all("Workload", "call_in", order.pool),
        )
        return await self._ledger.fence(order.pool)

    async def _signal_all(self, workflow_type: str, signal: str, pool: str) -> None:
        query = f"WorkflowType = '{workflow_type}' AND ExecutionStatus = 'Running'"
        calls: list[Awaitable[None]] = [
            self._signal(execution.id, execution.run_id, signal, pool)
            async for execution in self._client.list_workflows(query)
        ]
        await asyncio.gather(*calls)
        log.info("census", type=workflow_type, called=len(calls), pool=pool)

    async def _signal(self, workflow_id: str, run: str, signal: str, pool: str) -> None:
        handle = self._client.get_workflow_handle(workflow_id, run_id=run)
        async with self._rpcs:
            try:
                await handle.signal(signal, {"pool": pool}, rpc_timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
