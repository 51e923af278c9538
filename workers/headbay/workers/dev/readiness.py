"""What the cluster says about itself: is it up, who has registered, what runs."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from headbay.domain.ids import node_workflow_id, pool_workflow_id

__all__ = ["STOPPED_BY", "Live", "live_attempts", "nodes_up", "retain", "undrain"]

STOPPED_BY = "headbay dev stop --kill"
"""Who drained the nodes of a cluster that was stopped; the next start takes that back."""


POOL = "default"
QUERY_TIMEOUT = timedelta(seconds=5)

RETENTION_DAYS = 7
"""How long Temporal keeps closed workloads; the ledger keeps their history beyond that."""


@dataclass(frozen=True)
class Live:
    """Attempts that run, or may run.

    Attributes:
        count: How many.
        longest_lease_ms: The longest of their leases.
        known: False if the pool did not answer: then nothing is known.
    """

    count: int
    longest_lease_ms: int = 0
    known: bool = True


async def retain(client: Client) -> None:
    """Set how long closed workflows are kept."""
    ttl = Duration()
    ttl.FromTimedelta(timedelta(days=RETENTION_DAYS))
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(
            namespace=client.namespace,
            config=NamespaceConfig(workflow_execution_retention_ttl=ttl),
        ),
        timeout=QUERY_TIMEOUT,
    )


async def nodes_up(client: Client) -> set[str]:
    """Nodes that the pool may place on; empty while no pool or no worker answers."""
    rows = await _ask(client, "nodes")
    return {row["name"] for row in rows or [] if row["state"] == "up" and not row["awaited"]}


async def undrain(client: Client, node: str) -> bool:
    """Take back the drain of a stop; True if there was one. A person's cordon stays."""
    handle = client.get_workflow_handle(node_workflow_id(node))
    state = await handle.query("state", rpc_timeout=QUERY_TIMEOUT)
    if not state["cordoned"] or state["by"] != STOPPED_BY:
        return False
    await handle.signal("uncordon", {"by": "headbay dev", "reason": "the cluster is back"})
    return True


async def live_attempts(client: Client) -> Live:
    """What the pool has granted and not got back."""
    rows = await _ask(client, "allocations")
    if rows is None:
        return Live(count=0, known=False)
    return Live(count=len(rows), longest_lease_ms=max((r["lease_ms"] for r in rows), default=0))


async def _ask(client: Client, query: str) -> list[dict[str, Any]] | None:
    handle = client.get_workflow_handle(pool_workflow_id(POOL))
    try:
        answer: list[dict[str, Any]] = await handle.query(query, rpc_timeout=QUERY_TIMEOUT)
    except RPCError:
        return None
    return answer
