"""What workflows tell a pool, gathered into one update at a time.

Everything that arrived within a few milliseconds travels together, one update in flight a
process: updates, because signals block continue-as-new; few, because the server is the
bottleneck and its cost follows messages.
"""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

import structlog
from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from headbay.domain.exchange import Exchange, ExchangeAnswer, NodeReport
from headbay.domain.ids import POOL_QUEUE, pool_workflow_id
from headbay.domain.wire import Wire
from headbay.workflows.pool import PoolSettings

__all__ = ["PoolSender", "Senders", "start_pool_operation"]

log = structlog.get_logger(__name__)

LINGER_S = 0.004
BATCH = 500
UPDATE_TIMEOUT = timedelta(seconds=2.5)
"""Below the asking activity's own bound, so that an answer or an error arrives before it."""

SILENCE = (RPCError, RPCTimeoutOrCancelledError, WorkflowUpdateFailedError, TimeoutError)

Message = TypeVar("Message", bound=Wire)


def start_pool_operation(pool: str, settings: PoolSettings) -> WithStartWorkflowOperation[Any, Any]:
    """Start of a pool, for an update-with-start: an existing one is used as it is."""
    return WithStartWorkflowOperation(
        "Pool",
        args=[pool, None, settings],
        id=pool_workflow_id(pool),
        task_queue=POOL_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"Pool {pool}",
    )


class PoolSender(Generic[Message]):
    """Sends one kind of message to one pool, in batches, one update in flight."""

    def __init__(self, client: Client, pool: str, update: str, settings: PoolSettings) -> None:
        self._client = client
        self._pool = pool
        self._update = update
        self._settings = settings
        self._waiting: list[tuple[Message, asyncio.Future[Any]]] = []
        self._arrived = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"{update} -> pool {pool}")

    async def send(self, message: Message) -> Any:
        """The pool's answer to a message.

        Raises:
            RPCError: The pool did not answer; the message may or may not have arrived. Send it
                again: it carries a sequence number.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, future))
        self._arrived.set()
        return await future

    async def close(self) -> None:
        """Stop; messages that wait fail."""
        self._closing = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for _, future in self._waiting:
            future.cancel()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(LINGER_S)
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            batch = [(m, f) for m, f in batch if not f.done()]
            if not self._waiting:
                self._arrived.clear()
            if not batch:
                continue
            try:
                answers = await self._call([message for message, _ in batch])
            except SILENCE as error:
                if self._closing:
                    return
                log.warning("pool.unanswered", pool=self._pool, batch=len(batch), error=repr(error))
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for position, (_, future) in enumerate(batch):
                if not future.done():
                    future.set_result(answers[position] if isinstance(answers, list) else answers)

    async def _call(self, messages: Sequence[Message]) -> Any:
        payload = [message.model_dump(mode="json") for message in messages]
        identity = str(uuid.uuid4())
        handle = self._client.get_workflow_handle(pool_workflow_id(self._pool))
        async with asyncio.timeout(UPDATE_TIMEOUT.total_seconds()):
            try:
                return await handle.execute_update(
                    self._update, payload, id=identity, rpc_timeout=UPDATE_TIMEOUT
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
            log.warning("pool.recreated", pool=self._pool)
            return await self._client.execute_update_with_start_workflow(
                self._update,
                payload,
                start_workflow_operation=start_pool_operation(self._pool, self._settings),
                id=identity,
                rpc_timeout=UPDATE_TIMEOUT,
            )


class Senders:
    """All senders of a control worker, made when first needed."""

    def __init__(self, client: Client, settings: PoolSettings) -> None:
        self._client = client
        self._settings = settings
        self._exchanges: dict[str, PoolSender[Exchange]] = {}
        self._reports: dict[str, PoolSender[NodeReport]] = {}

    async def exchange(self, pool: str, message: Exchange) -> ExchangeAnswer:
        """A pool's answer to a workload's message."""
        sender = self._exchanges.get(pool)
        if sender is None:
            sender = PoolSender(self._client, pool, "exchange", self._settings)
            self._exchanges[pool] = sender
        return ExchangeAnswer.model_validate(await sender.send(message))

    async def report(self, pool: str, message: NodeReport) -> None:
        """Tell a pool of a node."""
        sender = self._reports.get(pool)
        if sender is None:
            sender = PoolSender(self._client, pool, "report", self._settings)
            self._reports[pool] = sender
        await sender.send(message)

    async def close(self) -> None:
        """Stop all of them."""
        await asyncio.gather(*(sender.close() for sender in self._exchanges.values()))
        await asyncio.gather(*(sender.close() for sender in self._reports.values()))
