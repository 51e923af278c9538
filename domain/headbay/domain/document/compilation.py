"""From a valid document to the DagDef that `Workload` runs.

Runs inside a workflow task: deterministic, and quick even for 1024 steps.
"""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from headbay.domain.dag import Backoff, DagDef, Edge, OomGrowth, RetryPolicy, StepDef
from headbay.domain.document.expansion import combinations, task_names
from headbay.domain.document.model import Document
from headbay.domain.document.resources import DEFAULT_CLAIM
from headbay.domain.document.step import RetryRule, SecretRef, Step, StepSettings
from headbay.domain.taint import Toleration

__all__ = ["SHELL", "compile_document"]

SHELL: Final = ("bash", "-eo", "pipefail", "-c")
"""What a string ``run`` is handed to."""

_NOTHING: Final = StepSettings()
_MOST_DISPLAYED: Final = 120


def compile_document(
    document: Document, *, base_dir: str | None = None, pin_node: str | None = None
) -> DagDef:
    """Merge defaults, expand matrices, and spell out what runs.

    Args:
        document: From `validate`.
        base_dir: Absolute folder that relative ``workdir`` refers to, on one machine only.
        pin_node: The only node that may run it; goes with ``base_dir``.
    """
    defaults = document.defaults or _NOTHING
    steps: list[StepDef] = []
    tasks: dict[str, list[str]] = {}
    for step in document.steps:
        compiled = _compile_step(step, defaults)
        tasks[step.name] = [task.name for task in compiled]
        steps += compiled
    edges = [
        Edge(upstream=upstream, step=task)
        for step in document.steps
        for task in tasks[step.name]
        for base in step.depends_on or ()
        for upstream in tasks[base]
    ]
    return DagDef(
        name=document.name,
        pool=document.pool or "default",
        queue=document.queue or "default",
        priority=document.priority or 0,
        labels=document.labels or {},
        workspace=document.workspace or "private",
        on_failure=document.on_failure or "continue",
        max_parallel=document.max_parallel,
        base_dir=base_dir,
        pin_node=pin_node,
        steps=steps,
        edges=edges,
    )


def _compile_step(step: Step, defaults: StepSettings) -> list[StepDef]:
    argv, display = _command(step)
    plain, secrets, files = _environment(step, defaults)
    common: dict[str, Any] = {
        "base": step.name,
        "argv": argv,
        "display": display,
        "resources": _claim(step, defaults),
        "retry": _retry(step.retry, defaults.retry),
        "node_selector": _node_selector(step, defaults),
        "tolerations": _tolerations(step, defaults),
        "timeout_ms": _setting(step, defaults, "timeout"),
        "grace_ms": _setting(step, defaults, "grace", 10_000),
        "lease_ms": _setting(step, defaults, "lease", 30_000),
        "queue_timeout_ms": _setting(step, defaults, "queue_timeout"),
        "repeat": _setting(step, defaults, "repeat", "safe"),
        "trigger": _setting(step, defaults, "trigger", "all_success"),
        "artifacts": _setting(step, defaults, "artifacts", []),
        "workdir": _setting(step, defaults, "workdir"),
        "require": _setting(step, defaults, "require"),
        "user": _setting(step, defaults, "user"),
        "cpu_limit": _cpu_limit(step, defaults),
    }
    if step.matrix is None:
        return [StepDef(name=step.name, env=plain, secrets=secrets, secret_files=files, **common)]
    values = list(combinations(step.matrix))
    common["secrets"] = {name: one for name, one in secrets.items() if name not in step.matrix}
    common["secret_files"] = {name: one for name, one in files.items() if name not in step.matrix}
    return [
        StepDef(name=name, matrix=value, env=plain | value, **common)
        for name, value in zip(
            task_names(step.name, len(values), expanded=True), values, strict=True
        )
    ]


def _setting(step: Step, defaults: StepSettings, field: str, otherwise: Any = None) -> Any:
    """The step's, else that of `defaults`, else ``otherwise``."""
    own = getattr(step, field)
    if own is None:
        own = getattr(defaults, field)
    return otherwise if own is None else own


def _command(step: Step) -> tuple[list[str], str]:
    if isinstance(step.run, str):
        lines = (line.strip() for line in step.run.splitlines())
        first = next((line for line in lines if line), "")
        return [*SHELL, step.run], first[:_MOST_DISPLAYED]
    if isinstance(step.run, list):
        first = shlex.join(step.run[:_MOST_DISPLAYED]).splitlines()[0]
        return list(step.run), first[:_MOST_DISPLAYED]
    raise NotImplementedError(f"validation lets no {type(step.run).__name__} pass")


def _environment(
    step: Step, defaults: StepSettings
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Plain values and, apart from them, the names of secrets: of values, and of files."""
    merged = (defaults.env or {}) | (step.env or {})
    plain = {name: value for name, value in merged.items() if isinstance(value, str)}
    references = {n: value for n, value in merged.items() if isinstance(value, SecretRef)}
    secrets = {n: value.secret for n, value in references.items() if value.as_ != "file"}
    files = {n: value.secret for n, value in references.items() if value.as_ == "file"}
    return plain, secrets, files


def _claim(step: Step, defaults: StepSettings) -> dict[str, int]:
    given = defaults.resources.amounts() if defaults.resources else {}
    own = step.resources.amounts() if step.resources else {}
    return DEFAULT_CLAIM | given | own


def _cpu_limit(step: Step, defaults: StepSettings) -> int | None:
    for settings in (step, defaults):
        if settings.resources and settings.resources.cpu_limit is not None:
            return settings.resources.cpu_limit
    return None


def _node_selector(step: Step, defaults: StepSettings) -> Mapping[str, str]:
    for settings in (step, defaults):
        if settings.placement and settings.placement.node_selector is not None:
            return settings.placement.node_selector
    return {}


def _tolerations(step: Step, defaults: StepSettings) -> list[Toleration]:
    for settings in (step, defaults):
        if settings.placement and settings.placement.tolerations is not None:
            given = settings.placement.tolerations
            return [Toleration.model_validate(rule.model_dump(exclude_none=True)) for rule in given]
    return []


def _retry(own: RetryRule | None, default: RetryRule | None) -> RetryPolicy:
    rules = [rule for rule in (own, default) if rule is not None]
    attempts = next((r.max_attempts for r in rules if r.max_attempts is not None), 1)
    when = next((r.when for r in rules if r.when is not None), None)
    backoff = next((r.backoff for r in rules if r.backoff is not None), None)
    fallback = Backoff()
    if backoff is not None:
        initial = fallback.initial_ms if backoff.initial is None else backoff.initial
        fallback = Backoff(
            initial_ms=initial,
            factor_permille=fallback.factor_permille if backoff.factor is None else backoff.factor,
            max_ms=max(initial, fallback.max_ms) if backoff.max is None else backoff.max,
            jitter_permille=fallback.jitter_permille if backoff.jitter is None else backoff.jitter,
        )
    oom = next((r.oom for r in rules if r.oom is not None), None)
    growth = OomGrowth()
    return RetryPolicy(
        max_attempts=attempts,
        backoff=fallback,
        when=None if when is None else [str(outcome) for outcome in when],
        oom=None
        if oom is None
        else OomGrowth(
            factor_permille=oom.memory_factor or growth.factor_permille, max_bytes=oom.max_memory
        ),
    )
