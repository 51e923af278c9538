"""The shim: supervisor of one payload. Standard library only; run as `python -I -S shim.py`.

Blocked until it is told to go; writes `begin` durably before exec and `exit` durably before it
leaves; enforces the lease, the timeout and stop orders by itself, with nobody else alive.

Usage: shim.py DIRECTORY FD
  DIRECTORY: the attempt's folder in the spool, with `launch.json`.
  FD: pipe that brings the 32-byte nonce and then a JSON object of secret environment; its end
  without a nonce means "never".
"""

import ctypes
import errno
import json
import os
import resource
import select
import signal
import sys
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` costs milliseconds at every start
    from typing import Any

EXIT_NEVER = 75
EXIT_WRONG_NONCE = 76
NONCE_BYTES = 32
POLL_S = 0.25
KILL_WITHIN_S = 10.0
SETTLE_S = 0.02
CHUNK = 65536

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


def prctl(option: int, value: int) -> None:
    """Change a property of this process.

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def boottime_ns() -> int:
    """Runs on while the machine sleeps, unlike CLOCK_MONOTONIC."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Identity of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def start_ticks(pid: int) -> "int | None":
    """Start time of a process, None if it is gone: tells a reused pid from the first owner."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[19])


def durable(directory: str, name: str, record: "dict[str, Any]") -> None:
    """Write once, durably: temporary file, fsync, link (never over an existing one), fsync dir."""
    body = json.dumps(record, separators=(",", ":")).encode()
    body = json.dumps({"crc": zlib.crc32(body), "body": record}, separators=(",", ":")).encode()
    path = os.path.join(directory, name)
    temporary = f"{path}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.link(temporary, path)
    os.unlink(temporary)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Log:
    """Head and tail of what the payload prints; counts what falls between.

    The tail is a ring in a file of its own, so that memory stays flat.
    """

    def __init__(self, path: str, cap: int) -> None:
        self.path = path
        self.head_left = cap // 2
        self.ring_size = cap - cap // 2
        self.seen = 0
        self.ring_seen = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self.fd = os.open(path, flags, 0o600)
        self.ring: int | None = None

    def write(self, data: bytes) -> None:
        """Take what the payload printed."""
        self.seen += len(data)
        if self.head_left:
            part = data[: self.head_left]
            self.head_left -= len(part)
            write_all(self.fd, part)
            data = data[len(part) :]
        if data:
            self._write_ring(data)

    def _write_ring(self, data: bytes) -> None:
        if self.ring is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self.ring = os.open(f"{self.path}.ring", flags, 0o600)
        self.ring_seen += len(data)
        skipped = max(0, len(data) - self.ring_size)
        position = (self.ring_seen - len(data) + skipped) % self.ring_size
        data = data[skipped:]
        first = data[: self.ring_size - position]
        os.pwrite(self.ring, first, position)
        if len(first) < len(data):
            os.pwrite(self.ring, data[len(first) :], 0)

    def close(self) -> "tuple[int, int]":
        """Join head and tail; returns (bytes seen, bytes kept)."""
        dropped = max(0, self.ring_seen - self.ring_size)
        if self.ring is not None:
            if dropped:
                write_all(self.fd, f"\n[headbay: {dropped} bytes dropped here]\n".encode())
            end = self.ring_seen % self.ring_size
            spans = (
                [(end, self.ring_size), (0, end)]
                if self.ring_seen > self.ring_size
                else [(0, self.ring_seen)]
            )
            for position, stop in spans:
                at = position
                while at < stop:
                    part = os.pread(self.ring, min(CHUNK, stop - at), at)
                    write_all(self.fd, part)
                    at += len(part)
            os.close(self.ring)
            os.unlink(f"{self.path}.ring")
        os.fdatasync(self.fd)
        os.close(self.fd)
        return self.seen, self.seen - dropped


def write_all(fd: int, data: bytes) -> None:
    """write(2) until all is written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Family:
    """Everything that the payload started: its tree below this subreaper, and its marker."""

    def __init__(self, marker: str) -> None:
        self.marker = f"HEADBAY_ATTEMPT={marker}\0".encode()
        self.me = os.getpid()

    def members(self) -> "list[tuple[int, int]]":
        """Pairs (pid, start ticks) of live members, zombies left out."""
        parents = {}
        states = {}
        ticks = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            pid = int(name)
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            states[pid], parents[pid], ticks[pid] = fields[0], int(fields[1]), int(fields[19])
        children: dict[int, list[int]] = {}
        for pid, parent in parents.items():
            children.setdefault(parent, []).append(pid)
        found = set()
        waiting = [self.me]
        while waiting:
            for pid in children.get(waiting.pop(), ()):
                if pid not in found:
                    found.add(pid)
                    waiting.append(pid)
        for pid in parents:
            if pid not in found and pid != self.me and self._marked(pid):
                found.add(pid)
        return [(pid, ticks[pid]) for pid in found if states[pid] not in "ZX"]

    def _marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return self.marker in b"\0" + file.read()
        except OSError:
            return False

    def marked(self) -> "list[tuple[int, int]]":
        """Pairs (pid, start ticks) of live processes that carry the marker, wherever they are."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and self._marked(int(name)):
                ticks = start_ticks(int(name))
                if ticks is not None:
                    found.append((int(name), ticks))
        return found

    def signal(self, number: int) -> int:
        """Signal every member; how many there were."""
        return self._signal(self.members(), number)

    def signal_marked(self, number: int) -> int:
        """Signal every process that carries the marker; how many there were."""
        return self._signal(self.marked(), number)

    @staticmethod
    def _signal(members: "list[tuple[int, int]]", number: int) -> int:
        """Through pidfds, each checked not to be a reused pid."""
        for pid, ticks in members:
            try:
                fd = os.pidfd_open(pid)
            except OSError:
                continue
            try:
                if start_ticks(pid) == ticks:
                    signal.pidfd_send_signal(fd, number)
            except OSError:
                continue
            finally:
                os.close(fd)
        return len(members)


class Shim:
    """One payload from go to exit."""

    def __init__(self, directory: str, launch: "dict[str, Any]") -> None:
        self.directory = directory
        self.launch = launch
        self.family = Family(launch["unit"])
        self.log = Log(os.path.join(directory, "out.log"), launch["log_cap_bytes"])
        self.ladder: list[dict[str, Any]] = []
        self.causes: set[str] = set()
        self.main: int | None = None
        self.main_status: int | None = None
        self.kill_at: int | None = None
        self.killing_since: int | None = None
        self.leftovers = False
        self.incomplete = False
        self.started_ns = 0
        self.started_ms = 0
        self.ended_ns: int | None = None
        self.out = -1

    # -- start ---------------------------------------------------------------------------------

    def spawn(self, secrets: "dict[str, str]") -> "dict[str, Any] | None":
        """Fork the payload; it waits until `begin` is durable."""
        out_read, out_write = os.pipe()
        gate_read, gate_write = os.pipe()
        error_read, error_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._child(secrets, out_write, gate_read, error_write)
        for fd in (out_write, gate_read, error_write):
            os.close(fd)
        self.main = pid
        self.started_ns = boottime_ns()
        self.started_ms = now_ms()
        durable(
            self.directory,
            "begin.json",
            {
                "unit": self.launch["unit"],
                "fence": self.launch["fence"],
                "boot_id": boot_id(),
                "shim": [os.getpid(), start_ticks(os.getpid())],
                "main": [pid, start_ticks(pid)],
                "started_ms": self.started_ms,
                "boottime_ns": self.started_ns,
            },
        )
        os.write(gate_write, b"g")
        os.close(gate_write)
        failure = b""
        while part := os.read(error_read, 4096):
            failure += part
        os.close(error_read)
        os.set_blocking(out_read, False)
        self.out = out_read
        return json.loads(failure) if failure else None

    def _child(
        self, secrets: "dict[str, str]", out_write: int, gate_read: int, error_write: int
    ) -> None:
        """Becomes the payload; never returns."""
        where = "start"
        try:
            if os.read(gate_read, 1) != b"g":
                os._exit(EXIT_NEVER)
            for number in range(1, signal.NSIG):
                if number not in (signal.SIGKILL, signal.SIGSTOP):
                    try:
                        signal.signal(number, signal.SIG_DFL)
                    except (OSError, ValueError):
                        continue
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.setsid()
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(out_write, 1)
            os.dup2(out_write, 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.umask(0o022)
            prctl(PR_SET_NO_NEW_PRIVS, 1)
            where = f"chdir to {self.launch['cwd']}"
            os.chdir(self.launch["cwd"])
            keep = error_write
            os.closerange(3, keep)
            os.closerange(keep + 1, 65536)
            os.set_inheritable(keep, False)
            argv = self.launch["argv"]
            where = f"execute {argv[0]}"
            env = {**self.launch["env"], **secrets}
            os.execvpe(argv[0], argv, env)  # noqa: S606 - what the shim is for
        except OSError as error:
            record = {"errno": error.errno, "where": where, "why": os.strerror(error.errno or 0)}
            os.write(error_write, json.dumps(record).encode())
        except BaseException as error:  # noqa: BLE001 - told to the parent, then _exit
            os.write(
                error_write, json.dumps({"errno": 0, "where": where, "why": str(error)}).encode()
            )
        os._exit(127)

    # -- supervision ---------------------------------------------------------------------------

    def run(self) -> None:
        """Supervise until the payload and all it started are gone."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        poll = select.poll()
        poll.register(wake_read, select.POLLIN)
        poll.register(self.out, select.POLLIN)
        out_open = True
        while True:
            for fd, _ in poll.poll(self._timeout_ms()):
                if fd == wake_read:
                    drain(wake_read)
                elif not self._pump():
                    poll.unregister(self.out)
                    out_open = False
            self._reap()
            if self.main_status is not None:
                break
            self._look()
        self._end_leftovers()
        if out_open:
            self._pump(everything=True)

    def _timeout_ms(self) -> int:
        wait = POLL_S
        if self.kill_at is not None:
            wait = min(wait, max(0.0, (self.kill_at - boottime_ns()) / 1e9))
        return max(1, int(wait * 1000))

    def _pump(self, *, everything: bool = False) -> bool:
        """Take what the payload printed; False at the end of the pipe.

        Bounded per call, so that a flood cannot delay a kill.
        """
        for _ in range(1_000_000 if everything else 64):
            try:
                data = os.read(self.out, CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.log.write(data)
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main:
                self.main_status = status
                self.ended_ns = boottime_ns()

    def _look(self) -> None:
        """Deadlines and orders: the lease first, it leaves no grace."""
        now = boottime_ns()
        lease = self._read("lease")
        if lease and lease.get("fence") == self.launch["fence"] and now >= lease["deadline_ns"]:
            self._cause("lease_lost", now, 0)
        timeout_ms = self.launch["timeout_ms"]
        if timeout_ms is not None and now - self.started_ns >= timeout_ms * 1_000_000:
            self._cause("timed_out", now, self.launch["grace_ms"])
        stop = self._read("stop")
        if stop and stop.get("fence") == self.launch["fence"]:
            grace = 0 if stop["reason"] == "lease_lost" else self.launch["grace_ms"]
            self._cause(stop["reason"], now, grace)
        if self.kill_at is not None and now >= self.kill_at:
            self._kill(now)

    def _cause(self, cause: str, now: int, grace_ms: int) -> None:
        """Begin to end the payload.

        The first request fixes the deadline; only a lost lease shortens it, nothing extends it.
        """
        if cause in self.causes:
            return
        deadline = now + grace_ms * 1_000_000
        first = not self.causes
        self.causes.add(cause)
        self.ladder.append({"at_ns": now, "cause": cause, "step": "TERM" if grace_ms else "KILL"})
        if first and grace_ms:
            self.family.signal(signal.SIGTERM)
            self.family.signal(signal.SIGCONT)
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)

    def _kill(self, now: int) -> None:
        if self.killing_since is None:
            self.killing_since = now
            self.ladder.append({"at_ns": now, "step": "KILL"})
        if self.family.signal(signal.SIGKILL) > 64:
            # A fork bomb: stop everyone first, so that the next round meets them all.
            self.family.signal(signal.SIGSTOP)
            self.family.signal(signal.SIGKILL)
        if now - self.killing_since > KILL_WITHIN_S * 1e9:
            self.incomplete = True
            self.main_status = self.main_status if self.main_status is not None else -1
        self.kill_at = now + int(SETTLE_S * 1e9)

    def _end_leftovers(self) -> None:
        """After the main process: nothing of its family outlives it."""
        deadline = time.monotonic() + KILL_WITHIN_S
        while self.family.members():
            self.leftovers = not self.causes
            if self.family.signal(signal.SIGKILL) > 64:
                self.family.signal(signal.SIGSTOP)
                self.family.signal(signal.SIGKILL)
            self._pump()
            self._reap()
            if time.monotonic() > deadline:
                self.incomplete = True
                return
            select.select([], [], [], SETTLE_S)
        self._reap()

    def _read(self, name: str) -> "dict[str, Any] | None":
        try:
            with open(os.path.join(self.directory, name), "rb") as file:
                record: dict[str, Any] = json.loads(file.read())["body"]
        except FileNotFoundError:
            return None
        return record

    # -- end -----------------------------------------------------------------------------------

    def finish(self, failure: "dict[str, Any] | None") -> None:
        """Write the exit record; it is durable before this process leaves."""
        seen, kept = self.log.close()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = self.main_status
        ended = boottime_ns() if self.ended_ns is None else self.ended_ns
        exit_code = number = None
        if status is not None and status >= 0:
            exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        durable(
            self.directory,
            "exit.json",
            {
                "unit": self.launch["unit"],
                "fence": self.launch["fence"],
                "boot_id": boot_id(),
                "raw_status": status,
                "exit_code": exit_code,
                "signal": number,
                "exec_failure": failure,
                "causes": sorted(self.causes),
                "ladder": self.ladder,
                "leftovers_killed": self.leftovers,
                "kill_incomplete": self.incomplete,
                "started_ms": self.started_ms,
                "ended_ms": self.started_ms + (ended - self.started_ns) // 1_000_000,
                "wall_ms": (ended - self.started_ns) // 1_000_000,
                "boottime_ns": ended,
                "cpu_user_us": int(usage.ru_utime * 1_000_000),
                "cpu_system_us": int(usage.ru_stime * 1_000_000),
                "memory_peak_bytes": usage.ru_maxrss * 1024,
                "io_read_bytes": usage.ru_inblock * 512,
                "io_write_bytes": usage.ru_oublock * 512,
                "log_seen_bytes": seen,
                "log_kept_bytes": kept,
            },
        )


def drain(fd: int) -> None:
    """Read and forget."""
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        return


def main() -> int:
    """Entry point."""
    directory, gate = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(gate, False)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    with open(os.path.join(directory, "launch.json"), "rb") as file:
        launch = json.loads(file.read())["body"]
    told = b""
    while part := os.read(gate, CHUNK):
        told += part
    os.close(gate)
    if not told:
        return EXIT_NEVER
    if told[:NONCE_BYTES] != bytes.fromhex(launch["nonce"]):
        return EXIT_WRONG_NONCE
    secrets = json.loads(told[NONCE_BYTES:])
    del told
    shim = Shim(directory, launch)
    failure = shim.spawn(secrets)
    del secrets
    shim.run()
    shim.finish(failure)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.stderr.write(f"shim: {errno.errorcode.get(error.errno or 0)}: {error}\n")
        raise
