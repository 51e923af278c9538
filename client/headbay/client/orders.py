"""Operations: sent as an update, which is answered; else as a signal, which Temporal keeps."""

import uuid
from typing import Any, Final

from temporalio.client import (
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from headbay.client.connection import QUERY_TIMEOUT, answered, is_away
from headbay.client.errors import NotFoundError
from headbay.client.models import Answer
from headbay.domain.wire import Wire

__all__ = ["give_order"]

FINISHED_MEANWHILE: Final = "AcceptedUpdateCompletedWorkflow"
"""Source: the server's failure type for updates whose workflow closed before they did."""


async def give_order(
    handle: WorkflowHandle[Any, Any], what: str, name: str, operation: str, order: Wire
) -> Answer:
    """Send an operation; idempotent ones may be heard twice if the first answer was lost.

    Args:
        handle: The workflow.
        what: "workload" or "node", for messages.
        name: Its name, for messages.
        operation: Name of the signal and update.
        order: Their argument.

    Raises:
        NotFoundError: There is no such workflow.
        RPCError: The server itself does not answer.
    """
    payload = order.model_dump(mode="json")
    try:
        raw = await answered(
            handle.execute_update(
                operation, payload, id=uuid.uuid4().hex, rpc_timeout=QUERY_TIMEOUT
            )
        )
    except WorkflowUpdateRPCTimeoutOrCancelledError:
        return await _record(handle, what, name, operation, payload)
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == FINISHED_MEANWHILE:
            return Answer(accepted=True, message=f"{what} {name} finished meanwhile")
        raise
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return await _too_late(handle, what, name, error)
        if not is_away(error):
            raise
        return await _record(handle, what, name, operation, payload)
    return Answer.model_validate(raw)


async def _record(
    handle: WorkflowHandle[Any, Any], what: str, name: str, operation: str, payload: Any
) -> Answer:
    """Leave the order with Temporal: a worker hears it as soon as there is one."""
    try:
        await answered(handle.signal(operation, payload, rpc_timeout=QUERY_TIMEOUT))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return await _too_late(handle, what, name, error)
        raise
    return Answer(
        accepted=True,
        code="RECORDED",
        message=f"no control worker answered within {QUERY_TIMEOUT.seconds} s; Temporal keeps the "
        "order and it takes effect as soon as one runs (`headbay doctor` looks for it)",
    )


async def _too_late(
    handle: WorkflowHandle[Any, Any], what: str, name: str, cause: RPCError
) -> Answer:
    try:
        await answered(handle.describe(rpc_timeout=QUERY_TIMEOUT))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise NotFoundError(what, name) from cause
        raise
    return Answer(
        accepted=False,
        code="ALREADY_FINISHED",
        message=f"{what} {name} has already ended",
    )
