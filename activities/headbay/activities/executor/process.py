"""Plain processes under a shim: no cgroup, so resources count for admission only."""

import sys
from collections.abc import Mapping
from pathlib import Path

from headbay.activities.executor.launcher import Launcher
from headbay.activities.executor.port import Capability, LaunchFailedError, Started
from headbay.domain.outcome import Isolation

__all__ = ["SHIM", "ProcessExecutor"]

HERE = Path(__file__).parent
SHIM = HERE / "shim" / "__main__.py"


class ProcessExecutor:
    """Shims started by a launcher of their own."""

    def __init__(self) -> None:
        self._launcher = Launcher(HERE / "launcher_process.py", SHIM)

    def prove(self) -> Capability:
        """Linux with pidfds and /proc is enough.

        Raises:
            LaunchFailedError: This is not such a machine.
        """
        if sys.platform != "linux" or not Path("/proc/self/stat").exists():
            raise LaunchFailedError("the process executor needs Linux with /proc mounted")
        return Capability(
            Isolation.UNENFORCED, ("plain processes: nothing enforces cpu, memory and tasks",)
        )

    async def spawn(self, directory: Path) -> Started:
        """Start a shim that waits."""
        return await self._launcher.spawn(directory)

    async def go(self, started: Started, nonce: str, secrets: Mapping[str, str]) -> None:
        """Let the shim start its payload."""
        await self._launcher.go(started, nonce, secrets)

    async def drop(self, started: Started) -> None:
        """Let the shim leave."""
        await self._launcher.drop(started)

    async def close(self) -> None:
        """End the launcher."""
        await self._launcher.close()
