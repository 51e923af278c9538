"""A step of a document, and the settings that `defaults` may give to every step."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag

from headbay.domain.document.resources import ResourceClaim
from headbay.domain.document.run import Run
from headbay.domain.document.types import (
    Dependency,
    EnvName,
    EnvText,
    Factor,
    Glob,
    Grace,
    Jitter,
    LabelKey,
    LabelText,
    Lease,
    Memory,
    PathText,
    Prose,
    SecretName,
    Span,
    StepText,
    Strict,
    UserName,
)
from headbay.domain.outcome import Outcome

__all__ = [
    "MAX_STEPS",
    "Approval",
    "Array",
    "BackoffRule",
    "Condition",
    "Gang",
    "OutputContract",
    "Placement",
    "RetryRule",
    "SecretRef",
    "Step",
    "StepSettings",
    "TolerationRule",
]

MAX_STEPS: Final = 1024
"""Steps of a workload, matrices expanded."""

Count = Annotated[int, Field(ge=1, le=100_000)]

RetriedOutcome = Literal[
    Outcome.FAILED,
    Outcome.SIGNALED,
    Outcome.OOM_KILLED,
    Outcome.OOM_NODE,
    Outcome.TIMED_OUT,
    Outcome.LEASE_LOST,
    Outcome.NODE_LOST,
    Outcome.SUPERVISOR_LOST,
    Outcome.NOT_STARTED,
    Outcome.EXEC_FAILED,
    Outcome.LIMIT_NOT_APPLIED,
    Outcome.OUTPUT_CONTRACT_VIOLATION,
    Outcome.UNKNOWN,
]

Trigger = Literal[
    "all_success",
    "all_done",
    "all_failed",
    "one_success",
    "one_failed",
    "none_failed",
    "none_skipped",
]


class SecretRef(Strict):
    """An environment value that only the node knows."""

    secret: SecretName
    as_: Annotated[
        Literal["env", "file"] | None,
        Field(
            alias="as",
            description="env: the variable holds the value; file: the path of a file with it.",
        ),
    ] = None


EnvValue = Annotated[
    Annotated[EnvText, Tag("<text>")] | Annotated[SecretRef, Tag("<secret>")],
    Discriminator(lambda value: "<secret>" if isinstance(value, dict) else "<text>"),
]


class BackoffRule(Strict):
    """Delay before attempt n+1: min(max, initial * factor^(n-1)), plus up to the jitter."""

    initial: Span | None = None
    factor: Factor | None = None
    max: Span | None = None
    jitter: Jitter | None = None


class OomRule(Strict):
    """Grow memory after the step was killed for it."""

    memory_factor: Factor | None = None
    max_memory: Memory | None = None


class RetryRule(Strict):
    """When a failed attempt is followed by another."""

    max_attempts: Annotated[int | None, Field(ge=1, le=100)] = None
    backoff: Annotated[
        BackoffRule | None,
        BeforeValidator(
            lambda value: value if isinstance(value, dict) else {"initial": value},
            json_schema_input_type=Span | BackoffRule,
        ),
    ] = None
    when: Annotated[list[RetriedOutcome] | None, Field(min_length=1, max_length=32)] = None
    oom: OomRule | None = None


class TolerationRule(Strict):
    """Accepts a node's taint."""

    key: LabelKey
    operator: Literal["Equal", "Exists"] | None = None
    value: LabelText | None = None
    effect: Literal["NoSchedule"] | None = None


class Affinity(Strict):
    """Labels of nodes that are wanted or required."""

    required: Annotated[dict[LabelKey, LabelText] | None, Field(max_length=64)] = None
    preferred: Annotated[dict[LabelKey, LabelText] | None, Field(max_length=64)] = None


class Placement(Strict):
    """Which nodes may run the step."""

    node_selector: Annotated[dict[LabelKey, LabelText] | None, Field(max_length=64)] = None
    tolerations: Annotated[list[TolerationRule] | None, Field(max_length=64)] = None
    affinity: Affinity | None = None
    strategy: Literal["spread", "pack"] | None = None


