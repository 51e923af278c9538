"""Nodes and queues as their workflows show them, and why something waits."""

import asyncio
from collections.abc import Iterable
from typing import Any

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from headbay.client.connection import QUERY_TIMEOUT, answered, is_away
from headbay.client.errors import NotFoundError, StepNotFoundError
from headbay.client.models import (
    ExplainedStep,
    Explanation,
    NodeList,
    NodeRow,
    QueueList,
    QueueRow,
    Reading,
)
from headbay.domain.explain import Reason
from headbay.domain.ids import node_of, node_workflow_id, pool_workflow_id
from headbay.domain.lifecycle import StepState
from headbay.domain.status import StepStatus, is_finished

__all__ = ["explain", "list_nodes", "list_queues", "read_node"]

SHOWN_UPSTREAMS = 20
AT_ONCE = 16

_UNANSWERED = f"no control worker answered within {QUERY_TIMEOUT.seconds} s"


async def list_nodes(temporal: Client, pools: Iterable[str]) -> NodeList:
    """Every open `Node` workflow and every node that a pool knows.

    Visibility lags behind by up to a second, so the pools' own word counts too.
    """
    notes: list[str] = []
    known: dict[str, NodeRow] = {}
    asked = dict.fromkeys(pools)
    query = "WorkflowType = 'Node' AND ExecutionStatus = 'Running'"
    names = {
        name
        async for execution in temporal.list_workflows(query, rpc_timeout=QUERY_TIMEOUT)
        if (name := node_of(execution.id)) is not None
    }
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str) -> NodeRow:
        async with gate:
            return await read_node(temporal, name)

    for row in await asyncio.gather(*(ask(name) for name in sorted(names))):
        known[row.name] = row
        asked.setdefault(row.pool or "default")
    for pool in asked:
        rows = await _ask_pool(temporal, pool, "nodes", notes)
        for raw in rows or []:
            own = known.get(raw["name"])
            if own is None:
                own = NodeRow.model_validate(_without_null(raw) | {"pool": pool})
                if own.state != "up":
                    own = own.model_copy(update={"note": "its own workflow has ended"})
            known[raw["name"]] = own.model_copy(update=_pool_view(raw))
    return NodeList(nodes=[known[name] for name in sorted(known)], notes=notes)


async def read_node(temporal: Client, name: str) -> NodeRow:
    """A node by its own word; state ``unknown`` with a note if nobody answers.

    Raises:
        NotFoundError: There is no such node.
    """
    handle = temporal.get_workflow_handle(node_workflow_id(name))
    try:
        raw = await answered(handle.query("state", rpc_timeout=QUERY_TIMEOUT))
    except WorkflowQueryFailedError as error:
        return NodeRow(name=name, note=str(error))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise NotFoundError("node", name) from error
        if not is_away(error):
            raise
        return NodeRow(name=name, note=_UNANSWERED)
    return NodeRow.model_validate(raw)


async def list_queues(temporal: Client, pools: Iterable[str]) -> QueueList:
    """Every queue of the pools with its waiting line."""
    notes: list[str] = []
    found: list[QueueRow] = []
    for pool in pools:
        rows = await _ask_pool(temporal, pool, "queues", notes)
        found += [QueueRow.model_validate(row | {"pool": pool}) for row in rows or []]
    return QueueList(queues=found, notes=notes)


async def explain(temporal: Client, reading: Reading, step: str | None) -> Explanation:
    """Why each unfinished step, or one step, is where it is.

    Raises:
        StepNotFoundError: The workload has no such step.
    """
    workload = reading.workload
    chosen = [s for s in workload.steps if step in (s.name, s.base)] if step else workload.steps
    if step and not chosen:
        raise StepNotFoundError(workload.id, step, [s.name for s in workload.steps])
    shown = [s for s in chosen if step or not is_finished(s)]
    notes = [reading.note] if reading.note else []
    lines: dict[str, dict[str, Any]] = {}
    if any(s.state in (StepState.QUEUED, StepState.PARKED) for s in shown):
        rows = await _ask_pool(temporal, workload.pool, "explain", notes, {"workload": workload.id})
        lines = {row["step"]: row for row in rows or []}
    return Explanation(
        id=workload.id,
        status=workload.status,
        reason=workload.reason,
        message=workload.message,
        steps=[_explained(s, workload.steps, lines.get(s.name)) for s in shown],
        notes=notes,
    )


def _explained(
    step: StepStatus, steps: list[StepStatus], line: dict[str, Any] | None
) -> ExplainedStep:
    waits: dict[str, StepState] = {}
    if step.state is StepState.PENDING:
        upstreams = [s for s in steps if s.base in step.depends_on and not is_finished(s)]
        waits = {s.name: s.state for s in upstreams[:SHOWN_UPSTREAMS]}
    placed: dict[str, Any] = {}
    if line is not None:
        placed = {key: line[key] for key in ("queue", "position", "waited_ms")}
        placed["reasons"] = [Reason.model_validate(reason) for reason in line["reasons"]]
    return ExplainedStep(
        step=step.name,
        state=step.state,
        reason=step.reason,
        message=step.message or _last_message(step),
        waits_for=waits,
        **placed,
    )


def _last_message(step: StepStatus) -> str:
    return step.attempts[-1].message if step.attempts else ""


async def _ask_pool(
    temporal: Client, pool: str, query: str, notes: list[str], argument: object = None
) -> list[dict[str, Any]] | None:
    """A pool's rows; None, and a note, if it does not answer."""
    handle = temporal.get_workflow_handle(pool_workflow_id(pool))
    args = [] if argument is None else [argument]
    try:
        rows: list[dict[str, Any]] = await answered(
            handle.query(query, args=args, rpc_timeout=QUERY_TIMEOUT)
        )
    except WorkflowQueryFailedError as error:
        notes.append(f"pool {pool} cannot answer: {error}")
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            notes.append(
                f"there is no pool {pool}; a control worker makes it: `headbay worker control`"
            )
        elif is_away(error):
            notes.append(f"pool {pool}: {_UNANSWERED}; `headbay doctor` looks for one")
        else:
            raise
    else:
        return rows
    return None


def _pool_view(raw: dict[str, Any]) -> dict[str, Any]:
    """What only the pool knows of a node."""
    awaited = raw["state"] == "up" and raw.get("awaited")
    return {
        "used": raw["used"],
        "running": raw["running"],
        "reserved_for": raw.get("reserved_for") or "",
    } | ({"note": "the pool waits for its inventory"} if awaited else {})


def _without_null(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if value is not None}
