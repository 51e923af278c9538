"""How attempts end: outcome classes and flags."""

from enum import StrEnum

__all__ = ["Flag", "Isolation", "Outcome"]


class Outcome(StrEnum):
    """Class of the end of one attempt.

    Source: DESIGN §5; the first match in the order that `headbay.domain.classify` documents wins.
    """

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    """The main process exited with a non-zero status."""
    SIGNALED = "SIGNALED"
    """The main process was killed by a signal that Headbay did not send."""
    OOM_KILLED = "OOM_KILLED"
    """Beyond its own memory limit."""
    OOM_NODE = "OOM_NODE"
    """Killed for an ancestor's memory limit: the node's fault, not the step's."""
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    PREEMPTED = "PREEMPTED"
    LEASE_LOST = "LEASE_LOST"
    """The lease ran out: killed by its own shim, or presumed so after TTL + grace."""
    NODE_LOST = "NODE_LOST"
    """The node came back with another boot id, or never."""
    SUPERVISOR_LOST = "SUPERVISOR_LOST"
    """The shim died before its payload; what was left was killed."""
    NOT_STARTED = "NOT_STARTED"
    """Proven: the payload was never executed."""
    EXEC_FAILED = "EXEC_FAILED"
    """execve, chdir or another step of the launch itself failed (differs from exit 127)."""
    LIMIT_NOT_APPLIED = "LIMIT_NOT_APPLIED"
    OUTPUT_CONTRACT_VIOLATION = "OUTPUT_CONTRACT_VIOLATION"
    UNKNOWN = "UNKNOWN"
    """May have run, and nothing says how it ended. Never success."""


class Flag(StrEnum):
    """Observations beside the outcome."""

    OOM_OBSERVED = "oom_observed"
    LEFTOVERS_KILLED = "leftovers_killed"
    PIDS_LIMIT_HIT = "pids_limit_hit"
    KILL_INCOMPLETE = "kill_incomplete"
    LOG_TRUNCATED = "log_truncated"


class Isolation(StrEnum):
    """What the node's executor can promise about limits."""

    ENFORCED = "enforced"
    """Limits are kernel limits that the payload cannot lift."""
    COOPERATIVE = "cooperative"
    """Kernel limits that a payload of the same uid could lift."""
    UNENFORCED = "unenforced"
    """Resources count for admission only."""
