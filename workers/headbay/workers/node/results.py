"""From a shim's exit record, or its absence, to an AttemptResult."""

from collections.abc import Mapping
from typing import Any

from headbay.activities.executor.shim.kernel import boot_id
from headbay.domain.attempt import AttemptResult, LaunchSpec, LogRef, Usage
from headbay.domain.classify import EndFacts, classify, flags
from headbay.domain.outcome import Flag, Isolation, Outcome
from headbay.domain.quantity import show_duration, show_memory

__all__ = ["from_exit", "without_exit"]


def _identity(spec: LaunchSpec) -> dict[str, Any]:
    names = ("workload", "step", "attempt", "fence", "allocation", "node")
    return {name: getattr(spec, name) for name in names}


def from_exit(
    spec: LaunchSpec, record: dict[str, Any], isolation: Isolation, log_path: str
) -> AttemptResult:
    """The result that an exit record proves."""
    failure = record["exec_failure"]
    causes = set(record["causes"])
    limit_failure = record.get("limit_failure")
    began = failure is None and limit_failure is None
    facts = EndFacts(
        limit_failed=limit_failure is not None,
        exec_failed=failure is not None,
        lease_lost="lease_lost" in causes,
        cancelled="cancelled" in causes,
        preempted=bool({"preempted", "stopped"} & causes),
        timed_out="timed_out" in causes,
        exit_code=record["exit_code"],
        signal=record["signal"],
        oom=record.get("oom"),
        oom_kill=record.get("oom_kill"),
        oom_group_kill=record.get("oom_group_kill"),
        pids_limit_hit=bool(record.get("pids_refused")),
        leftovers_killed=record["leftovers_killed"],
        kill_incomplete=record["kill_incomplete"],
        log_truncated=record["log_kept_bytes"] < record["log_seen_bytes"],
    )
    outcome = classify(facts)
    return AttemptResult(
        **_identity(spec),
        boot_id=record["boot_id"],
        outcome=outcome,
        exit_code=record["exit_code"] if began else None,
        signal=record["signal"],
        message=_message(outcome, record, spec),
        flags=flags(facts),
        began=began,
        started_ms=record["started_ms"],
        ended_ms=record["ended_ms"],
        usage=_usage(record, record["wall_ms"]),
        log=LogRef(
            path=log_path,
            seen_bytes=record["log_seen_bytes"],
            kept_bytes=record["log_kept_bytes"],
        ),
        isolation=isolation,
    )


def without_exit(
    spec: LaunchSpec,
    outcome: Outcome,
    why: str,
    isolation: Isolation,
    *,
    began: bool = False,
    kill_incomplete: bool = False,
    account: Mapping[str, Any] | None = None,
) -> AttemptResult:
    """A result without an exit record: what could be proven instead."""
    return AttemptResult(
        **_identity(spec),
        boot_id=boot_id(),
        outcome=outcome,
        message=why,
        flags=[Flag.KILL_INCOMPLETE] if kill_incomplete else [],
        began=began,
        usage=_usage(account or {}, None),
        isolation=isolation,
    )


def _usage(record: Mapping[str, Any], wall_ms: int | None) -> Usage:
    """What was measured; the rest is None."""
    measured = {name: record[name] for name in Usage.model_fields if name in record}
    return Usage(**(measured | {"wall_ms": wall_ms}))


def _message(  # noqa: PLR0911 - one return an outcome
    outcome: Outcome, record: dict[str, Any], spec: LaunchSpec
) -> str:
    failure = record["exec_failure"]
    match outcome:
        case Outcome.LIMIT_NOT_APPLIED:
            return f"a limit could not be kept, so nothing was started: {record['limit_failure']}"
        case Outcome.OOM_KILLED:
            return f"killed: it needed more than its {show_memory(spec.resources['memory'])}"
        case Outcome.OOM_NODE:
            return "killed for the memory of its node, within its own limit"
        case Outcome.PREEMPTED if "stopped" in record["causes"]:
            return "its scope was stopped on the node, by its operator or by a shutdown"
        case Outcome.EXEC_FAILED:
            return f"could not {failure['where']}: {failure['why']}"
        case Outcome.FAILED:
            return f"exited with status {record['exit_code']}"
        case Outcome.SIGNALED:
            return f"killed by signal {record['signal']}, which Headbay did not send"
        case Outcome.TIMED_OUT:
            return f"killed after its timeout of {show_duration(spec.timeout_ms or 0)}"
        case Outcome.LEASE_LOST:
            return "killed: its lease ran out, or its activity was closed"
        case _:
            return ""
