"""What workloads and nodes say to their pool, and what it answers.

Every message of a workload carries (workload, run, seq), one in flight; an equal seq is answered
with the stored answer, a lower one without effect. A new run voids what the former run held.
"""

from typing import Literal

from headbay.domain.attempt import AttemptResult
from headbay.domain.resources import Claim
from headbay.domain.taint import Taint, Toleration
from headbay.domain.wire import Wire

__all__ = [
    "Delivery",
    "Exchange",
    "ExchangeAnswer",
    "Grant",
    "Inventory",
    "NodeFacts",
    "NodeRegistration",
    "NodeReport",
    "PresenceOrder",
    "Refusal",
    "Registered",
    "StepRequest",
]


class StepRequest(Wire):
    """A claim for the resources of one attempt; its id is (workload, step, attempt)."""

    step: str
    attempt: int
    resources: Claim
    queue: str = "default"
    priority: int = 0
    submitted_ms: int
    lease_ms: int = 30_000
    grace_ms: int = 10_000
    node: str | None = None
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    require: Literal["enforced"] | None = None


class Refusal(Wire):
    """A request that can never be met, with the reason as data (see `headbay.domain.explain`)."""

    step: str
    attempt: int
    code: str
    message: str


class Grant(Wire):
    """What the pool granted: node, exact resources, fence; addressed to one run of a workload."""

    allocation: str
    workload: str
    run: str
    step: str
    attempt: int
    node: str
    epoch: int
    fence: int
    resources: Claim
    queue: str = "default"
    lease_ms: int = 30_000
    grace_ms: int = 10_000


class Exchange(Wire):
    """One message of a workload to its pool.

    Attributes:
        seq: 1, 2, 3, … per run.
        requests: New requests. releases: Allocation ids that are done with.
        withdraws: (step, attempt) whose request, or the allocation it became, is given up.
        holds: Grants the workload believes to hold; only when a new pool called it in.
        done: Last message: the pool forgets the workload.
    """

    workload: str
    run: str
    seq: int
    requests: list[StepRequest] = []
    releases: list[str] = []
    withdraws: list[tuple[str, int]] = []
    holds: list[Grant] = []
    done: bool = False


class ExchangeAnswer(Wire):
    """The pool's answer; grants made at once travel in it, later ones by signal."""

    workload: str
    run: str
    seq: int
    grants: list[Grant] = []
    refusals: list[Refusal] = []


class NodeFacts(Wire):
    """What a node worker registers with.

    Attributes:
        machine_id: /etc/machine-id (or an equivalent that survives reboots); a second machine
            under a live node's name is refused by it.
        boot_id: /proc/sys/kernel/random/boot_id.
        capacity: What may be allocated; see `headbay.domain.resources`.
        taints: What a step must tolerate to be placed here.
        executor: Entry-point name of the executor that proved itself.
    """

    name: str
    pool: str = "default"
    machine_id: str
    boot_id: str
    capacity: Claim
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    executor: str = "process"
    isolation: str = "unenforced"
    version: str = ""


class Inventory(Wire):
    """Live allocations of a node at one moment, from its spool.

    Attributes:
        live: One Grant for each attempt whose process is not proven gone.
        ending: Allocations of attempts whose process is gone and whose end the node has yet to
            tell: it may be storing what they left. A pool that does not know them (any more)
            does not take them in.
    """

    node: str
    epoch: int
    boot_id: str
    live: list[Grant] = []
    ending: list[str] = []


class NodeReport(Wire):
    """What a `Node` workflow tells its pool: the node's whole state, so that repeats are harmless.

    Attributes:
        epoch: Registration it speaks of; a report of a lower one is ignored.
        state: up, lost (presence ran out) or retired.
        inventory: What it runs; only right after it was asked, None otherwise.
        by, reason: Who changed the cordon last, and why.
    """

    facts: NodeFacts
    epoch: int
    state: Literal["up", "lost", "retired"]
    cordoned: bool = False
    draining: bool = False
    inventory: Inventory | None = None
    by: str = ""
    reason: str = ""


class Delivery(Wire):
    """What a pool has for one run of a workload: the signals `grants`, `gone` and `refused`."""

    workload: str
    run: str
    grants: list[Grant] = []
    gone: list[AttemptResult] = []
    refusals: list[Refusal] = []


class NodeRegistration(Wire):
    """Argument of the Node workflow's `register` update: who I am and what I still run."""

    facts: NodeFacts
    inventory: Inventory


class Registered(Wire):
    """Answer to a registration.

    Attributes:
        accepted: False: do not work; ``code`` and ``message`` say why (for instance
            NODE_NAME_TAKEN: another machine holds the name).
        epoch: Poll `headbay.domain.ids.node_queue(name, epoch)`.
        presence_ttl_ms: Heartbeat timeout of the `presence` activity.
    """

    accepted: bool
    epoch: int = 0
    presence_ttl_ms: int = 15_000
    code: str = ""
    message: str = ""


class PresenceOrder(Wire):
    """Argument of the `presence` activity."""

    node: str
    epoch: int
    ttl_ms: int
