"""The payload's control group: limits that are read back, signals, the kill, the account.

A systemd scope is divided in two: the shim moves itself to ``shim/``, and the payload lives in
``payload/`` with the tight limits. Attributes of the scope's own node are systemd's and never
written here.

Source: the kernel's cgroup-v2 documentation; files as found on 6.1.
"""

import os
import select
import time

from .kernel import patiently, process_stat, send_signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # costs milliseconds at every start
    from collections.abc import Callable
    from typing import Any

__all__ = ["KILL_WITHIN_S", "ROOT", "Cgroup", "LimitError", "divide", "own_cgroup"]

ROOT = "/sys/fs/cgroup"
KILL_WITHIN_S = 10.0
LOOK_S = 0.02
WANTED = ("cpu", "io", "memory", "pids")
CPU_PERIOD_US = 100_000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class LimitError(Exception):
    """A limit could not be applied, or reads back as another: nothing may run under it."""


def own_cgroup(pid: "int | str" = "self") -> str:
    """Path of a process's cgroup below `ROOT`, such as ``/headbay.slice/x.scope``.

    Raises:
        LimitError: There is no unified hierarchy. OSError: There is no such process.
    """
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].rstrip("\n")
    raise LimitError("this machine has no unified control group hierarchy (cgroup v2)")


