"""What only an outsider can see: a pool that was terminated, a paused presence gone silent."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import structlog
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from headbay.domain.ids import POOL_QUEUE, pool_workflow_id
from headbay.domain.node import PRESENCE_TTL_MS
from headbay.workflows.calls import PRESENCE
from headbay.workflows.pool import PoolSettings

__all__ = ["Watch"]

log = structlog.get_logger(__name__)

POOLS_EVERY_S = 3.0
PRESENCES_EVERY_S = 10.0
RPC_TIMEOUT = timedelta(seconds=3)


class Watch:
    """Keeps the pools running and tells nodes whose presence is paused and silent."""

    def __init__(self, client: Client, pools: Sequence[str], settings: PoolSettings) -> None:
        self._client = client
        self._pools = pools
        self._settings = settings

    async def run(self) -> None:
        """Watch until cancelled."""
        await asyncio.gather(
            self._every(POOLS_EVERY_S, self.ensure_pools),
            self._every(PRESENCES_EVERY_S, self.check_presences),
        )

    async def _every(self, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await look()
            except RPCError as error:
                log.warning("watch.failed", error=str(error))
            await asyncio.sleep(seconds)

    async def ensure_pools(self) -> None:
        """Start every pool that does not run; a running one is left as it is."""
        for pool in self._pools:
            await self._client.start_workflow(
                "Pool",
                args=[pool, None, self._settings],
                id=pool_workflow_id(pool),
                task_queue=POOL_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"Pool {pool}",
                rpc_timeout=RPC_TIMEOUT,
            )

    async def check_presences(self) -> None:
        """Tell nodes whose presence is paused and no longer heartbeats: it never times out."""
        query = "WorkflowType = 'Node' AND ExecutionStatus = 'Running'"
        async for execution in self._client.list_workflows(query):
            handle = self._client.get_workflow_handle(execution.id, run_id=execution.run_id)
            try:
                description = await handle.describe(rpc_timeout=RPC_TIMEOUT)
                for pending in description.raw_description.pending_activities:
                    if pending.paused and silence_ms(pending) > PRESENCE_TTL_MS:
                        await self._tell_stale(handle, pending.activity_id)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise

    async def _tell_stale(self, handle: WorkflowHandle[Any, Any], activity_id: str) -> None:
        kind, _, epoch = activity_id.rpartition("-")
        if kind == PRESENCE and epoch.isdigit():
            log.warning("presence.stale", node=handle.id, epoch=int(epoch))
            await handle.signal("presence_stale", {"epoch": int(epoch)}, rpc_timeout=RPC_TIMEOUT)


def silence_ms(pending: PendingActivityInfo) -> int:
    """Time since an activity was last heard of: its heartbeat, else its start, else its order."""
    for field in ("last_heartbeat_time", "last_started_time", "scheduled_time"):
        if pending.HasField(field):
            heard: int = getattr(pending, field).ToMilliseconds()
            return time.time_ns() // 1_000_000 - heard
    return 0
