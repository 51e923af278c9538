"""What the shim asks of the kernel: clocks, the boot, processes by (pid, start time)."""

import ctypes
import errno
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # costs milliseconds at every start
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

__all__ = [
    "MS_BIND",
    "MS_NODEV",
    "MS_NOEXEC",
    "MS_NOSUID",
    "MS_RDONLY",
    "MS_REMOUNT",
    "PR_SET_CHILD_SUBREAPER",
    "PR_SET_NO_NEW_PRIVS",
    "boot_id",
    "boottime_ns",
    "forbid_cgroup_writes",
    "mount",
    "now_ms",
    "own_mounts",
    "patiently",
    "prctl",
    "process_stat",
    "protect_from_oom",
    "send_signal",
    "start_ticks",
]

PATIENCE_S = 10.0
PAUSE_S = 0.01
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWNS = 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_SLAVE = 1 << 12, 1 << 14, 1 << 19


def prctl(option: int, value: int) -> None:
    """Change a property of this process.

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def own_mounts() -> None:
    """Give this process, and all that it starts, mounts that nobody else sees.

    Source: mount_namespaces(7): nothing of it travels back out of a namespace that is a slave.

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    mount(None, "/", None, MS_REC | MS_SLAVE, None)


def forbid_cgroup_writes() -> None:
    """Make /sys/fs/cgroup read-only here; only after `own_mounts`.

    Raises:
        OSError: The kernel refused.
    """
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount(None, "/sys/fs/cgroup", None, flags, None)


def mount(
    source: "str | None", target: str, kind: "str | None", flags: int, options: "str | None"
) -> None:
    """Mount, or change a mount.

    Source: mount(2).

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else options.encode()
    if libc.mount(*encoded, ctypes.c_ulong(flags), data) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def boottime_ns() -> int:
    """CLOCK_BOOTTIME: runs on while the machine sleeps, unlike CLOCK_MONOTONIC."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


_boot: "list[str]" = []


def boot_id() -> str:
    """Identity of this boot of the machine; read once, since no process outlives a boot."""
    if not _boot:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            _boot.append(file.read().strip())
    return _boot[0]


def patiently(call: "Callable[[], T]") -> "T":
    """The call's value; while the kernel has no memory for it, it is made again.

    A control group at its limit refuses memory to those of its processes that the OOM killer
    spares, until what it kills instead is gone.

    Raises:
        OSError: As the call does; ENOMEM only after `PATIENCE_S`.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno != errno.ENOMEM or time.monotonic() >= until:
                raise
        time.sleep(PAUSE_S)


def protect_from_oom(score: str = "-1000") -> "str | None":
    """Keep the OOM killer off; the former score, None if this user may not say so.

    One above would not do: when all others of a group at its limit are dying, it is the next.
    Source: proc_pid_oom_score_adj(5): lowering it needs CAP_SYS_RESOURCE.
    """
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        former = os.read(fd, 32).decode().strip()
        os.write(fd, score.encode())
    except OSError:
        return None
    finally:
        os.close(fd)
    return former


def process_stat(pid: int) -> "tuple[str, int, int, int] | None":
    """(state, parent, session, start ticks) of a process; None if it is gone.

    Source: proc_pid_stat(5), fields 3, 4, 6 and 22.
    """

    def content() -> str:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read()

    try:
        fields = patiently(content).rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[1]), int(fields[3]), int(fields[19])


def start_ticks(pid: int) -> "int | None":
    """Start time of a process that runs, None if it is gone or a zombie.

    It tells a pid that was used again from its first owner.
    """
    stat = process_stat(pid)
    return None if stat is None or stat[0] in "ZX" else stat[3]


def send_signal(pid: int, ticks: int, number: int) -> bool:
    """Signal this very process; False if it is gone.

    The pidfd comes first and the start time is compared after: what the pidfd holds cannot be
    exchanged in between, so a pid that was used again is never hit.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_ticks(pid) != ticks:
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
