"""From a shim's exit record, or its absence, to an AttemptResult."""

from typing import Any

from headbay.activities.executor.shim.kernel import boot_id
from headbay.domain.attempt import AttemptResult, LaunchSpec, LogRef, Usage
from headbay.domain.classify import EndFacts, classify, flags
from headbay.domain.outcome import Flag, Isolation, Outcome
from headbay.domain.quantity import show_duration

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
    facts = EndFacts(
        exec_failed=failure is not None,
        lease_lost="lease_lost" in causes,
        cancelled="cancelled" in causes,
        preempted="preempted" in causes,
        timed_out="timed_out" in causes,
        exit_code=record["exit_code"],
        signal=record["signal"],
        leftovers_killed=record["leftovers_killed"],
        kill_incomplete=record["kill_incomplete"],
        log_truncated=record["log_kept_bytes"] < record["log_seen_bytes"],
    )
    outcome = classify(facts)
    return AttemptResult(
        **_identity(spec),
        boot_id=record["boot_id"],
        outcome=outcome,
        exit_code=record["exit_code"] if failure is None else None,
        signal=record["signal"],
        message=_message(outcome, record, spec.timeout_ms),
        flags=flags(facts),
        began=failure is None,
        started_ms=record["started_ms"],
        ended_ms=record["ended_ms"],
        usage=Usage(
            wall_ms=record["wall_ms"],
            cpu_user_us=record.get("cpu_user_us"),
            cpu_system_us=record.get("cpu_system_us"),
            memory_peak_bytes=record.get("memory_peak_bytes"),
            io_read_bytes=record.get("io_read_bytes"),
            io_write_bytes=record.get("io_write_bytes"),
        ),
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
) -> AttemptResult:
    """A result without an exit record: what could be proven instead."""
    return AttemptResult(
        **_identity(spec),
        boot_id=boot_id(),
        outcome=outcome,
        message=why,
        flags=[Flag.KILL_INCOMPLETE] if kill_incomplete else [],
        began=began,
        isolation=isolation,
    )


def _message(outcome: Outcome, record: dict[str, Any], timeout_ms: int | None) -> str:
    failure = record["exec_failure"]
    match outcome:
        case Outcome.EXEC_FAILED:
            return f"could not {failure['where']}: {failure['why']}"
        case Outcome.FAILED:
            return f"exited with status {record['exit_code']}"
        case Outcome.SIGNALED:
            return f"killed by signal {record['signal']}, which Headbay did not send"
        case Outcome.TIMED_OUT:
            return f"killed after its timeout of {show_duration(timeout_ms or 0)}"
        case Outcome.LEASE_LOST:
            return "killed: its lease ran out, or its activity was closed"
        case _:
            return ""
