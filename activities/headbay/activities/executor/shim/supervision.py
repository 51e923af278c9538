"""Supervises one payload from its fork to its durable exit record."""

import json
import os
import resource
import select
import signal

from .cgroup import Cgroup, LimitError, divide
from .family import Family
from .files import write_durably
from .kernel import boot_id, boottime_ns, now_ms, start_ticks
from .ladder import Ladder
from .log import CHUNK, Log
from .payload import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:  # costs milliseconds at every start
    from typing import Any

__all__ = ["Supervision"]

POLL_NS = 250_000_000
STOP_WITHIN_NS = 500_000_000
"""How much later than its payload a shim may hear that their scope is being stopped."""
PUMPS_A_TURN = 64
LAST_TURNS = 16
"""What is still in the pipe at the end is at most what a pipe holds: 1 MiB, root's may be larger.
Bounded, since a process that cannot be killed may go on writing."""
RECORD_VERSION = 1


class Supervision:
    """One payload: begin, log, deadlines, end."""

    def __init__(self, directory: str, launch: "dict[str, Any]", ladder: Ladder) -> None:
        self._directory = directory
        self._launch = launch
        self._ladder = ladder
        self._log = Log(os.path.join(directory, "out.log"), launch["log_cap_bytes"])
        me = os.getpid()
        self._me = (me, start_ticks(me) or 0)
        self._cell: Cgroup | None = None
        self._family: Cgroup | Family = Family(launch["unit"], shim=self._me)
        self._wake = _wakeups()
        self._stopped = False
        if launch.get("scope") is not None:
            signal.signal(signal.SIGTERM, self._hear_stop)
        self._look_at = 0
        self._payload: Payload | None = None
        self._failure = b""
        self._limit_failure: str | None = None
        self._childless = False
        self._main_status: int | None = None
        self._leftovers = False
        self._incomplete = False
        self._started_ns = 0
        self._started_ms = 0
        self._ended_ns: int | None = None

    def begin(self, secrets: "dict[str, Any]", oom: "str | None") -> bool:
        """Fork the payload, say so durably, and only then let it execute.

        Returns:
            Whether there is anything to supervise: nothing runs under a limit that is not kept.
        """
        self._started_ns = boottime_ns()
        self._started_ms = now_ms()
        if not self._enter(secrets, oom) or self._payload is None:
            return False
        payload = self._payload
        record = self._identity() | {
            "shim": list(self._me),
            "main": [payload.pid, start_ticks(payload.pid)],
            "cgroup": None if self._cell is None else self._cell.path,
            "started_ms": self._started_ms,
            "boottime_ns": self._started_ns,
        }
        write_durably(self._directory, "begin.json", record)
        if self._ladder.forbids(boottime_ns()):
            payload.withhold()  # The disk took its time.
        else:
            payload.go()
        return True

    def _enter(self, secrets: "dict[str, Any]", oom: "str | None") -> bool:
        """Apply the limits and fork the payload below them; False if one of them is not kept."""
        scope = self._launch.get("scope")
        try:
            if scope is not None:
                self._cell = self._family = divide(self._launch["unit"], scope)
            self._payload = Payload(self._launch, secrets, oom)
            if self._cell is not None:
                self._cell.take(self._payload.pid)
        except LimitError as error:
            self._limit_failure = str(error)
            if self._payload is not None:
                self._payload.withhold()
            return False
        return True

    def _identity(self) -> "dict[str, Any]":
        return {
            "version": RECORD_VERSION,
            "unit": self._launch["unit"],
            "fence": self._launch["fence"],
            "boot_id": boot_id(),
        }

    # -- supervision ---------------------------------------------------------------------------

    def run(self) -> None:
        """Return when the payload and all that it started are gone, or cannot be killed.

        Once something ends the payload, all of it has the whole grace, also after its main
        process left: a shell dies of TERM at once, and what it started is still cleaning up.
        Without such a cause, whatever outlives the main process is killed.
        """
        payload = self._payload
        if payload is None:
            raise RuntimeError("run before begin")
        poll = select.poll()
        for fd in (self._wake, payload.out, payload.errors):
            poll.register(fd, select.POLLIN)
        while not self._is_over():
            for fd, _ in poll.poll(self._timeout_ms()):
                if fd == self._wake:
                    _drain(self._wake)
                    self._look_at = 0
                elif not (self._pump() if fd == payload.out else self._hear()):
                    poll.unregister(fd)
            self._reap()
            self._look()
        self._end()

    def _look(self) -> None:
        """Orders and deadlines; not for every line that a payload prints."""
        now = boottime_ns()
        if now < self._look_at:
            return
        if self._stopped:
            self._ladder.stopped(now)
        if self._ladder.look(now, self._started_ns):
            self._family.signal(signal.SIGTERM)
            self._family.signal(signal.SIGCONT)
            self._ladder.note(now, "TERM")
        self._look_at = min(now + POLL_NS, self._ladder.next_ns(self._started_ns))

    def _hear_stop(self, *_: object) -> None:
        """The service manager stops the scope, and has sent TERM to all of it."""
        self._stopped = True
        self._look_at = 0

    def _is_over(self) -> bool:
        if self._ladder.kill_at is None:
            return self._main_status is not None
        return self._childless or boottime_ns() >= self._ladder.kill_at

    def _timeout_ms(self) -> int:
        return max(1, (self._look_at - boottime_ns()) // 1_000_000 + 1)

    def _reap(self) -> bool:
        """Collect the dead; whether the kernel knows of no child any more, and so of nobody."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return True
            if pid == 0:
                return False
            if self._payload is not None and pid == self._payload.pid:
                self._main_status = status
                self._ended_ns = boottime_ns()

    def _pump(self) -> bool:
        """Take what the payload printed; False at the end of the pipe.

        Bounded per call, so that a flood cannot delay a kill.
        """
        if self._payload is None:
            return False
        for _ in range(PUMPS_A_TURN):
            try:
                data = os.read(self._payload.out, CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._log.write(data)
        return True

    def _hear(self) -> bool:
        """Take why the payload could not be executed; False at the end of the pipe."""
        if self._payload is None:
            return False
        try:
            part = os.read(self._payload.errors, 4096)
        except BlockingIOError:
            return True
        self._failure += part
        return bool(part)

    # -- end -----------------------------------------------------------------------------------

    def _end(self) -> None:
        """Nothing of the family outlives this."""

        def meanwhile() -> bool:
            self._pump()
            return self._reap()

        now = boottime_ns()
        self._incomplete = not self._family.end(meanwhile)
        if self._family.met:
            self._ladder.note(now, "KILL")
            self._leftovers = not self._ladder.causes
        for _ in range(LAST_TURNS):
            self._pump()
        self._hear()

    def abandon(self) -> None:
        """The supervision broke: better no payload than one without a supervisor."""
        self._ladder.note(boottime_ns(), "KILL")
        self._family.end(self._reap)

    def _await_stop(self) -> None:
        """A payload that TERM ended may have got systemd's before this process got its own."""
        status = self._main_status
        ours = self._launch.get("scope") is None or self._ladder.causes
        if ours or status is None or not os.WIFSIGNALED(status):
            return
        if os.WTERMSIG(status) != signal.SIGTERM:
            return
        until = boottime_ns() + STOP_WITHIN_NS
        while not self._stopped and (left := until - boottime_ns()) > 0:
            select.select([self._wake], [], [], left / 1e9)
            _drain(self._wake)

    def finish(self) -> None:
        """Write the exit record; it is durable before this process leaves."""
        self._log.close()
        status = self._main_status
        self._await_stop()
        if self._stopped and (status is None or os.WIFSIGNALED(status)):
            self._ladder.stopped(boottime_ns())
        ended = boottime_ns() if self._ended_ns is None else self._ended_ns
        exit_code = number = None
        if status is not None:
            exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        record = self._identity() | {
            "limit_failure": self._limit_failure,
            "raw_status": status,
            "exit_code": exit_code,
            "signal": number,
            "exec_failure": json.loads(self._failure) if self._failure else None,
            "causes": sorted(self._ladder.causes),
            "ladder": self._ladder.steps,
            "leftovers_killed": self._leftovers,
            "kill_incomplete": self._incomplete,
            "started_ms": self._started_ms,
            "ended_ms": self._started_ms + (ended - self._started_ns) // 1_000_000,
            "wall_ms": (ended - self._started_ns) // 1_000_000,
            "boottime_ns": ended,
            "log_seen_bytes": self._log.seen,
            "log_kept_bytes": self._log.kept,
            "log_errno": self._log.failed,
            **self._measured(),
        }
        write_durably(self._directory, "exit.json", record)

    def _measured(self) -> "dict[str, Any]":
        """What the payload used: by its cgroup, else by what the kernel tells of dead children."""
        if self._cell is not None:
            return self._cell.account()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "cpu_user_us": int(usage.ru_utime * 1_000_000),
            "cpu_system_us": int(usage.ru_stime * 1_000_000),
            "memory_peak_bytes": usage.ru_maxrss * 1024,
            "io_read_bytes": usage.ru_inblock * 512,
            "io_write_bytes": usage.ru_oublock * 512,
        }


def _wakeups() -> int:
    """A pipe that becomes readable when a child ends, or when somebody pokes with SIGUSR1."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    return read


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        return
