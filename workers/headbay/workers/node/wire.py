"""Raw calls by task token: heartbeat and completion, and the signals that follow a lost token.

The SDK's own helpers raise on pause and hide the acknowledgement that the lease is made of.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from temporalio.api.common.v1 import Payloads
from temporalio.api.workflowservice.v1 import (
    RecordActivityTaskHeartbeatRequest,
    RespondActivityTaskCompletedRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from headbay.domain.attempt import AttemptResult
from headbay.domain.ids import pool_workflow_id, workload_workflow_id

__all__ = ["Heartbeat", "TokenGoneError", "Wire"]

log = structlog.get_logger(__name__)

RPC_TIMEOUT = timedelta(seconds=5)
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class TokenGoneError(Exception):
    """The server no longer knows the token: the activity was closed without us."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """An acknowledgement."""

    cancel_requested: bool
    paused: bool
    reset: bool


class Wire:
    """One client's calls for all attempts of a node."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said: tuple[dict[str, Any], Payloads] = ({}, Payloads())

    async def _details(self, details: dict[str, Any]) -> Payloads:
        """Encoded heartbeat details: one heartbeat after the other says the same."""
        if details != self._said[0]:
            self._said = (details, await self._payloads(details))
        return self._said[1]

    async def _payloads(self, value: Any) -> Payloads:
        return Payloads(payloads=await self._client.data_converter.encode([value]))

    async def heartbeat(self, token: bytes, details: dict[str, Any]) -> Heartbeat:
        """Renew an activity.

        Raises:
            TokenGoneError: It is closed.
            RPCError: No answer.
        """
        try:
            answer = await self._client.workflow_service.record_activity_task_heartbeat(
                RecordActivityTaskHeartbeatRequest(
                    namespace=self._client.namespace,
                    task_token=token,
                    identity=self._client.identity,
                    details=await self._details(details),
                ),
                timeout=RPC_TIMEOUT,
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise TokenGoneError from error
            raise
        return Heartbeat(answer.cancel_requested, answer.activity_paused, answer.activity_reset)

    async def complete(self, token: bytes, result: AttemptResult) -> None:
        """Complete an activity, until the server has said that it did, or that it is closed.

        Raises:
            TokenGoneError: It is closed.
        """
        request = RespondActivityTaskCompletedRequest(
            namespace=self._client.namespace,
            task_token=token,
            identity=self._client.identity,
            result=await self._payloads(result),
        )
        for pause in pauses():
            try:
                await self._client.workflow_service.respond_activity_task_completed(
                    request, timeout=RPC_TIMEOUT
                )
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise TokenGoneError from error
                log.warning("completion.unanswered", step=result.step, error=str(error))
                await asyncio.sleep(pause)
            else:
                return

    async def tell_gone(self, pool: str, result: AttemptResult) -> None:
        """Prove to pool and workload that an attempt is over, until both answered definitely."""
        body = result.model_dump(mode="json")
        await asyncio.gather(
            self._signal(pool_workflow_id(pool), "gone", [body]),
            self._signal(workload_workflow_id(result.workload), "late_exit", body),
        )

    async def _signal(self, workflow: str, name: str, argument: Any) -> None:
        for pause in pauses():
            try:
                handle = self._client.get_workflow_handle(workflow)
                await handle.signal(name, argument, rpc_timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return  # Closed: nobody is left who would want to know.
                log.warning("signal.unanswered", workflow=workflow, error=str(error))
                await asyncio.sleep(pause)
            else:
                return


def pauses() -> Any:
    """Ever longer pauses, without end."""
    yield from PAUSES_S
    while True:
        yield PAUSES_S[-1]
