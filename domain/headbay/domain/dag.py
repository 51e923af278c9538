"""DagDef: the compiled, versioned form of a document; what `Workload` runs and the ledger keeps.

Nodes and edges are separate; defaults are merged, matrices are expanded, quantities are integers.
`headbay.domain.document.compile` makes it; `headbay.domain.workload` runs it.
"""

from typing import Literal

from headbay.domain.taint import Toleration
from headbay.domain.wire import Wire

__all__ = ["DAG_VERSION", "Backoff", "DagDef", "Edge", "RetryPolicy", "StepDef"]

DAG_VERSION = 1


class Backoff(Wire):
    """Delay before attempt n+1: min(max, initial * factor^(n-1)), plus up to the jitter."""

    initial_ms: int = 1_000
    factor_permille: int = 2_000
    max_ms: int = 60_000
    jitter_permille: int = 0


class OomGrowth(Wire):
    """More memory for the attempt that follows an OOM kill.

    Attributes:
        factor_permille: Of the memory of the attempt before.
        max_bytes: Most that it grows to; None for no bound but what nodes have.
    """

    factor_permille: int = 2_000
    max_bytes: int | None = None


class RetryPolicy(Wire):
    """When a failed attempt is followed by another.

    Attributes:
        max_attempts: Attempts in all that the step itself may use up, 1..100. Node faults and
            preemption do not count against it.
        when: Outcome classes that are retried; None means every transient one that ``repeat``
            allows.
        oom: How memory grows after an OOM kill; None: it does not.
    """

    max_attempts: int = 1
    backoff: Backoff = Backoff()
    when: list[str] | None = None
    oom: OomGrowth | None = None


class StepDef(Wire):
    """One step, ready to run.

    Attributes:
        name: Unique in the workload; matrix tasks are ``<step>-<n>``, n from 1.
        base: The document's step that this one was expanded from (equal to name without matrix).
        argv: What to execute. A string ``run`` is compiled to ``bash -eo pipefail -c <string>``.
        display: What the document said, for people (first line, at most 120 characters).
        matrix: The matrix values of this task; also part of ``env``.
        resources: What is reserved; see `headbay.domain.resources`.
        env: Plain environment. secrets: environment name -> secret name, resolved on the node.
        secret_files: The same for variables that hold the path of a file with the value.
        timeout_ms: Run time after which the shim kills it; None means no limit.
        grace_ms: From TERM to KILL.
        lease_ms: The lease's TTL.
        queue_timeout_ms: How long it may wait for a grant; None means for ever.
        artifacts: Globs below the working directory, kept on success.
        workdir: As in the document; relative to the workspace.
        require: "enforced" refuses nodes that cannot enforce limits.
        node_selector: Labels that the node must have.
        tolerations: Taints that the node may have.
        cpu_limit: Thousandths of a CPU above which it is throttled; None: it is not.
        user: User of the node that it runs as; None for the node's default.
    """

    name: str
    base: str
    argv: list[str]
    display: str = ""
    matrix: dict[str, str] = {}
    resources: dict[str, int] = {}
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    secret_files: dict[str, str] = {}
    timeout_ms: int | None = None
    grace_ms: int = 10_000
    lease_ms: int = 30_000
    queue_timeout_ms: int | None = None
    retry: RetryPolicy = RetryPolicy()
    repeat: Literal["safe", "never"] = "safe"
    trigger: Literal["all_success", "all_done"] = "all_success"
    artifacts: list[str] = []
    workdir: str | None = None
    require: Literal["enforced"] | None = None
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    cpu_limit: int | None = None
    user: str | None = None


class Edge(Wire):
    """``step`` depends on ``upstream`` (both names of StepDefs)."""

    upstream: str
    step: str


class DagDef(Wire):
    """A whole workload, ready to run.

    Attributes:
        base_dir: Absolute folder on the submitter's machine that relative ``workdir`` refers to
            (local node only); None for workloads that may run anywhere.
        pin_node: Name of the only node that may run it (set by local submissions with
            ``base_dir``); None otherwise.
        max_parallel: Attempts that may be requested or running at once; None means unlimited.
    """

    version: int = DAG_VERSION
    name: str
    pool: str = "default"
    queue: str = "default"
    priority: int = 0
    labels: dict[str, str] = {}
    workspace: Literal["private", "shared"] = "private"
    on_failure: Literal["continue", "stop"] = "continue"
    max_parallel: int | None = None
    base_dir: str | None = None
    pin_node: str | None = None
    steps: list[StepDef]
    edges: list[Edge] = []
