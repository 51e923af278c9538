"""How each result looks as a table."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headbay.client.cli.output import Output, emit
from headbay.client.cli.tables import age, amounts, duration, instant, pairs, render, size

if TYPE_CHECKING:
    from headbay.client.models import (
        Diagnosis,
        Explanation,
        History,
        NodeList,
        NodeRow,
        QueueList,
        Reading,
        WorkloadList,
    )
    from headbay.domain.journal import JournalEvent
    from headbay.domain.status import AttemptStatus, StepStatus, WorkloadStatus

__all__ = [
    "bracket",
    "ended_with",
    "show_diagnosis",
    "show_explanation",
    "show_history",
    "show_nodes",
    "show_queues",
    "show_reading",
    "show_workloads",
    "step_state",
    "took",
    "unenforced",
]


def bracket(state: str, reason: str) -> str:
    """``FAILED (TIMED_OUT)``."""
    return f"{state} ({reason})" if reason else state


def step_state(step: "StepStatus") -> str:
    """A step's state, with the reason where its last attempt's outcome does not say it anyway."""
    last = step.attempts[-1] if step.attempts else None
    outcome = last.outcome.value if last is not None and last.outcome is not None else ""
    return bracket(step.state.value, "" if step.reason == outcome else step.reason)


def ended_with(attempt: "AttemptStatus") -> str:
    """How an attempt ended, in a few words."""
    if attempt.state.value == "IN_DOUBT":
        return "in doubt"
    if attempt.outcome is None:
        return ""
    if attempt.exit_code:
        return f"{attempt.outcome.value} (exit {attempt.exit_code})"
    if attempt.signal:
        return f"{attempt.outcome.value} (signal {attempt.signal})"
    return attempt.outcome.value


def took(attempt: "AttemptStatus", now_ms: int) -> int | None:
    """Milliseconds that an attempt has run so far, None before it began.

    Nodes tell of the start together with the end; until then it counts from the grant.
    """
    if attempt.started_ms is not None:
        return (attempt.ended_ms or now_ms) - attempt.started_ms
    if attempt.granted_ms is None or attempt.state.value == "ENDED":
        return None
    return now_ms - attempt.granted_ms


def unenforced(status: "WorkloadStatus") -> list[str]:
    """A note for each node that cannot enforce limits on what it ran."""
    found = {
        attempt.node: attempt.isolation.value
        for step in status.steps
        for attempt in step.attempts
        if attempt.started_ms is not None and attempt.isolation.value != "enforced"
    }
    meaning = {
        "unenforced": "resources count for admission only",
        "cooperative": "limits are kernel limits that a step could lift",
    }
    return [
        f"isolation on node {node} is {isolation}: {meaning[isolation]}"
        for node, isolation in sorted(found.items())
    ]


def show_reading(reading: "Reading", output: Output) -> None:
    """`headbay status`."""
    status = reading.workload
    notes = [reading.note] if reading.note else []
    emit(
        reading,
        output,
        table=lambda: _status_lines(status, reading.read_ms),
        quiet=[status.status.value],
        notes=notes + unenforced(status),
    )


def _status_lines(status: "WorkloadStatus", now_ms: int) -> list[str]:
    cancel = status.cancel
    end = status.finished_ms or now_ms
    lines = pairs(
        [
            ("workload", status.id),
            ("name", status.name if status.name != status.id else ""),
            ("status", bracket(status.status.value, status.reason)),
            ("message", status.message),
            ("cancelled by", ": ".join(filter(None, [cancel.by, cancel.reason])) if cancel else ""),
            ("queue", f"{status.queue} (pool {status.pool}, priority {status.priority})"),
            ("labels", ", ".join(f"{k}={v}" for k, v in sorted(status.labels.items()))),
            ("submitted", age(status.submitted_ms, now_ms)),
            ("duration", duration(end - status.started_ms) if status.started_ms else ""),
            ("steps", ", ".join(f"{n} {state}" for state, n in status.counts.items())),
        ]
    )
    if status.steps:
        lines += ["", *render(_STEP_HEAD, _step_rows(status.steps, now_ms), states=("STATE",))]
    return lines


_STEP_HEAD = ("STEP", "STATE", "ATTEMPT", "NODE", "ENDED WITH", "WAITED", "RAN", "CPU", "PEAK", "")


def _step_rows(steps: "list[StepStatus]", now_ms: int) -> Iterable[list[str]]:
    for step in steps:
        state = step_state(step)
        if not step.attempts:
            yield [step.name, state, "", "", "", "", "", "", "", step.message]
        for attempt in step.attempts:
            last = attempt is step.attempts[-1]
            message = attempt.message or (step.message if last else "")
            yield [step.name, state if last else "", *_attempt_cells(attempt, now_ms), message]


def _attempt_cells(attempt: "AttemptStatus", now_ms: int) -> list[str]:
    usage = attempt.usage
    cpu = (
        None
        if usage.cpu_user_us is None or usage.cpu_system_us is None
        else (usage.cpu_user_us + usage.cpu_system_us) // 1_000
    )
    until = attempt.granted_ms or attempt.ended_ms or now_ms
    return [
        str(attempt.attempt),
        attempt.node,
        ended_with(attempt),
        duration(None if attempt.queued_ms is None else until - attempt.queued_ms),
        duration(took(attempt, now_ms)),
        duration(cpu),
        size(usage.memory_peak_bytes),
    ]


def show_workloads(found: "WorkloadList", output: Output, *, filtered: bool) -> None:
    """`headbay list`."""
    none = "none match" if filtered else "no workloads; `headbay run -- echo hello` makes one"
    emit(
        found,
        output,
        table=lambda: (
            render(
                ("ID", "STATUS", "NAME", "QUEUE", "SUBMITTED", "TOOK", "LABELS"),
                [
                    [
                        row.id,
                        bracket(row.status.value, row.reason),
                        row.name,
                        row.queue,
                        age(row.submitted_ms),
                        duration(row.finished_ms - row.submitted_ms) if row.finished_ms else "",
                        ",".join(f"{k}={v}" for k, v in sorted(row.labels.items())),
                    ]
                    for row in found.workloads
                ],
            )
            if found.workloads
            else [none]
        ),
        rows=found.workloads,
        quiet=[row.id for row in found.workloads],
        notes=found.notes + (["there are more: use --limit"] if found.more else []),
    )


def show_nodes(found: "NodeList", output: Output) -> None:
    """`headbay node list`."""
    emit(
        found,
        output,
        table=lambda: (
            render(
                ("NODE", "STATE", "RUNNING", "USED", "ISOLATION", "POOL", "LABELS", ""),
                [
                    [
                        row.name,
                        _node_state(row),
                        str(row.running),
                        amounts(row.used, row.capacity),
                        row.isolation,
                        row.pool,
                        ",".join(f"{k}={v}" for k, v in sorted(row.labels.items())),
                        "; ".join(part for part in (row.reason, row.note) if part),
                    ]
                    for row in found.nodes
                ],
                states=("STATE",),
            )
            if found.nodes
            else ["no nodes; `headbay worker node` makes this machine one"]
        ),
        rows=found.nodes,
        quiet=[row.name for row in found.nodes],
        notes=found.notes,
    )


def _node_state(row: "NodeRow") -> str:
    if row.state == "up" and (row.draining or row.cordoned):
        return "draining" if row.draining else "cordoned"
    return f"{row.state}, cordoned" if row.cordoned else row.state


def show_queues(found: "QueueList", output: Output) -> None:
    """`headbay queue list`."""

    def lines() -> list[str]:
        shown = render(
            ("QUEUE", "POOL", "WAITING", "RUNNING", "OLDEST WAIT", "HELD"),
            [
                [
                    row.name,
                    row.pool,
                    str(row.pending),
                    str(row.running),
                    duration(row.oldest_wait_ms) if row.pending else "",
                    amounts(row.used),
                ]
                for row in found.queues
            ],
        )
        waiting = [
            [
                row.name,
                str(next_.position),
                next_.workload,
                next_.step,
                str(next_.priority),
                amounts(next_.resources),
                duration(next_.waited_ms),
            ]
            for row in found.queues
            for next_ in row.next[:10]
        ]
        head = ("QUEUE", "#", "WORKLOAD", "STEP", "PRIORITY", "NEEDS", "WAITED")
        return shown + (["", *render(head, waiting)] if waiting else [])

    emit(
        found,
        output,
        table=lines,
        rows=found.queues,
        quiet=[row.name for row in found.queues],
        notes=found.notes,
    )


def show_explanation(found: "Explanation", output: Output) -> None:
    """`headbay explain`."""

    def lines() -> Iterable[str]:
        yield f"{found.id}: {bracket(found.status.value, found.reason)}"
        if found.message:
            yield f"  {found.message}"
        if not found.steps:
            yield "  every step has ended; `headbay status` shows how"
        for step in found.steps:
            place = ""
            if step.position is not None:
                place = f", number {step.position} in queue {step.queue}"
                place += f", waits for {duration(step.waited_ms)}"
            yield f"{step.step}: {bracket(step.state.value, step.reason)}{place}"
            if step.message:
                yield f"  {step.message}"
            if step.waits_for:
                upstreams = (f"{n} ({s.value})" for n, s in step.waits_for.items())
                yield f"  dependency: waits for {', '.join(upstreams)}"
            for reason in step.reasons:
                yield f"  {reason.tier.value}: {reason.message}"
                if reason.fix:
                    yield f"    {reason.fix}"
            if step.state.value == "UNRESOLVED":
                yield (
                    f"    headbay resolve {found.id} {step.step} --as retry|success|failure "
                    "(look first at what it did)"
                )

    emit(
        found,
        output,
        table=lines,
        rows=found.steps,
        quiet=[reason.code.value for step in found.steps for reason in step.reasons],
        notes=found.notes,
    )


def show_history(found: "History", output: Output) -> None:
    """`headbay history`."""
    emit(
        found,
        output,
        table=lambda: render(
            ("TIME", "EVENT", "STEP", "ATTEMPT", "STATE", "DETAILS"),
            [
                [
                    instant(event.at_ms),
                    event.kind,
                    event.step or "",
                    "" if event.attempt is None else str(event.attempt),
                    bracket(event.state, event.reason),
                    _details(event),
                ]
                for event in found.events
            ],
            states=("STATE",),
        ),
        rows=found.events,
        quiet=[event.kind for event in found.events],
        notes=[found.note] if found.note else [],
    )


def _details(event: "JournalEvent") -> str:
    shown = [
        f"{key} {event.data[key]}"
        for key in ("node", "fence", "exit_code", "signal", "by", "delay_ms", "digest")
        if event.data.get(key) not in (None, "")
    ]
    message = event.data.get("message")
    return ", ".join(shown + ([str(message)] if message else []))


def show_diagnosis(found: "Diagnosis", output: Output) -> None:
    """`headbay doctor`."""

    def lines() -> Iterable[str]:
        yield from render(
            ("CHECK", "STATE", "FOUND"),
            [[check.name, check.state, check.found] for check in found.checks],
            states=("STATE",),
        )
        steps = [check for check in found.checks if check.next_step]
        if steps:
            yield ""
        for check in steps:
            yield f"{check.name}: {check.next_step}"

    emit(
        found,
        output,
        table=lines,
        rows=found.checks,
        quiet=[check.name for check in found.checks if check.state == "failed"],
    )
