"""One real shim, alone: what nobody else is needed for."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headbay.activities.executor.port import Secrets
from headbay.activities.executor.process import SHIM
from headbay.activities.executor.records import read_record, replace, write_new
from headbay.activities.executor.shim.family import Family
from headbay.activities.executor.shim.kernel import boottime_ns

NONCE = "ab" * 32
CAP = 1 << 16
FENCE = 7
HOUR_NS = 3_600_000_000_000


class Supervised:
    """One shim in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        argv: list[str],
        *,
        lease: bool = True,
        file_limit: int | None = None,
        **launch: Any,
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.unit = f"hb.test.{os.getpid()}.{folder.name}.{time.time_ns()}"
        record = {
            "unit": self.unit,
            "fence": FENCE,
            "nonce": NONCE,
            "argv": argv,
            "cwd": str(folder),
            "env": {"PATH": os.environ["PATH"], "HEADBAY_ATTEMPT": self.unit},
            "timeout_ms": None,
            "grace_ms": 500,
            "log_cap_bytes": CAP,
        }
        os.close(write_new(folder / "order.json", {"launch": record | launch}))
        if lease:
            self.lease(HOUR_NS)

        def limit() -> None:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # as the launcher does
            if file_limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

        read, self.gate = os.pipe()
        with (folder / "shim.err").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SHIM), str(folder), str(read)],
                pass_fds=[read],
                start_new_session=True,
                env={"PATH": os.environ["PATH"]},
                stderr=errors,
                preexec_fn=limit,  # noqa: PLW1509 - no threads here
            )
        os.close(read)

    def lease(self, for_ns: int, fence: int = FENCE) -> int:
        """Lease it for so long from now; the deadline."""
        deadline = boottime_ns() + for_ns
        replace(self.folder / "lease", {"fence": fence, "deadline_ns": deadline}, durable=False)
        return deadline

    def go(
        self, nonce: str = NONCE, files: dict[str, bytes] | None = None, **secrets: str
    ) -> "Supervised":
        """Let it start its payload with these secrets, by variable."""
        message = json.dumps(Secrets(secrets, files or {}).message())
        os.write(self.gate, bytes.fromhex(nonce) + message.encode())
        os.close(self.gate)
        return self

    def end(self, seconds: float = 20) -> dict[str, Any]:
        status = self.process.wait(seconds)
        assert status == 0, (status, (self.folder / "shim.err").read_text())
        record: dict[str, Any] = read_record(self.folder / "exit.json")
        return record

    def order(self, name: str, **record: Any) -> None:
        replace(self.folder / name, {"fence": FENCE, **record}, durable=False)
        self.process.send_signal(signal.SIGUSR1)

    def wait_for(self, name: str) -> Path:
        deadline = time.monotonic() + 10
        path = self.folder / name
        while not (path.exists() and path.read_text()):
            assert time.monotonic() < deadline, f"no {name}"
            time.sleep(0.01)
        return path

    def family(self) -> list[int]:
        """Live processes that carry the marker."""
        return [pid for pid, _ in Family(self.unit).members()]

    def ran(self) -> bool:
        """Whether anything of it was ever executed."""
        return any((self.folder / name).exists() for name in ("ran", "begin.json", "exit.json"))

    def clean(self) -> None:
        """Leave nothing running."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        Family(self.unit).end()
