"""Why and when a payload is ended: lease, timeout and stop orders. No process is touched here.

The first cause fixes the deadline; nothing extends it, and only a lost lease shortens it (to now).
"""

import os

from .files import read

TYPE_CHECKING = False
if TYPE_CHECKING:  # costs milliseconds at every start
    from typing import Any

__all__ = ["Ladder", "Lease"]


class Lease:
    """The right to run, as the node worker last renewed it.

    A lease that is missing, torn, or another fence's renews nothing: what was valid before stays.
    """

    def __init__(self, directory: str, fence: int) -> None:
        self._directory = directory
        self._fence = fence
        self.deadline_ns = 0

    def read(self) -> int:
        """Its deadline by CLOCK_BOOTTIME; 0 if there never was one."""
        record = read(self._directory, "lease")
        if record is not None and record["fence"] == self._fence:
            self.deadline_ns = int(record["deadline_ns"])
        return self.deadline_ns


class Ladder:
    """Causes to end the payload, and the instant of the kill.

    Attributes:
        causes: All that hold, such as ``timed_out``.
        kill_at: When everything is killed, by CLOCK_BOOTTIME; None while nothing ends it.
        steps: What was done when, for the exit record.
    """

    def __init__(self, directory: str, launch: "dict[str, Any]") -> None:
        self.causes: set[str] = set()
        self.kill_at: int | None = None
        self.steps: list[dict[str, Any]] = []
        self._directory = directory
        self._fence: int = launch["fence"]
        self._grace_ns: int = launch["grace_ms"] * 1_000_000
        timeout_ms = launch["timeout_ms"]
        self._timeout_ns: int | None = None if timeout_ms is None else timeout_ms * 1_000_000
        self._lease = Lease(directory, self._fence)

    def forbids(self, now: int) -> bool:
        """Whether the payload must not be executed: without a good lease, or once stopped."""
        return now >= self._lease.read() or self._stop() is not None

    def has_begun(self) -> bool:
        """Whether another shim has begun this attempt: then it is none of this one's business."""
        return os.path.exists(os.path.join(self._directory, "begin.json"))

    def look(self, now: int, started_ns: int) -> bool:
        """Find causes; whether this look found the first one that leaves a grace: time to TERM."""
        if now >= self._lease.read():
            self._add("lease_lost", now, 0)
        term = False
        if self._timeout_ns is not None and now - started_ns >= self._timeout_ns:
            term = self._add("timed_out", now, self._grace_ns)
        reason = self._stop()
        if reason is not None:
            grace = 0 if reason == "lease_lost" else self._grace_ns
            term = self._add(reason, now, grace) or term
        return term

    def stopped(self, now: int) -> None:
        """Somebody else has sent TERM to all of it: only the grace and the kill are left to do."""
        self._add("stopped", now, self._grace_ns)

    def next_ns(self, started_ns: int) -> int:
        """The next instant at which something is due."""
        due = [self._lease.deadline_ns]
        if self.kill_at is not None:
            due.append(self.kill_at)
        elif self._timeout_ns is not None:
            due.append(started_ns + self._timeout_ns)
        return min(due)

    def note(self, now: int, step: str) -> None:
        """Remember what was done."""
        self.steps.append({"at_ns": now, "step": step})

    def _stop(self) -> "str | None":
        record = read(self._directory, "stop")
        if record is None or record["fence"] != self._fence:
            return None
        return str(record["reason"])

    def _add(self, cause: str, now: int, grace_ns: int) -> bool:
        if cause in self.causes:
            return False
        first = not self.causes
        self.causes.add(cause)
        self.steps.append({"at_ns": now, "cause": cause})
        deadline = now + grace_ns
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)
        return first and grace_ns > 0
