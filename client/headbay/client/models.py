"""What the client answers and ``-o json`` prints: stable, versioned, published as JSON Schema.

Compatible changes add fields; anything else raises SCHEMA_VERSION. Readers must tolerate fields
that they do not know.
"""

from enum import StrEnum
from typing import Final, Literal

from pydantic import JsonValue

from headbay.domain.explain import Reason
from headbay.domain.journal import JournalEvent
from headbay.domain.lifecycle import StepState, WorkloadState
from headbay.domain.status import WorkloadStatus
from headbay.domain.taint import Taint
from headbay.domain.wire import Wire

__all__ = [
    "SCHEMA_VERSION",
    "Answer",
    "Check",
    "Diagnosis",
    "ExplainedStep",
    "Explanation",
    "History",
    "LogLine",
    "NodeList",
    "NodeRow",
    "QueueList",
    "QueueRow",
    "Reading",
    "Source",
    "Submitted",
    "Validated",
    "ValidatedFile",
    "WaitingRow",
    "WorkloadList",
    "WorkloadRow",
    "schemas",
]

SCHEMA_VERSION: Final = 1


class Source(StrEnum):
    """Who said it."""

    WORKFLOW = "workflow"
    """The workflow itself, by query: current."""
    RESULT = "result"
    """The result that Temporal keeps: final."""
    LEDGER = "ledger"
    """The ledger: what it had last heard."""
    DESCRIPTION = "description"
    """Temporal's own view: open or closed, without steps."""


class Document(Wire):
    """Base of everything that is printed as one JSON document."""

    schema_version: Literal[1] = SCHEMA_VERSION


class Reading(Document):
    """A workload's status, and where it came from.

    Attributes:
        note: For people, "" if there is nothing to say; says why the source is not the best one.
        read_ms: When it was read, Unix milliseconds.
    """

    kind: Literal["Reading"] = "Reading"
    source: Source
    note: str = ""
    read_ms: int
    workload: WorkloadStatus


class Submitted(Document):
    """A submission.

    Attributes:
        created: False if the same document was already submitted under this id.
        digest: Of the document's canonical form.
        notes: What the submitter should know (a check that could not be made).
        ui: The workload's page in Temporal's UI, "" if unknown.
    """

    kind: Literal["Submitted"] = "Submitted"
    id: str
    created: bool = True
    digest: str
    notes: list[str] = []
    ui: str = ""


class WorkloadRow(Wire):
    """One workload in a list.

    Attributes:
        source: ``description`` for Temporal, ``ledger`` for those that Temporal has forgotten.
    """

    id: str
    name: str = ""
    pool: str = ""
    queue: str = ""
    priority: int = 0
    labels: dict[str, str] = {}
    status: WorkloadState
    reason: str = ""
    submitted_ms: int = 0
    finished_ms: int | None = None
    source: Source = Source.DESCRIPTION


class WorkloadList(Document):
    """Workloads, newest first.

    Attributes:
        more: Whether there are more than the limit.
        notes: What could not be asked.
    """

    kind: Literal["WorkloadList"] = "WorkloadList"
    workloads: list[WorkloadRow] = []
    more: bool = False
    notes: list[str] = []


class NodeRow(Wire):
    """One node.

    Attributes:
        state: up, lost, retired, new, or unknown (nobody answered).
        capacity, used: In the units of `headbay.domain.resources`.
        running: Attempts that hold an allocation.
        reserved_for: Request for which the node is being emptied, "" if none.
        note: For people: why a field may be out of date.
    """

    name: str
    pool: str = ""
    state: str = "unknown"
    cordoned: bool = False
    draining: bool = False
    by: str = ""
    reason: str = ""
    epoch: int = 0
    executor: str = ""
    isolation: str = ""
    capacity: dict[str, int] = {}
    used: dict[str, int] = {}
    running: int = 0
    reserved_for: str = ""
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    boot_id: str = ""
    registered_ms: int = 0
    lost_ms: int | None = None
    version: str = ""
    note: str = ""


