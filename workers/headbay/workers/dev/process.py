"""Identity and end of processes: a pid alone may name another process by now."""

import os
import signal
import time
from pathlib import Path

__all__ = ["end", "is_running", "start_ticks"]

_POLL_S = 0.02
_START_TIME_FIELD = 22
"""Of /proc/PID/stat, counted from 1; the fields after the name begin with number 3."""


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it does not run.

    A zombie does not run: it may stay for seconds where nobody reaps orphans.

    Source: proc_pid_stat(5).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return int(fields[_START_TIME_FIELD - 3])


def is_running(pid: int, ticks: int) -> bool:
    """Whether this very process still runs."""
    return start_ticks(pid) == ticks


def end(pid: int, ticks: int, *, grace_s: float) -> bool:
    """End one process: SIGTERM, after the grace SIGKILL. True if it had to be killed."""
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        if not is_running(pid, ticks):
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        deadline = time.monotonic() + wait_s
        while is_running(pid, ticks) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    if is_running(pid, ticks):
        raise TimeoutError(f"process {pid} survived SIGKILL for 5 s")
    return True
