"""What a node worker needs of an executor; found through the entry points `headbay.executors`.

An executor starts payloads and says what it can promise about limits. Everything else (spool,
token, lease, completion) is the node worker's, the same for all of them.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol

from headbay.domain.attempt import LaunchSpec
from headbay.domain.errors import HeadbayError
from headbay.domain.outcome import Isolation

__all__ = [
    "AUTO",
    "Capability",
    "Executor",
    "ExecutorSettings",
    "LaunchFailedError",
    "Secrets",
    "Started",
    "load_executor",
    "prove_executor",
]

AUTO = "auto"
STRONGEST_FIRST = ("systemd", "systemd-user", "process")


class LaunchFailedError(HeadbayError):
    """A payload could not be started, or nobody knows whether it was."""

    code: ClassVar[str] = "LAUNCH_FAILED"


@dataclass(frozen=True, slots=True)
class Capability:
    """What an executor has proven that it can do here.

    Attributes:
        isolation: What it promises about limits.
        reasons: Why it cannot promise more, for people.
    """

    isolation: Isolation
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """What the node's operator says about execution.

    Attributes:
        node: The node's name.
        folder: Where the executor may keep files of its own.
        run_as: User of steps that name none; None for the worker's own.
        allow_root_user: Whether a step may run as root.
    """

    node: str
    folder: Path
    run_as: str | None = None
    allow_root_user: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """A supervisor that waits to be told to go.

    Attributes:
        pid: Its process; 0 if the executor has none.
        ticks: Its start time, to tell a reused pid.
    """

    pid: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Secrets:
    """Values that one payload is given; they go through pipes alone, and no message shows them.

    Attributes:
        env: Variable -> value.
        files: Variable -> what the file that it names shall hold.
    """

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def message(self) -> dict[str, dict[str, str]]:
        """As a shim reads them."""
        files = {name: base64.b64encode(value).decode() for name, value in self.files.items()}
        return {"env": dict(self.env), "files": files}


class Executor(Protocol):
    """Starts supervisors in two phases, so that nothing runs before its lease is acknowledged."""

    async def prove(self) -> Capability:
        """Find out what can be promised on this machine; raises HeadbayError if nothing can."""
        ...

    def terms(self, spec: LaunchSpec) -> dict[str, Any]:
        """Limits and user of an attempt, for its order; raises HeadbayError if it has none."""
        ...

    def renewed(self, lease_ms: int, deadline_ns: int) -> None:
        """Some lease of that class is good until then, by CLOCK_BOOTTIME."""
        ...

    def present(self, sent_ns: int) -> None:
        """The node's own presence, sent then, was acknowledged: idle lease classes stay good."""
        ...

    async def spawn(self, directory: Path) -> Started:
        """Start a supervisor for the attempt in ``directory``; it waits for `go`."""
        ...

    async def go(self, started: Started, nonce: str, secrets: Secrets) -> None:
        """Let it run its payload."""
        ...

    async def drop(self, started: Started) -> None:
        """Let it leave without running anything."""
        ...

    async def sweep(self, known: Callable[[str], bool]) -> list[str]:
        """End what this executor has started and nobody knows; the names of those attempts."""
        ...

    async def close(self) -> None:
        """Let go of everything; running payloads go on."""
        ...


def load_executor(name: str, settings: ExecutorSettings) -> Executor:
    """The executor of that entry-point name.

    Raises:
        HeadbayError: There is none.
    """
    found = {entry.name: entry for entry in entry_points(group="headbay.executors")}
    if name not in found:
        raise HeadbayError(f"no executor {name!r}; there are: {', '.join(sorted(found))}")
    made: Executor = found[name].load()(settings)
    return made


async def prove_executor(
    name: str, settings: ExecutorSettings
) -> tuple[str, Executor, Capability, dict[str, str]]:
    """The executor of that name, proven; for ``auto`` the strongest that proves itself.

    Returns:
        Its name, itself, what it has proven, and why each stronger one was not taken.

    Raises:
        HeadbayError: It could not prove itself.
    """
    refused: dict[str, str] = {}
    weaker = list(STRONGEST_FIRST) if name == AUTO else [name]
    while True:
        tried = weaker.pop(0)
        executor = load_executor(tried, settings)
        try:
            return tried, executor, await executor.prove(), refused
        except (HeadbayError, OSError) as error:
            if not weaker:
                raise
            refused[tried] = str(error)
            await executor.close()
