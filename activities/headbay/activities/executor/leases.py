"""The second layer of leases: one transient service a lease class, fed by a file.

Scopes are bound to the service of their class. Its deadline is a little later than the latest one
that any shim of the class obeys, so that systemd acts only where shims did not.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from headbay.activities.executor.helper import Helper
from headbay.activities.executor.port import LaunchFailedError
from headbay.activities.executor.records import overwrite
from headbay.activities.executor.scope import lease_unit
from headbay.domain.lease import deadline_ns, margin_ms

__all__ = ["LeaseUnits"]

PROGRAM = Path(__file__).parent / "lease_process.py"
WATCHDOG_US = 5_000_000
START_US = 20_000_000
NS_PER_MS = 1_000_000


class LeaseUnits:
    """Those of one node.

    Args:
        node: Its name.
        folder: Where the deadlines are written.
        bus: Talks to systemd.
    """

    def __init__(self, node: str, folder: Path, bus: Helper) -> None:
        self._node = node
        self._folder = folder
        self._bus = bus
        self._deadlines: dict[int, int] = {}
        self._up: set[int] = set()
        self._starting = asyncio.Lock()

    def renew(self, lease_ms: int, until_ns: int) -> None:
        """A shim of this class may live until then, by CLOCK_BOOTTIME."""
        later = until_ns + margin_ms(lease_ms) // 2 * NS_PER_MS
        if later > self._deadlines.get(lease_ms, 0):
            self._deadlines[lease_ms] = later
            overwrite(self._folder / str(lease_ms), {"deadline_ns": later})

    def present(self, sent_ns: int) -> None:
        """Every class that was ever used here is good for its TTL from then."""
        for lease_ms in list(self._deadlines):
            self.renew(lease_ms, deadline_ns(sent_ns, lease_ms, margin_ms(lease_ms)))

    async def ensure(self, lease_ms: int) -> None:
        """Let the service of a class be there.

        Raises:
            LaunchFailedError: It could not be started.
        """
        async with self._starting:
            if lease_ms not in self._up:
                await self._start(lease_ms)

    async def _start(self, lease_ms: int) -> None:
        unit = lease_unit(self._node, lease_ms)
        state = await self._state(unit)
        if state != "active":
            answer = await self._bus.ask("start", unit=unit, properties=self._properties(lease_ms))
            if answer["result"] != "done":
                raise LaunchFailedError(f"{unit} could not be started: {answer['result']}")
        self._up.add(lease_ms)

    def doubt(self, lease_ms: int) -> None:
        """Look again next time: a scope that is bound to it was refused."""
        self._up.discard(lease_ms)

    async def _state(self, unit: str) -> str:
        answer = await self._bus.ask(
            "get",
            unit=unit,
            interface="org.freedesktop.systemd1.Unit",
            property="ActiveState",
        )
        return str(answer["value"])

    def _properties(self, lease_ms: int) -> list[list[Any]]:
        argv = [sys.executable, "-I", "-S", str(PROGRAM), str(self._folder / str(lease_ms))]
        return [
            ["Description", "s", f"Headbay lease of {lease_ms} ms on {self._node}"],
            ["Type", "s", "notify"],
            ["NotifyAccess", "s", "main"],
            ["ExecStart", "a(sasb)", [[sys.executable, argv, False]]],
            ["WatchdogUSec", "t", WATCHDOG_US],
            ["TimeoutStartUSec", "t", START_US],
            ["CollectMode", "s", "inactive-or-failed"],
            ["OOMScoreAdjust", "i", -900],
        ]
