"""How a document becomes the start of a `Workload` workflow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from headbay.client.source import Source, read_document
from headbay.domain.dag import DagDef
from headbay.domain.document import Problem
from headbay.domain.ids import CONTROL_QUEUE, WorkloadId, workload_workflow_id
from headbay.domain.operation import WorkloadContext

__all__ = ["LABELS", "MEMO_DIGEST", "NAME", "POOL", "PRIORITY", "QUEUE", "Submission", "prepare"]

POOL: Final = SearchAttributeKey.for_keyword("HeadbayPool")
QUEUE: Final = SearchAttributeKey.for_keyword("HeadbayQueue")
NAME: Final = SearchAttributeKey.for_keyword("HeadbayName")
LABELS: Final = SearchAttributeKey.for_keyword_list("HeadbayLabels")
PRIORITY: Final = SearchAttributeKey.for_int("HeadbayPriority")

MEMO_DIGEST: Final = "headbay_digest"

SUMMARY_BYTES: Final = 200
DETAILS_BYTES: Final = 10_000
"""Half of what the server accepts: the rest is for the frame around it."""


@dataclass(frozen=True)
class Submission:
    """Everything that starts one workload.

    Attributes:
        document: The document as JSON, defaults not filled in.
        digest: Of its canonical form.
        dag: What it compiles to.
        warnings: What is allowed and probably not meant.
    """

    document: Mapping[str, Any]
    digest: str
    dag: DagDef
    context: WorkloadContext
    warnings: tuple[Problem, ...] = ()

    @property
    def needs_base_dir(self) -> bool:
        """Whether a step runs in a folder of the submitter's machine."""
        return any(
            step.workdir is not None and not step.workdir.startswith("/") for step in self.dag.steps
        )

    def start_options(self, workload: WorkloadId) -> dict[str, Any]:
        """Keyword arguments of `temporalio.client.Client.start_workflow`.

        An id is never used twice, whatever became of its workload: it is the idempotency key.
        """
        context = self.context.model_dump(mode="json", exclude_defaults=True)
        return {
            "args": [dict(self.document), context] if context else [dict(self.document)],
            "id": workload_workflow_id(workload),
            "task_queue": CONTROL_QUEUE,
            "id_reuse_policy": WorkflowIDReusePolicy.REJECT_DUPLICATE,
            "id_conflict_policy": WorkflowIDConflictPolicy.FAIL,
            "search_attributes": self.search_attributes(),
            "memo": {
                MEMO_DIGEST: self.digest,
                "headbay_name": self.dag.name,
                "headbay_queue": self.dag.queue,
            },
            "static_summary": self.summary(),
            "static_details": self.details(),
        }

    def search_attributes(self) -> TypedSearchAttributes:
        """What workloads are found by."""
        pairs: list[SearchAttributePair[Any]] = [
            SearchAttributePair(POOL, self.dag.pool),
            SearchAttributePair(QUEUE, self.dag.queue),
            SearchAttributePair(NAME, self.dag.name),
            SearchAttributePair(PRIORITY, self.dag.priority),
        ]
        if self.dag.labels:
            labels = [f"{key}={value}" for key, value in sorted(self.dag.labels.items())]
            pairs.append(SearchAttributePair(LABELS, labels))
        return TypedSearchAttributes(pairs)

    def summary(self) -> str:
        """One line for lists."""
        steps = len(self.dag.steps)
        what = self.dag.steps[0].display if steps == 1 else f"{steps} steps"
        return _cut(f"{self.dag.name}: {what}", SUMMARY_BYTES)

    def details(self) -> str:
        """The graph as a Markdown table: what there is to run, in what order, with what."""
        upstreams: dict[str, list[str]] = {}
        bases = {step.name: step.base for step in self.dag.steps}
        for edge in self.dag.edges:
            known = upstreams.setdefault(edge.step, [])
            if bases[edge.upstream] not in known:
                known.append(bases[edge.upstream])
        head = f"queue `{self.dag.queue}`, pool `{self.dag.pool}`, priority {self.dag.priority}\n"
        lines = [head, "| Step | After | Runs |", "|---|---|---|"]
        size = sum(len(line.encode()) + 1 for line in lines)
        for shown, step in enumerate(self.dag.steps):
            after = ", ".join(upstreams.get(step.name, []))
            line = f"| {step.name} | {_cell(after)} | {_cell(step.display)} |"
            size += len(line.encode()) + 1
            if size > DETAILS_BYTES:
                lines.append(f"\nand {len(self.dag.steps) - shown} more steps")
                break
            lines.append(line)
        return "\n".join(lines)


def prepare(document: Source, context: WorkloadContext) -> Submission:
    """Read a document, check and compile it, as the workflow will.

    Raises:
        DocumentRefusedError: With everything that is wrong with it.
    """
    read = read_document(document)
    return Submission(read.data, read.digest, read.dag(), context, tuple(read.warnings))


def _cell(text: str) -> str:
    """Text that cannot break out of a table's cell, nor become markup."""
    flat = " ".join(text.split()).replace("`", "'").replace("|", "\\|")
    return f"`{_cut(flat, SUMMARY_BYTES)}`" if flat else ""


def _cut(text: str, size: int) -> str:
    """At most ``size`` bytes of UTF-8."""
    encoded = text.encode()
    return text if len(encoded) <= size else encoded[: size - 3].decode(errors="ignore") + "…"
