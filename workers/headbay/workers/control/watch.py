"""What only an outsider can see: a pool that was terminated, a paused presence gone silent."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

import structlog
from temporalio.client import Client
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

    async def _every(self, seconds: float, look) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        while True:
            try:
                await look()
            except RPCError as error:
                log.warning("watch.failed", look=look.__name__, error=str(error))
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
                    if pending.activity_type.name != PRESENCE or not pending.paused:
                        continue
                    silent_ms = time.time() * 1_000 - pending.last_heartbeat_time.ToMilliseconds()
                    if silent_ms > PRESENCE_TTL_MS:
                        state = await handle.query("state", rpc_timeout=RPC_TIMEOUT)
                        await handle.signal("presence_stale", {"epoch": state["epoch"]})
                        log.warning("presence.stale", node=state["name"], silent_ms=int(silent_ms))
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
