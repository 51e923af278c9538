"""Who this node is, and how it registers with its `Node` workflow."""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from headbay.activities.executor.shim.kernel import boot_id, boottime_ns
from headbay.activities.places import NodePlaces, private
from headbay.domain.exchange import Inventory, NodeFacts, NodeRegistration, Registered
from headbay.domain.ids import POOL_QUEUE, node_workflow_id
from headbay.domain.outcome import Isolation
from headbay.domain.taint import Taint
from headbay.workers.node.wire import pauses

__all__ = ["facts_of", "machine", "register"]

log = structlog.get_logger(__name__)

ANSWER_WITHIN = timedelta(seconds=10)


def machine() -> dict[str, int]:
    """All that this machine has: mCPU, bytes of memory, tasks.

    Source: sched_getaffinity(2), so that a restricted worker counts only what it may use;
    proc_sys_kernel(5), whichever of ``threads-max`` and ``pid_max`` is lower.
    """
    kernel = Path("/proc/sys/kernel")
    return {
        "cpu": len(os.sched_getaffinity(0)) * 1_000,
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "tasks": min(int((kernel / name).read_text()) for name in ("threads-max", "pid_max")),
    }


def machine_id(places: NodePlaces) -> str:
    """/etc/machine-id, or one of our own where that is missing or empty (containers)."""
    try:
        found = Path("/etc/machine-id").read_text().strip()
    except FileNotFoundError:
        found = ""
    if found:
        return found
    if not places.identity.exists():
        private(places.root)
        places.identity.write_text(secrets.token_hex(16))
    return places.identity.read_text().strip()


def facts_of(
    name: str,
    pool: str,
    places: NodePlaces,
    *,
    capacity: Mapping[str, int],
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    executor: str,
    isolation: Isolation,
) -> NodeFacts:
    """What this node registers with."""
    return NodeFacts(
        name=name,
        pool=pool,
        machine_id=machine_id(places),
        boot_id=boot_id(),
        capacity=dict(capacity),
        labels=dict(labels),
        taints=list(taints),
        executor=executor,
        isolation=isolation,
        version=version("headbay"),
    )


async def register(
    client: Client, facts: NodeFacts, inventory: Callable[[], Inventory]
) -> tuple[Registered, int]:
    """Register, starting the `Node` workflow if there is none; until it has answered.

    Args:
        client: Temporal.
        facts: Who this node is.
        inventory: What runs here now; asked anew for every try, which may come much later.

    Returns:
        The answer, and when what it answers was sent, by CLOCK_BOOTTIME.
    """
    for pause in pauses():
        registration = NodeRegistration(facts=facts, inventory=inventory())
        sent = boottime_ns()
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            "Node",
            args=[None],
            id=node_workflow_id(facts.name),
            task_queue=POOL_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"Node {facts.name}",
        )
        try:
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                answer = await client.execute_update_with_start_workflow(
                    "register",
                    registration.model_dump(mode="json"),
                    start_workflow_operation=start,
                )
        except (
            RPCError,
            RPCTimeoutOrCancelledError,
            WorkflowUpdateFailedError,
            TimeoutError,
        ) as error:
            log.info(
                "registration.waits",
                hint="is a control worker running? (`headbay worker control`)",
                error=repr(error),
            )
            await asyncio.sleep(pause)
        else:
            return Registered.model_validate(answer), sent
    raise AssertionError("pauses never end")
