"""A workload's journal, from the ledger or from the workflow itself."""

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from headbay.client.connection import QUERY_TIMEOUT, answered, is_away
from headbay.client.errors import NotFoundError, NotReadyError
from headbay.client.models import History, Source
from headbay.client.past import Past
from headbay.domain.ids import workload_workflow_id
from headbay.domain.journal import JournalEvent

__all__ = ["read_history"]


async def read_history(temporal: Client, past: Past, workload: str) -> History:
    """The whole journal from the ledger; else that of the current run, and why.

    Raises:
        NotFoundError: Neither knows the workload.
        NotReadyError: The ledger does not have it, and no control worker answers.
    """
    kept, why = await past.events(workload)
    if kept:
        return History(id=workload, source=Source.LEDGER, events=kept)
    handle = temporal.get_workflow_handle(workload_workflow_id(workload))
    try:
        described = await answered(handle.describe(rpc_timeout=QUERY_TIMEOUT))
        rows = await answered(handle.query("journal", 0, rpc_timeout=QUERY_TIMEOUT))
    except WorkflowQueryFailedError as error:
        raise NotReadyError(
            f"the workflow of {workload} cannot answer ({error}); "
            f"`headbay ui {workload}` shows it in Temporal"
        ) from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise NotFoundError("workload", workload) from error
        if is_away(error):
            raise NotReadyError(
                f"the ledger has nothing of {workload}{': ' + why if why else ''}, and no control "
                f"worker answers within {QUERY_TIMEOUT.seconds} s; look with `headbay doctor`"
            ) from error
        raise
    run = {"run": described.run_id}
    return History(
        id=workload,
        source=Source.WORKFLOW,
        note=f"not from the ledger ({why or 'it has nothing of it yet'}), but from the workflow: "
        "events of former runs are missing",
        events=[JournalEvent.model_validate(row | run) for row in rows],
    )
