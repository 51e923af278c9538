"""The document itself: a workload as somebody wrote it, checked and with quantities parsed."""

from typing import Annotated, Final, Literal

from pydantic import Field

from headbay.domain.document.step import MAX_STEPS, Count, Step, StepSettings
from headbay.domain.document.types import (
    Instant,
    LabelKey,
    LabelText,
    Money,
    PoolText,
    QueueText,
    Span,
    Strict,
    WorkloadText,
)
from headbay.domain.quantity import MAX_INTEGER

__all__ = ["API_VERSION", "Budget", "Document", "DynamicRule"]

API_VERSION: Final = "headbay/v1"

Amount = Annotated[int, Field(ge=1, le=MAX_INTEGER)]


class Budget(Strict):
    """Ceilings of the whole workload."""

    max_attempts: Amount | None = None
    max_tokens: Amount | None = None
    max_cost_usd: Money | None = None
    max_cpu_seconds: Amount | None = None


class DynamicRule(Strict):
    """Whether and how far running steps may add steps."""

    enabled: bool
    max_dynamic_steps: Count | None = None
    max_children_per_step: Count | None = None
    max_spawn_depth: Annotated[int | None, Field(ge=1, le=16)] = None
    max_workflow_steps: Count | None = None
    max_spawn_tasks: Count | None = None
    max_spawn_tokens: Amount | None = None
    max_spawn_cost_usd: Money | None = None


class Document(Strict):
    """One workload, `apiVersion: headbay/v1`. None means not given."""

    api_version: Literal["headbay/v1"]
    name: WorkloadText
    queue: QueueText | None = None
    pool: PoolText | None = None
    priority: Annotated[
        int | None,
        Field(ge=-(2**31), le=2**31 - 1, description="Higher goes first; 0 unless given."),
    ] = None
    labels: Annotated[dict[LabelKey, LabelText] | None, Field(max_length=64)] = None
    deadline: Instant | None = None
    max_duration: Span | None = None
    budget: Budget | None = None
    defaults: Annotated[
        StepSettings | None, Field(description="Merged into every step; the step wins.")
    ] = None
    dynamic: DynamicRule | None = None
    max_parallel: Annotated[
        Count | None, Field(description="Attempts that may be requested or running at once.")
    ] = None
    workspace: Annotated[
        Literal["private", "shared"] | None,
        Field(
            description="private: every attempt starts in an empty directory; shared: all steps "
            "on one node in one directory."
        ),
    ] = None
    on_failure: Annotated[
        Literal["continue", "stop"] | None,
        Field(description="continue: independent branches finish; stop: drain at first failure."),
    ] = None
    steps: Annotated[list[Step], Field(min_length=1, max_length=MAX_STEPS)]