class Cgroup:
    """One control group, by its path in the file system; it need not be there.

    Attributes:
        met: The most processes that `end` ever saw alive.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.met = 0

    # -- processes -----------------------------------------------------------------------------

    def members(self) -> "list[int]":
        """Pids in it and below it. A process that leaves meanwhile may be missing."""
        found: list[int] = []
        for above, _, names in os.walk(self.path):
            if "cgroup.procs" in names:
                try:
                    with open(os.path.join(above, "cgroup.procs"), encoding="ascii") as file:
                        found += [int(line) for line in file]
                except OSError:
                    continue  # Removed, or threaded.
        return found

    def populated(self) -> bool:
        """Whether any process is in it or below it; zombies are in none.

        Raises:
            LimitError: It is there, and does not say.
        """
        told = self._fields("cgroup.events").get("populated")
        if told is None and os.path.isdir(self.path):
            raise LimitError(f"{self.path} does not say whether anything is in it")
        return bool(told)

    def take(self, pid: int) -> None:
        """Move a process into it.

        Raises:
            LimitError: The kernel refused.
        """
        self._write("cgroup.procs", str(pid))

    def signal(self, number: int) -> int:
        """Signal every process in it; how many there were."""
        sent = 0
        inside = self.path.removeprefix(ROOT)
        for pid in self.members():
            stat = process_stat(pid)
            try:
                here = own_cgroup(pid)
            except OSError:
                continue
            if stat is not None and (here == inside or here.startswith(f"{inside}/")):
                sent += send_signal(pid, stat[3], number)
        return sent

    def end(
        self,
        meanwhile: "Callable[[], bool]" = lambda: True,
        within_s: float = KILL_WITHIN_S,
    ) -> bool:
        """Kill all that is in it; False if some of it is still there after ``within_s``.

        The kernel kills the whole group at once, also what is being forked, stopped or frozen.

        Args:
            meanwhile: Called between looks; what it says is not needed here.
            within_s: Bound.
        """
        try:
            events = os.open(f"{self.path}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            return self._end(events, meanwhile, time.monotonic() + within_s)
        finally:
            os.close(events)

    def _end(self, events: int, meanwhile: "Callable[[], bool]", deadline: float) -> bool:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while True:
            meanwhile()
            if not self.populated():
                return True
            if time.monotonic() >= deadline:
                return False
            self.met = max(self.met, len(self.members()), 1)
            try:
                self._write("cgroup.kill", "1")
            except LimitError:
                if not os.path.isdir(self.path):
                    return True
                raise
            poll.poll(LOOK_S * 1_000)

    def freeze(self) -> None:
        """Stop all of it where it is, at the kernel's next chance."""
        self._write("cgroup.freeze", "1")

    # -- limits --------------------------------------------------------------------------------

    def limit(self, name: str, value: str) -> None:
        """Set a limit and read it back.

        Raises:
            LimitError: The kernel refused, or keeps another value.
        """
        self._write(name, value)
        kept = self.read(name)
        if kept != value:
            raise LimitError(f"{name} is {kept} after {value} was written to it")

    def has(self, name: str) -> bool:
        """Whether the kernel and the hierarchy above offer this file."""
        return os.path.exists(f"{self.path}/{name}")

    def read(self, name: str) -> "str | None":
        """A file's content; None if it cannot be read."""

        def content() -> bytes:
            fd = os.open(f"{self.path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(fd, 65536)
            finally:
                os.close(fd)

        try:
            return patiently(content).decode("ascii", "replace").strip()
        except OSError:
            return None

    def _write(self, name: str, text: str) -> None:
        # By write(2): buffered files hide what the kernel answers until they are closed.
        def write() -> None:
            fd = os.open(f"{self.path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, text.encode())
            finally:
                os.close(fd)

        try:
            patiently(write)
        except OSError as error:
            raise LimitError(
                f"writing {text} to {name}: {os.strerror(error.errno or 0)}"
            ) from error

    # -- account -------------------------------------------------------------------------------

    def account(self) -> "dict[str, Any]":
        """What it used, as numbers by name; what is not measured here is left out, never 0."""
        cpu = self._fields("cpu.stat")
        memory = self._fields("memory.events")
        found: dict[str, Any] = {
            "cpu_user_us": cpu.get("user_usec"),
            "cpu_system_us": cpu.get("system_usec"),
            "cpu_throttled_us": cpu.get("throttled_usec"),
            "memory_peak_bytes": self._number("memory.peak"),
            "pids_peak": self._number("pids.peak"),
            "pids_refused": self._fields("pids.events").get("max"),
            "oom": memory.get("oom"),
            "oom_kill": memory.get("oom_kill"),
            "oom_group_kill": memory.get("oom_group_kill"),
            **self._transferred(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _transferred(self) -> "dict[str, int]":
        text = self.read("io.stat")
        if text is None:
            return {}
        read = written = 0
        for line in text.splitlines():
            fields = dict(field.split("=") for field in line.split()[1:])
            read += int(fields.get("rbytes", 0))
            written += int(fields.get("wbytes", 0))
        return {"io_read_bytes": read, "io_write_bytes": written}

    def _number(self, name: str) -> "int | None":
        text = self.read(name)
        return int(text) if text is not None and text.isdigit() else None

    def _fields(self, name: str) -> "dict[str, int]":
        lines = (self.read(name) or "").splitlines()
        pairs = [line.split() for line in lines]
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def divide(unit: str, limits: "dict[str, Any]") -> Cgroup:
    """Move this process to ``shim/`` in its scope, and make ``payload/`` with its limits.

    Args:
        unit: Name of the scope, without ``.scope``; this process must be in that very one.
        limits: ``memory`` in bytes, ``tasks``, and ``cpu_max`` in thousandths of a CPU or None.

    Returns:
        The payload's cgroup; every limit was read back.

    Raises:
        LimitError: A limit cannot be kept here.
    """
    path = own_cgroup()
    if path.rpartition("/")[2] != f"{unit}.scope":
        raise LimitError(f"the supervisor is in {path}, not in its scope")
    scope = Cgroup(ROOT + path)
    payload = Cgroup(f"{scope.path}/payload")
    try:
        os.mkdir(f"{scope.path}/shim")
        Cgroup(f"{scope.path}/shim").take(os.getpid())
        offered = (scope.read("cgroup.controllers") or "").split()
        for name in WANTED:
            if name in offered:
                scope._write("cgroup.subtree_control", f"+{name}")  # noqa: SLF001 - its own kind
        os.mkdir(payload.path)
    except OSError as error:
        why = f"{error.filename}: {os.strerror(error.errno or 0)}"
        raise LimitError(f"dividing the scope: {why}") from error
    payload.limit("memory.max", str(limits["memory"] // PAGE_BYTES * PAGE_BYTES))
    payload.limit("memory.oom.group", "1")
    if payload.has("memory.swap.max"):
        payload.limit("memory.swap.max", "0")
    payload.limit("pids.max", str(limits["tasks"]))
    if limits.get("cpu_max") is not None:
        payload.limit("cpu.max", f"{limits['cpu_max'] * CPU_PERIOD_US // 1_000} {CPU_PERIOD_US}")
    return payload
