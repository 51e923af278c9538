"""Identifiers and how they are spelt in Temporal and on nodes.

Everything outside Temporal is named by (workload, step, attempt, fence), never by Temporal's run
id, which changes at continue-as-new and reset.
"""

import re
from typing import Final, NewType

__all__ = [
    "CONTROL_QUEUE",
    "POOL_QUEUE",
    "STEP_NAME",
    "WORKLOAD_ID",
    "AllocationId",
    "Fence",
    "NodeName",
    "PoolName",
    "QueueName",
    "StepName",
    "WorkloadId",
    "node_of",
    "node_queue",
    "node_workflow_id",
    "pool_workflow_id",
    "workload_of",
    "workload_workflow_id",
]

WorkloadId = NewType("WorkloadId", str)
StepName = NewType("StepName", str)
PoolName = NewType("PoolName", str)
NodeName = NewType("NodeName", str)
QueueName = NewType("QueueName", str)
AllocationId = NewType("AllocationId", str)
Fence = NewType("Fence", int)

WORKLOAD_ID: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
"""Ids name folders too: the two that every folder has are none."""

STEP_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")

CONTROL_QUEUE: Final = "headbay"
"""Task queue of `Workload` workflows and of the activities of the control worker."""

POOL_QUEUE: Final = "headbay-pool"
"""Task queue of `Pool` and `Node`, in a Worker of its own: sharing one with `Workload` deadlocks
after a restart with a backlog, since open local activities hold every slot while they wait for
the pool."""


def workload_workflow_id(workload: str) -> str:
    """Temporal workflow id of a workload."""
    return f"headbay/w/{workload}"


def pool_workflow_id(pool: str) -> str:
    """Temporal workflow id of a pool."""
    return f"headbay/pool/{pool}"


def node_workflow_id(node: str) -> str:
    """Temporal workflow id of a node."""
    return f"headbay/node/{node}"


def workload_of(workflow_id: str) -> str | None:
    """The workload that a workflow is named for; None if that is no name of a workload.

    Temporal lists a workflow of our types under whatever id somebody has started it.
    """
    name = workflow_id.removeprefix(workload_workflow_id(""))
    return name if name != workflow_id and WORKLOAD_ID.fullmatch(name) else None


def node_of(workflow_id: str) -> str | None:
    """The node that a workflow is named for; None if it is named for none."""
    name = workflow_id.removeprefix(node_workflow_id(""))
    return None if name == workflow_id else name


def node_queue(node: str, epoch: int) -> str:
    """Task queue of one registration of a node; a new epoch never takes over old tasks."""
    return f"headbay-node-{node}-{epoch}"
