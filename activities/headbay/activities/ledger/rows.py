"""What a ledger answers: rows of the read model.

Absent values are None, never zero. Instants are Unix milliseconds.
"""

from dataclasses import dataclass, field

from pydantic import JsonValue

__all__ = [
    "AttemptRow",
    "Claim",
    "Gap",
    "StepRow",
    "WorkloadPage",
    "WorkloadQuery",
    "WorkloadRow",
]


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload.

    Attributes:
        run: Temporal run id that its state was told by, "" before any event on it arrived.
        state: A `headbay.domain.lifecycle.WorkloadState`.
        submitted_ms: Of its first event, as long as its submission has not been told.
        steps: Number of its steps, None if not told.
        cancel_ms: When it was asked to cancel first, None if never.
        updated_ms: Instant of the newest event.
    """

    workload: str
    run: str = ""
    name: str = ""
    pool: str = ""
    queue: str = ""
    priority: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    document: JsonValue = None
    submitted_by: str = ""
    state: str = "RUNNING"
    reason: str = ""
    steps: int | None = None
    submitted_ms: int = 0
    finished_ms: int | None = None
    cancel_ms: int | None = None
    cancel_by: str = ""
    cancel_reason: str = ""
    updated_ms: int = 0


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step that something has happened to.

    Attributes:
        run: Temporal run id of the newest event on its state.
        state: A `headbay.domain.lifecycle.StepState`.
        attempts: Highest attempt number so far.
        updated_ms: Instant of that newest event.
    """

    workload: str
    step: str
    run: str = ""
    state: str = "PENDING"
    reason: str = ""
    attempts: int = 0
    updated_ms: int = 0


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt under one fence, with its accounts.

    A request that nothing was granted for has fence 0. An attempt number has more than one row
    only if its workload was reset and granted it again.

    Attributes:
        run: Temporal run id of the grant (or of the request).
        state: A `headbay.domain.lifecycle.AttemptState`.
        outcome: A `headbay.domain.outcome.Outcome`, None while it has not ended, or if it ended
            before it was granted.
        queue_wait_ms: From request to grant. run_ms: Wall time of the payload.
        memory_byte_seconds: Integral of its memory use, None if not measured.
        tokens, cost_micro_usd: What it reported to have spent, None if it did not.
        log_path: File on the node.
        output, artifacts: References, as in `headbay.domain.attempt`.
    """

    workload: str
    step: str
    attempt: int
    fence: int = 0
    run: str = ""
    pool: str = ""
    queue: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    node: str = ""
    allocation: str = ""
    resources: dict[str, int] = field(default_factory=dict)
    state: str = "REQUESTED"
    outcome: str | None = None
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    flags: list[str] = field(default_factory=list)
    queued_ms: int | None = None
    granted_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    queue_wait_ms: int | None = None
    run_ms: int | None = None
    cpu_user_us: int | None = None
    cpu_system_us: int | None = None
    memory_peak_bytes: int | None = None
    memory_byte_seconds: int | None = None
    pids_peak: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    tokens: int | None = None
    cost_micro_usd: int | None = None
    isolation: str | None = None
    log_path: str | None = None
    log_seen_bytes: int | None = None
    log_kept_bytes: int | None = None
    output: dict[str, JsonValue] | None = None
    artifacts: dict[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Events of a run that the ledger misses although it has later ones.

    Attributes:
        missing: Inclusive ranges of sequence numbers, ascending.
    """

    workload: str
    run: str
    missing: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Claim:
    """Answer to claiming an idempotency key.

    Attributes:
        verdict: ``new``: it is yours. ``same``: it was claimed with this digest before.
            ``conflict``: it was claimed with another one.
        digest: The digest that holds the key. claimed_ms: Since when.
    """

    key: str
    verdict: str
    digest: str
    claimed_ms: int


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """Which workloads to list; what is not given does not restrict.

    Attributes:
        labels: All of these pairs must be there.
        states: Any of these.
        since_ms, before_ms: Submitted at or after, and before.
        limit: Rows a page, 1 to 1,000.
        page: `WorkloadPage.next` of the page before.
    """

    labels: dict[str, str] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    pool: str | None = None
    queue: str | None = None
    name: str | None = None
    since_ms: int | None = None
    before_ms: int | None = None
    limit: int = 50
    page: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    """Workloads, newest first.

    Attributes:
        next: Token of the next page, "" on the last one.
    """

    rows: list[WorkloadRow]
    next: str = ""
