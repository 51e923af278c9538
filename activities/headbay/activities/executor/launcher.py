"""The node worker's end of the launcher, which forks shims.

Every shim that a launcher had not told to go when it died sees the end of its pipe and leaves, so
what was asked of it may be asked again.
"""

import sys
from pathlib import Path

from headbay.activities.executor.helper import ANSWER_WITHIN_S, Helper
from headbay.activities.executor.port import LaunchFailedError, Secrets, Started

__all__ = ["PROGRAM", "Launcher"]

PROGRAM = Path(__file__).parent / "launcher_process.py"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


class Launcher:
    """One launcher process at a time.

    Args:
        program: The launcher's program.
        answer_within_s: How long it may take to answer before it is replaced.
    """

    def __init__(
        self, program: Path = PROGRAM, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._helper = Helper(
            "launcher",
            [sys.executable, "-I", "-S", str(program)],
            environment=ENVIRONMENT,
            answer_within_s=answer_within_s,
        )

    async def spawn(self, directory: Path) -> Started:
        """Start a shim that waits to be told to go.

        Raises:
            LaunchFailedError: It could not be started, or the launcher died meanwhile.
        """
        answer = await self._helper.ask("spawn", directory=str(directory))
        if answer["ticks"] is None:
            raise LaunchFailedError("the supervisor died as soon as it was started")
        return Started(answer["pid"], answer["ticks"])

    async def go(self, shim: Started, nonce: str, secrets: Secrets) -> None:
        """Let a shim start its payload.

        Raises:
            LaunchFailedError: It is not known whether the shim heard it: look for its `begin`.
        """
        await self._helper.ask("go", pid=shim.pid, nonce=nonce, secrets=secrets.message())

    async def drop(self, shim: Started) -> None:
        """Let a shim leave without starting anything."""
        await self._helper.ask("drop", pid=shim.pid)

    async def close(self) -> None:
        """End the launcher; running payloads go on."""
        await self._helper.close()