class Condition(Strict):
    """Runs the step only if one upstream's output says so."""

    step: StepText
    output_equals: Prose | None = None
    output_contains: Prose | None = None
    json_pointer: Annotated[str | None, Field(max_length=1024)] = None
    equals: JsonValue = None


class ApprovalRule(Strict):
    """A person's word before the step may run."""

    message: Prose | None = None
    show: Annotated[list[StepText] | None, Field(max_length=64)] = None
    timeout: Span | None = None
    default: Literal["approve", "reject"] | None = None
    on_reject: Literal["skip", "fail"] | None = None


def _approval_form(value: Any) -> str | None:
    if isinstance(value, dict):
        return "<rule>"
    if isinstance(value, str):
        return "<message>"
    return "<plain>" if value is True else None


Approval = Annotated[
    Annotated[Literal[True], Tag("<plain>")]
    | Annotated[Prose, Tag("<message>")]
    | Annotated[ApprovalRule, Tag("<rule>")],
    Discriminator(_approval_form),
]


class OutputContract(Strict):
    """What a step's output must look like."""

    schema_: Annotated[dict[str, JsonValue] | None, Field(alias="schema")] = None
    schema_version: Annotated[Prose | None, Field()] = None
    content_type: Literal["application/json"] | None = None


class Array(Strict):
    """Many tasks of one step."""

    count: Count | None = None
    items: Annotated[list[EnvText] | None, Field(min_length=1, max_length=100_000)] = None
    max_parallel: Count | None = None
    chunk: Count | None = None


class Gang(Strict):
    """Several nodes at once, all or nothing."""

    nodes: Count
    min_nodes: Count | None = None


class Disconnect(Strict):
    """What to do about a step whose node cannot be reached."""

    lost_after: Span | None = None
    replace: bool | None = None


class StepSettings(Strict):
    """What a step and `defaults` have in common; None means not given."""

    resources: ResourceClaim | None = None
    timeout: Annotated[Span | None, Field(description="Run time after which it is killed.")] = None
    queue_timeout: Annotated[
        Span | None, Field(description="How long it may wait for a grant.")
    ] = None
    grace: Annotated[
        Grace | None, Field(description="From TERM to KILL; 10s unless given, at most 1h.")
    ] = None
    retry: RetryRule | None = None
    repeat: Annotated[
        Literal["safe", "never"] | None,
        Field(description="never: an attempt that may have begun is not repeated by itself."),
    ] = None
    trigger: Annotated[
        Trigger | None, Field(description="When it may run, judged by what it depends on.")
    ] = None
    condition: Condition | None = None
    approval: Approval | None = None
    output: OutputContract | None = None
    artifacts: Annotated[
        list[Glob] | None,
        Field(max_length=256, description="Globs of files to keep for dependent steps."),
    ] = None
    env: Annotated[dict[EnvName, EnvValue] | None, Field(max_length=256)] = None
    workdir: PathText | None = None
    user: Annotated[
        UserName | None, Field(description="User of the node that it runs as; the node's default.")
    ] = None
    placement: Placement | None = None
    lease: Annotated[
        Lease | None, Field(description="How long it may run on while cut off from the server.")
    ] = None
    require: Annotated[
        Literal["enforced"] | None,
        Field(description="enforced: only on nodes that can enforce its limits."),
    ] = None
    disconnect: Disconnect | None = None


class Step(StepSettings):
    """One node of the workload's DAG."""

    name: StepText
    run: Run
    depends_on: Annotated[
        list[Dependency] | None,
        Field(max_length=MAX_STEPS, description="Steps that must have ended before."),
        BeforeValidator(
            lambda value: [value] if isinstance(value, str) else value,
            json_schema_input_type=Dependency
            | Annotated[list[Dependency], Field(max_length=MAX_STEPS)],
        ),
    ] = None
    matrix: Annotated[
        dict[EnvName, Annotated[list[EnvText], Field(min_length=1, max_length=MAX_STEPS)]] | None,
        Field(min_length=1, max_length=16, description="One task per combination of values."),
    ] = None
    array: Array | None = None
    gang: Gang | None = None
