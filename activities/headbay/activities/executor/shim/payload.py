"""Forks the payload in two steps: a child that waits, and then its exec, which may fail."""

import binascii
import json
import os
import resource
import signal
import warnings  # noqa: F401 - os.execvpe imports it, and a payload's user may not read it

from .kernel import (
    PR_SET_NO_NEW_PRIVS,
    forbid_cgroup_writes,
    own_mounts,
    prctl,
    protect_from_oom,
)
from .secret_files import hold, mount_files

TYPE_CHECKING = False
if TYPE_CHECKING:  # costs milliseconds at every start
    from typing import Any, NoReturn

__all__ = ["EXIT_NEVER", "Payload"]

EXIT_NEVER = 75
EXIT_NOT_EXECUTED = 127
OPEN_FILES = 1024
"""What a login gives: more would break select(2), and what closes all that it may have open."""
SHOWN = 500
"""Characters of a name in a message, which must fit into one read of a pipe."""


class Payload:
    """A forked child that waits to be let go.

    Attributes:
        pid: The main process.
        out: Read end of its standard output and error.
        errors: Read end of a pipe that ends empty at a successful exec, and else says why not.
    """

    def __init__(
        self, launch: "dict[str, Any]", secrets: "dict[str, Any]", oom: "str | None"
    ) -> None:
        out_read, out_write = os.pipe()
        gate_read, self._gate = os.pipe()
        error_read, error_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)  # Or it would wait for itself when the shim is dead.
            _become(launch, secrets, oom, (out_write, gate_read, error_write))
        for fd in (out_write, gate_read, error_write):
            os.close(fd)
        os.set_blocking(out_read, False)
        os.set_blocking(error_read, False)
        self.out = out_read
        self.errors = error_read

    def go(self) -> None:
        """Let it execute. If this process dies before, the end of the pipe makes it leave."""
        os.write(self._gate, b"g")
        os.close(self._gate)

    def withhold(self) -> None:
        """Let it leave without executing anything."""
        os.close(self._gate)


def _become(
    launch: "dict[str, Any]",
    secrets: "dict[str, Any]",
    oom: "str | None",
    fds: "tuple[int, int, int]",
) -> "NoReturn":
    out_write, gate_read, error_write = fds
    where = "start"
    try:
        if oom is not None:
            protect_from_oom(str(max(0, int(oom))))  # A node's protection is not the payload's.
        if os.read(gate_read, 1) != b"g":
            os._exit(EXIT_NEVER)
        _reset_signals()
        os.setsid()
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out_write, 1)
        os.dup2(out_write, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.umask(0o022)
        user = launch.get("user")
        files = {name: binascii.a2b_base64(text) for name, text in secrets["files"].items()}
        folder = launch.get("secret_folder") if files else None
        scoped = launch.get("scope") is not None and os.getuid() == 0
        if scoped or folder is not None:
            where = "get mounts of its own"
            own_mounts()
        if scoped:
            where = "make the control groups read-only"
            forbid_cgroup_writes()
        if folder is not None:
            where = f"mount its secrets on {folder[:SHOWN]}"
            owner = (os.getuid(), os.getgid()) if user is None else (user["uid"], user["gid"])
            paths = mount_files(folder, files, *owner)
        if user is not None:
            where = f"become {user['name'][:SHOWN]}"
            _become_user(user)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        if launch.get("make_cwd"):
            where = f"make {launch['cwd'][:SHOWN]}"
            os.makedirs(launch["cwd"], exist_ok=True)
        where = f"chdir to {launch['cwd'][:SHOWN]}"
        os.chdir(launch["cwd"])
        os.closerange(3, error_write)
        os.closerange(error_write + 1, os.sysconf("SC_OPEN_MAX"))
        if folder is None:
            where = "hold its secrets in memory"
            paths = hold(files)
        argv = launch["argv"]
        where = f"execute {argv[0][:SHOWN]}"
        os.execvpe(argv[0], argv, {**secrets["env"], **paths, **launch["env"]})  # noqa: S606 - what this is for
    except OSError as error:
        record = {"errno": error.errno, "where": where, "why": os.strerror(error.errno or 0)}
    except BaseException as error:  # noqa: BLE001 - told to the parent, then _exit
        record = {"errno": 0, "where": where, "why": str(error)}
    os.write(error_write, json.dumps(record).encode())
    os._exit(EXIT_NOT_EXECUTED)


def _become_user(user: "dict[str, Any]") -> None:
    """Give up every privilege for good: groups first, while that is still allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])


def _reset_signals() -> None:
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # Two real-time signals are the C library's own.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
