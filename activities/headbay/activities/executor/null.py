"""No process at all: every payload succeeds at once. For benchmarks of everything around it."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headbay.activities.executor.port import Capability, ExecutorSettings, Secrets, Started
from headbay.activities.executor.records import write_new
from headbay.activities.executor.shim.kernel import boot_id
from headbay.domain.attempt import LaunchSpec
from headbay.domain.outcome import Isolation

__all__ = ["NullExecutor"]


class NullExecutor:
    """Replaces only the launcher: spool, token, heartbeat and completion are the real ones."""

    def __init__(self, settings: ExecutorSettings) -> None:  # noqa: ARG002
        self._directories: dict[int, Path] = {}
        self._numbers = 0

    async def prove(self) -> Capability:
        """Nothing to prove."""
        return Capability(Isolation.UNENFORCED, ("null executor: nothing is executed",))

    def terms(self, spec: LaunchSpec) -> dict[str, Any]:  # noqa: ARG002
        """No limits."""
        return {}

    def renewed(self, lease_ms: int, deadline_ns: int) -> None:
        """Nothing runs."""

    def present(self, sent_ns: int) -> None:
        """Nothing runs."""

    async def spawn(self, directory: Path) -> Started:
        """Remember the attempt; ``ticks`` numbers it."""
        self._numbers += 1
        self._directories[self._numbers] = directory
        return Started(0, self._numbers)

    async def go(self, started: Started, nonce: str, secrets: Secrets) -> None:  # noqa: ARG002
        """Write the record that a payload which ends at once would leave.

        Not synced: a shim syncs to prove what its process did, and there is none.
        """
        directory = self._directories.pop(started.ticks)
        now = time.time_ns() // 1_000_000
        fd = write_new(
            directory / "exit.json",
            {
                "boot_id": boot_id(),
                "raw_status": 0,
                "exit_code": 0,
                "signal": None,
                "exec_failure": None,
                "limit_failure": None,
                "causes": [],
                "ladder": [],
                "leftovers_killed": False,
                "kill_incomplete": False,
                "started_ms": now,
                "ended_ms": now,
                "wall_ms": 0,
                "log_seen_bytes": 0,
                "log_kept_bytes": 0,
            },
        )
        os.close(fd)

    async def drop(self, started: Started) -> None:
        """Forget the attempt."""
        self._directories.pop(started.ticks, None)

    async def sweep(self, known: Callable[[str], bool]) -> list[str]:  # noqa: ARG002
        """Nothing runs."""
        return []

    async def close(self) -> None:
        """Nothing to let go of."""
