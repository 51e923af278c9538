"""Which document an existing workload was started with."""

from typing import Any

from temporalio.client import WorkflowHandle

from headbay.client.connection import QUERY_TIMEOUT, answered
from headbay.client.submission import MEMO_DIGEST
from headbay.domain.document import digest

__all__ = ["digest_of"]


async def digest_of(handle: WorkflowHandle[Any, Any]) -> str:
    """Digest of the document of an existing workload.

    Our clients leave it in the memo; of workloads that others started it is computed from the
    first event's input.
    """
    described = await answered(handle.describe(rpc_timeout=QUERY_TIMEOUT))
    kept = (await described.memo()).get(MEMO_DIGEST)
    if isinstance(kept, str):
        return kept
    async for event in handle.fetch_history_events(page_size=1, rpc_timeout=QUERY_TIMEOUT):
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        inputs = await described.data_converter.decode(list(payloads))
        return digest(inputs[0]) if inputs else ""
    return ""