class NodeList(Document):
    """Nodes, by name."""

    kind: Literal["NodeList"] = "NodeList"
    nodes: list[NodeRow] = []
    notes: list[str] = []


class WaitingRow(Wire):
    """One attempt that waits in a queue; position 1 is next."""

    position: int
    workload: str
    step: str
    attempt: int
    priority: int = 0
    resources: dict[str, int] = {}
    waited_ms: int = 0


class QueueRow(Wire):
    """One queue.

    Attributes:
        used: What its running attempts hold.
        next: The first 100 that wait.
    """

    pool: str
    name: str
    pending: int = 0
    running: int = 0
    used: dict[str, int] = {}
    oldest_wait_ms: int = 0
    next: list[WaitingRow] = []


class QueueList(Document):
    """Queues, by pool and name."""

    kind: Literal["QueueList"] = "QueueList"
    queues: list[QueueRow] = []
    notes: list[str] = []


class ExplainedStep(Wire):
    """Why a step is where it is.

    Attributes:
        reason, message: As the step's status has them.
        waits_for: Upstreams whose end it waits for, with their states.
        queue, position, waited_ms: Its place in the waiting line, if it is in one.
        reasons: Why the pool has not granted it, ordered: configuration, policy, capacity, other.
    """

    step: str
    state: StepState
    reason: str = ""
    message: str = ""
    waits_for: dict[str, StepState] = {}
    queue: str = ""
    position: int | None = None
    waited_ms: int | None = None
    reasons: list[Reason] = []


class Explanation(Document):
    """Why a workload, or one of its steps, is not further.

    Attributes:
        notes: What could not be asked.
    """

    kind: Literal["Explanation"] = "Explanation"
    id: str
    status: WorkloadState
    reason: str = ""
    message: str = ""
    steps: list[ExplainedStep] = []
    notes: list[str] = []


class History(Document):
    """A workload's journal, oldest first."""

    kind: Literal["History"] = "History"
    id: str
    source: Source
    note: str = ""
    events: list[JournalEvent] = []


class LogLine(Wire):
    """A piece of a log, with where it came from (``headbay logs -o jsonl``)."""

    step: str
    attempt: int
    text: str


class Answer(Document):
    """The answer to an operation.

    Attributes:
        code: OK, a refusal's code, RECORDED (kept by Temporal; no worker has heard it yet) or
            ALREADY_FINISHED.
    """

    kind: Literal["Answer"] = "Answer"
    accepted: bool
    code: str = "OK"
    message: str = ""


class ValidatedFile(Wire):
    """What `headbay validate` found in one file.

    Attributes:
        problems: Each as the document checker reports it.
        steps: Number of steps after expansion, 0 if refused.
    """

    file: str
    valid: bool
    name: str = ""
    steps: int = 0
    digest: str = ""
    problems: list[dict[str, JsonValue]] = []
    warnings: list[dict[str, JsonValue]] = []


class Validated(Document):
    """What `headbay validate` found."""

    kind: Literal["Validated"] = "Validated"
    files: list[ValidatedFile] = []


class Check(Wire):
    """One check of `headbay doctor`.

    Attributes:
        next_step: What to do, "" if all is well.
    """

    name: str
    state: Literal["ok", "warning", "failed", "skipped"]
    found: str = ""
    next_step: str = ""


class Diagnosis(Document):
    """What `headbay doctor` found."""

    kind: Literal["Diagnosis"] = "Diagnosis"
    healthy: bool
    checks: list[Check] = []


def schemas() -> dict[str, dict[str, JsonValue]]:
    """JSON Schema of every document that the command prints, by model name."""
    printed: list[type[Wire]] = [
        Reading,
        Submitted,
        WorkloadList,
        NodeList,
        QueueList,
        Explanation,
        History,
        LogLine,
        Answer,
        Validated,
        Diagnosis,
    ]
    return {model.__name__: model.model_json_schema(mode="serialization") for model in printed}
