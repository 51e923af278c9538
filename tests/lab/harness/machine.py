"""One machine: boot it, run commands in it, cut it off, freeze it, take its power away."""

import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .agent import PORT
from .image import Image
from .network import CLUSTER, CONTROL, Network

__all__ = ["DISK", "Done", "Machine"]

DISK = Path("/var/lib/headbay")
"""Where a machine's own disk is: ext4, which keeps under power loss what was synced."""
BOOT_S = 120.0
DISK_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended: exit status (-1: not at all), standard output and error."""

    status: int
    out: str
    err: str


class Machine:
    """A kernel in a process of this test's.

    Attributes:
        name: Its host name.
        number: Of its addresses.
        root: Its root file system, seen from the host. What it wrote may be in its own cache yet.
    """

    def __init__(self, number: int, image: Image, folder: Path, network: Network) -> None:
        self.number = number
        self.name = f"n{number}"
        self.root = folder / f"{self.name}-root"
        self._image = image
        self._folder = folder
        self._network = network
        self._disk = folder / f"{self.name}.ext4"
        self._console = folder / f"{self.name}.console"
        self._process: subprocess.Popen[bytes] | None = None
        self._boots = 0
        self.records = folder / f"{self.name}-records"

    def prepare(self, mounts: dict[Path, Path]) -> None:
        """Make its root and its disk; ``mounts`` says which folder of the host appears where."""
        self._image.copy(self.root)
        mounts = mounts | {self.records: Path("/records")}
        shutil.copy(Path(__file__).parent / "ticker.py", self.root / "lab/ticker.py")
        self.records.mkdir(exist_ok=True)
        self.records.chmod(0o1777)
        (self.root / "etc/hostname").write_text(self.name + "\n")
        (self.root / "etc/machine-id").write_text(secrets.token_hex(16) + "\n")
        lines = [
            "exec >/lab/setup.log 2>&1",
            "set -ex",
            "ip link set lo up",
            f"ip addr add {CLUSTER}.{self.number}/24 dev vec0; ip link set vec0 up",
            f"ip addr add {CONTROL}.{self.number}/24 dev vec1; ip link set vec1 up",
        ]
        for place in (*mounts.values(), DISK):
            (self.root / place.relative_to("/")).mkdir(parents=True, exist_ok=True)
        # Below /tmp a place is cleared away at every boot.
        lines += [
            f"mkdir -p {here}; mount -t hostfs -o {host} none {here}"
            for host, here in mounts.items()
        ]
        lines.append(f"mount -t ext4 /dev/ubda {DISK}")
        (self.root / "lab/setup.sh").write_text("\n".join(lines) + "\n")
        with self._disk.open("wb") as disk:
            disk.truncate(DISK_BYTES)
        subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", str(self._disk)], check=True
        )

    def boot(self, memory: str = "1500M") -> None:
        """Power on; `wait_ready` waits for it."""
        if self._process is not None and self._process.poll() is None:
            raise AssertionError(f"{self.name} is on already")
        cluster, control = self._network.plug(self.number)
        self._boots += 1
        uml = self._folder / "uml"
        uml.mkdir(exist_ok=True)
        command = [
            "setpriv", "--pdeathsig", "KILL",  # no machine outlives a test that was killed
            "linux.uml", f"mem={memory}", "root=/dev/root", "rootfstype=hostfs",
            f"rootflags={self.root}", "rw", "con=null", "con0=fd:0,fd:1",
            f"umid={self.name}-{self._boots}", f"uml_dir={uml}", f"ubd0={self._disk}",
            "init=/lib/systemd/systemd", "systemd.unified_cgroup_hierarchy=1",
            "systemd.show_status=0", "quiet",
            f"vec0:transport=tap,ifname={cluster},depth=64",
            f"vec1:transport=tap,ifname={control},depth=64",
        ]  # fmt: skip
        with self._console.open("ab") as console:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=os.environ | {"TMPDIR": "/dev/shm"},
                start_new_session=True,
            )

    def wait_ready(self, seconds: float = BOOT_S) -> None:
        """Until it runs commands.

        Raises:
            AssertionError: It does not, with the end of its console.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.run("true", seconds=5)
            except OSError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    console = self._console.read_text(errors="replace")[-2_000:]
                    raise AssertionError(f"{self.name} did not boot: {error}\n{console}") from error
                time.sleep(0.1)
            else:
                return

    def power_off(self) -> None:
        """As if its plug were pulled: nothing that it had not synced remains."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)

    @property
    def is_on(self) -> bool:
        """Whether its kernel runs, be it frozen."""
        return self._process is not None and self._process.poll() is None

    def freeze(self) -> None:
        """Stop its kernel: neither clocks nor processes go on in it."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def cut(self) -> None:
        """Off the cluster's network; commands still reach it."""
        self._network.cut(self.number)

    def heal(self) -> None:
        """On the cluster's network again."""
        self._network.heal(self.number)

    def run(self, command: str | list[str], *, seconds: float = 60.0, stdin: str = "") -> Done:
        """Run a command (a string: by sh) as root.

        Raises:
            OSError: The machine does not answer.
        """
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        asked = {"argv": argv, "timeout": seconds, "stdin": stdin}
        return Done(**self._ask(asked, seconds + 5))

    def check(self, command: str | list[str], *, seconds: float = 60.0, stdin: str = "") -> str:
        """Standard output of a command that must end well."""
        done = self.run(command, seconds=seconds, stdin=stdin)
        if done.status:
            shown = command if isinstance(command, str) else shlex.join(command)
            raise AssertionError(f"{self.name}: {shown}: {done.status}\n{done.out}\n{done.err}")
        return done.out

    def read(self, path: Path | str) -> str:
        """A file's text, as the machine sees it."""
        return self.check(["cat", str(path)])

    def write(self, path: Path | str, text: str, mode: str = "0644") -> None:
        """Write a file, as the machine's root."""
        place = shlex.quote(str(path))
        self.check(
            f"mkdir -p $(dirname {place}) && cat > {place} && chmod {mode} {place}", stdin=text
        )

    def wait_until(self, command: str, seconds: float = 30.0) -> str:
        """Output of a command, once it succeeds.

        Raises:
            AssertionError: It did not within ``seconds``.
        """

        def tried() -> str | None:
            done = self.run(command)
            return None if done.status else done.out or " "

        return wait_for(tried, seconds, f"{self.name}: {command}")

    def boot_id(self) -> str:
        """The kernel's id of this boot."""
        return self.read("/proc/sys/kernel/random/boot_id").strip()

    def clock_offset_ns(self) -> int:
        """How far its clock is ahead of the host's: from the fastest of several questions."""
        samples = []
        for _ in range(5):
            before = time.time_ns()
            theirs = self._ask({}, 5)["time"]
            after = time.time_ns()
            samples.append((after - before, theirs - (before + after) // 2))
        return min(samples)[1]

    def _ask(self, asked: dict[str, Any], seconds: float) -> Any:
        with socket.create_connection((f"{CONTROL}.{self.number}", PORT), timeout=seconds) as peer:
            peer.sendall(json.dumps(asked).encode() + b"\n")
            with peer.makefile("rb") as answers:
                line = answers.readline()
        if not line:
            raise ConnectionError(f"{self.name} closed the connection without an answer")
        return json.loads(line)


def wait_for(holds: Callable[[], str | None], seconds: float, what: str) -> str:
    """The first true value of ``holds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := holds():
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")
