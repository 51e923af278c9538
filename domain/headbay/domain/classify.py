"""Which outcome class the end of a payload is: the first match of one documented order.

Source: the kernel's cgroup-v2 documentation (``memory.events``): ``oom`` counts the times that a
cgroup's own limit was hit, ``oom_kill`` the kills of its processes by whichever limit.
"""

from dataclasses import dataclass

from headbay.domain.outcome import Flag, Outcome

__all__ = ["EndFacts", "classify", "flags"]

_SIGKILL = 9


@dataclass(slots=True, frozen=True, kw_only=True)
class EndFacts:
    """What a supervisor saw of one payload.

    Attributes:
        limit_failed: A limit could not be applied or read back.
        exec_failed: execve, chdir or another step of the launch failed.
        lease_lost, cancelled, preempted, timed_out: Why the supervisor killed it; several may
            hold.
        exit_code: The main process's status, if it exited. signal: Its signal, if killed by one.
        oom: ``oom`` of the payload's cgroup, None if not measured. oom_kill: Likewise.
        oom_group_kill: Likewise ``oom_group_kill``.
    """

    limit_failed: bool = False
    exec_failed: bool = False
    lease_lost: bool = False
    cancelled: bool = False
    preempted: bool = False
    timed_out: bool = False
    exit_code: int | None = None
    signal: int | None = None
    oom: int | None = None
    oom_kill: int | None = None
    oom_group_kill: int | None = None
    leftovers_killed: bool = False
    pids_limit_hit: bool = False
    kill_incomplete: bool = False
    log_truncated: bool = False


def classify(facts: EndFacts) -> Outcome:
    """The outcome class; the first that matches.

    1. limit not applied, 2. exec failed: the payload never ran;
    3. lease lost, 4. cancelled, 5. preempted, 6. timed out: the supervisor's own kills;
    7. out of memory, by its own limit or 8. an ancestor's; SIGKILL alone is never that;
    9. another signal; 10. exit status; 11. nothing known.
    """
    asked = (
        (facts.limit_failed, Outcome.LIMIT_NOT_APPLIED),
        (facts.exec_failed, Outcome.EXEC_FAILED),
        (facts.lease_lost, Outcome.LEASE_LOST),
        (facts.cancelled, Outcome.CANCELLED),
        (facts.preempted, Outcome.PREEMPTED),
        (facts.timed_out, Outcome.TIMED_OUT),
    )
    for holds, outcome in asked:
        if holds:
            return outcome
    killed = facts.signal == _SIGKILL and bool(facts.oom_kill)
    # A main process that ended well outlived the kill: it was spared, or done before.
    fell = facts.exit_code != 0 and bool(facts.oom_group_kill)
    if facts.oom and (killed or fell):
        return Outcome.OOM_KILLED
    if killed and facts.oom == 0:
        return Outcome.OOM_NODE
    if facts.signal is not None:
        return Outcome.SIGNALED
    if facts.exit_code is None:
        return Outcome.UNKNOWN
    return Outcome.FAILED if facts.exit_code else Outcome.SUCCEEDED


def flags(facts: EndFacts) -> list[Flag]:
    """Observations beside the outcome, in the order in which `Flag` lists them."""
    seen = {
        Flag.OOM_OBSERVED: bool(facts.oom_kill),
        Flag.LEFTOVERS_KILLED: facts.leftovers_killed,
        Flag.PIDS_LIMIT_HIT: facts.pids_limit_hit,
        Flag.KILL_INCOMPLETE: facts.kill_incomplete,
        Flag.LOG_TRUNCATED: facts.log_truncated,
    }
    return [flag for flag in Flag if seen[flag]]
