"""From an order to a running payload, and back: the systemd executor against `systemd-run --scope`.

Runs on a node: as root, with systemd as process 1 and cgroup v2. Both sides start the same payload,
which opens a FIFO; the clock stops when this process sees it opened.
"""

import asyncio
import os
import select
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headbay.activities.executor import ExecutorSettings, load_executor
from headbay.activities.executor.port import Executor, Secrets, Started
from headbay.activities.executor.records import read_record, write_new
from headbay.activities.executor.shim.kernel import boottime_ns, start_ticks
from headbay.domain.attempt import LaunchSpec

__all__ = ["Execution"]

MEMORY = 64 << 20
TASKS = 100
TREE = 50
LEASE_MS = 600_000
RATIO_AT_MOST = 1.5
ACT_WITHIN_S = 60
SPEC = LaunchSpec(
    workload="bench", step="s", attempt=1, fence=1, allocation="a", pool="default", node="bench",
    epoch=1, argv=["true"], resources={"cpu": 1_000, "memory": MEMORY, "tasks": TASKS},
    lease_ms=LEASE_MS,
)  # fmt: skip


@dataclass
class Execution:
    """One series of interleaved pairs.

    Attributes:
        folder: For spools and FIFOs; on a disk.
        parts: Milliseconds by part of Headbay's launch, one value a launch.
    """

    folder: Path
    parts: dict[str, list[float]] = field(default_factory=dict)

    async def measure(self, pairs: int) -> dict[str, Any]:
        """Medians, and the ratio of each pair.

        Returns:
            ``launch_ms``, ``floor_ms``, ``launch_ratio``, ``cancel_ms``, ``shim_rss_bytes``,
            ``shim_pss_bytes``, ``parts_ms``.
        """
        settings = ExecutorSettings(node="bench", folder=self.folder / "executor")
        settings.folder.mkdir(mode=0o700)
        executor = load_executor("systemd", settings)
        await executor.prove()
        launches, floors, ratios = [], [], []
        try:
            await self._launch(executor, "warm")
            for number in range(pairs):
                ours = await self._launch(executor, str(number))
                theirs = await asyncio.to_thread(self._floor)
                launches.append(ours)
                floors.append(theirs)
                ratios.append(ours / theirs)
                print(f"pair {number + 1}: {ours:.0f} ms, {theirs:.0f} ms", file=sys.stderr)
            cancels, rss, pss = [], [], []
            for number in range(max(3, pairs // 3)):
                cancel_ms, memory = await self._cancel(executor, f"tree{number}")
                cancels.append(cancel_ms)
                rss.append(memory["Rss"])
                pss.append(memory["Pss"])
        finally:
            await executor.close()
        return {
            "launch_ms": round(statistics.median(launches), 1),
            "floor_ms": round(statistics.median(floors), 1),
            "launch_ratio": round(statistics.median(ratios), 3),
            "cancel_ms": round(statistics.median(cancels), 1),
            "shim_rss_bytes": int(statistics.median(rss)),
            "shim_pss_bytes": int(statistics.median(pss)),
            "parts_ms": {
                name: round(statistics.median(values[1:]), 1) for name, values in self.parts.items()
            },
            "met": {"launch_ratio": statistics.median(ratios) <= RATIO_AT_MOST},
        }

    async def _start(
        self, executor: Executor, name: str, script: str
    ) -> tuple[Path, Started, float]:
        """Order a payload; its folder, its shim, and the milliseconds until it opened the FIFO."""
        folder = self.folder / name
        folder.mkdir()
        fifo = self._fifo(folder)
        nonce = os.urandom(32).hex()
        terms = executor.terms(SPEC)
        launch = {
            "unit": f"hb.bench.{name}.{boottime_ns()}", "nonce": nonce, "fence": 1,
            "argv": ["/bin/sh", "-c", script.format(fifo=fifo)], "cwd": "/", "env": {},
            "timeout_ms": None, "grace_ms": 1_000, "log_cap_bytes": 1 << 20, **terms,
        }  # fmt: skip
        reader = os.open(fifo, os.O_RDWR)
        executor.renewed(LEASE_MS, deadline := boottime_ns() + LEASE_MS * 1_000_000)
        marks = [time.perf_counter()]
        os.close(write_new(folder / "order.json", {"launch": launch}))
        os.close(write_new(folder / "lease", {"fence": 1, "deadline_ns": deadline}))
        marks.append(time.perf_counter())
        shim = await executor.spawn(folder)
        marks.append(time.perf_counter())
        await executor.go(shim, nonce, Secrets())
        await asyncio.to_thread(_first_byte, reader)
        marks.append(time.perf_counter())
        for part, since, until in zip(("spool", "scope", "exec"), marks, marks[1:], strict=False):
            self.parts.setdefault(part, []).append((until - since) * 1e3)
        return folder, shim, (marks[-1] - marks[0]) * 1e3

    async def _launch(self, executor: Executor, name: str) -> float:
        folder, shim, taken = await self._start(executor, f"launch{name}", "echo > {fifo}")
        await _gone(shim)
        record = read_record(folder / "exit.json")
        if record["exit_code"] != 0:
            raise RuntimeError(f"a payload ended with {record}")
        return taken

    def _floor(self) -> float:
        folder = self.folder / f"floor{time.monotonic_ns()}"
        folder.mkdir()
        fifo = self._fifo(folder)
        reader = os.open(fifo, os.O_RDWR)
        command = ["systemd-run", "--scope", "--quiet", "-p", f"MemoryMax={MEMORY}"]
        command += ["-p", f"TasksMax={TASKS}", "-p", "Delegate=yes", "/bin/sh", "-c"]
        since = time.perf_counter()
        with subprocess.Popen([*command, f"echo > {fifo}"]) as process:
            _first_byte(reader)
            taken = time.perf_counter() - since
            if process.wait() != 0:
                raise RuntimeError(f"systemd-run ended with {process.returncode}")
        return taken * 1e3

    async def _cancel(self, executor: Executor, name: str) -> tuple[float, dict[str, int]]:
        script = f"for i in $(seq {TREE}); do sleep 1000 & done; echo > {{fifo}}; wait"
        folder, shim, _ = await self._start(executor, name, script)
        memory = _memory(shim.pid)
        since = time.perf_counter()
        os.close(write_new(folder / "stop", {"fence": 1, "reason": "cancelled"}))
        os.kill(shim.pid, signal.SIGUSR1)
        await _gone(shim)
        taken = (time.perf_counter() - since) * 1e3
        if "cancelled" not in read_record(folder / "exit.json")["causes"]:
            raise RuntimeError(f"{name} was not cancelled")
        return taken, memory

    @staticmethod
    def _fifo(folder: Path) -> Path:
        fifo = folder / "fifo"
        os.mkfifo(fifo)
        for path, mode in ((fifo, 0o666), (folder, 0o711), (folder.parent, 0o711)):
            path.chmod(mode)
        return fifo


def _first_byte(reader: int) -> None:
    """Until the other side has written; closes the FIFO."""
    try:
        if not select.select([reader], [], [], ACT_WITHIN_S)[0]:
            raise RuntimeError(f"a payload did nothing for {ACT_WITHIN_S} s")
    finally:
        os.close(reader)


async def _gone(shim: Started) -> None:
    while start_ticks(shim.pid) == shim.ticks:  # noqa: ASYNC110 - it is no child of this one
        await asyncio.sleep(0.001)


def _memory(pid: int) -> dict[str, int]:
    """Resident and proportional bytes of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = (line.split(":") for line in lines if line.startswith(("Rss", "Pss:")))
    return {name: int(value.split()[0]) * 1024 for name, value in found}
