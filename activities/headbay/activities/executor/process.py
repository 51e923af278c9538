"""Plain processes under a shim: no cgroup, so resources count for admission only."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headbay.activities.executor.identity import BadUserError, identity_of
from headbay.activities.executor.launcher import Launcher
from headbay.activities.executor.port import (
    Capability,
    ExecutorSettings,
    LaunchFailedError,
    Secrets,
    Started,
)
from headbay.domain.attempt import LaunchSpec
from headbay.domain.outcome import Isolation

__all__ = ["SHIM", "ProcessExecutor"]

HERE = Path(__file__).parent
SHIM = HERE / "shim" / "__main__.py"


class ProcessExecutor:
    """Shims started by a launcher of their own."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._launcher = Launcher()

    async def prove(self) -> Capability:
        """Linux with pidfds and /proc is enough.

        Raises:
            LaunchFailedError: This is not such a machine.
        """
        if sys.platform != "linux" or not os.access("/proc/self/stat", os.R_OK):
            raise LaunchFailedError("the process executor needs Linux with /proc mounted")
        return Capability(
            Isolation.UNENFORCED, ("plain processes: nothing enforces cpu, memory and tasks",)
        )

    def terms(self, spec: LaunchSpec) -> dict[str, Any]:
        """The user of an attempt.

        Raises:
            BadUserError: It may not, or cannot, run as that user here.
        """
        name = spec.user or self._settings.run_as
        if name is None:
            return {}
        user = identity_of(name, allow_root=self._settings.allow_root_user or os.getuid() == 0)
        if user["uid"] == os.getuid():
            return {}
        if os.getuid() != 0:
            raise BadUserError(f"this node runs as {os.getuid()} and cannot become {name!r}")
        return {"user": user}

    def renewed(self, lease_ms: int, deadline_ns: int) -> None:
        """Shims alone enforce leases here."""

    def present(self, sent_ns: int) -> None:
        """Shims alone enforce leases here."""

    async def spawn(self, directory: Path) -> Started:
        """Start a shim that waits."""
        return await self._launcher.spawn(directory)

    async def go(self, started: Started, nonce: str, secrets: Secrets) -> None:
        """Let the shim start its payload."""
        await self._launcher.go(started, nonce, secrets)

    async def drop(self, started: Started) -> None:
        """Let the shim leave."""
        await self._launcher.drop(started)

    async def sweep(self, known: Callable[[str], bool]) -> list[str]:  # noqa: ARG002
        """Nothing but markers in environments tells whose a process is, and the worker looks."""
        return []

    async def close(self) -> None:
        """End the launcher."""
        await self._launcher.close()
