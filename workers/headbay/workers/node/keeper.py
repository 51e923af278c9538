"""Renews the lease of one attempt: a heartbeat by token, and the deadline that its shim obeys.

The deadline is the send time of the last *acknowledged* heartbeat plus TTL minus margin. A
heartbeat that is answered NOT_FOUND means that the attempt was closed without this node: it is
killed at once. Nothing else ends the renewal before the attempt's end was acknowledged.
"""

import asyncio
import random
import signal
from typing import Protocol

import structlog
from temporalio.service import RPCError

from headbay.activities.executor.port import Started
from headbay.activities.executor.shim.kernel import boottime_ns, process_stat, send_signal
from headbay.domain.attempt import LaunchSpec
from headbay.domain.lease import deadline_ns, heartbeat_interval_ms, margin_ms
from headbay.workers.node.spool import Entry, Token
from headbay.workers.node.wire import TokenGoneError, Wire

__all__ = ["Keeper", "Kept"]

log = structlog.get_logger(__name__)

AGAIN_S = 1.0
JITTER = 0.1
"""Renewals come up to a tenth early, so that those of many attempts do not come all at once."""


class Kept(Protocol):
    """What a keeper needs to know of its attempt."""

    entry: Entry
    spec: LaunchSpec
    token: Token
    phase: str
    shim: Started | None

    def renewed(self, deadline_ns: int) -> None:
        """Its lease was renewed until then, by CLOCK_BOOTTIME."""
        ...

    def presence_age_ms(self) -> int:
        """How long ago the node's own presence was last acknowledged."""
        ...

    def lose(self) -> None:
        """Its activity was closed without this node."""
        ...

    def stop(self, reason: str) -> None:
        """End it."""
        ...


class Keeper:
    """The lease of one attempt.

    Attributes:
        deadline_ns: When its shim kills it, by CLOCK_BOOTTIME; None before the first renewal.
        leased: Set once it may be told to go, or once that will never be.
    """

    def __init__(self, attempt: Kept, wire: Wire) -> None:
        self.deadline_ns: int | None = None
        self.leased = asyncio.Event()
        self._attempt = attempt
        self._wire = wire

    async def keep(self) -> None:
        """Renew until this is cancelled, or the attempt's token is gone."""
        attempt = self._attempt
        interval = heartbeat_interval_ms(attempt.spec.lease_ms) / 1_000
        while True:
            pause = interval * (1 - JITTER * random.random())  # noqa: S311 - nobody guesses it
            token = attempt.token
            try:
                await self._renew(token)
            except TokenGoneError:
                if attempt.token == token:
                    log.warning("lease.gone", unit=attempt.entry.unit)
                    attempt.lose()
                    return
                pause = 0.0  # The order was delivered again meanwhile.
            except (RPCError, OSError) as error:
                log.warning("lease.unanswered", unit=attempt.entry.unit, error=str(error))
                pause = min(pause, AGAIN_S)
            await asyncio.sleep(pause)

    async def _renew(self, token: Token) -> None:
        attempt = self._attempt
        sent = boottime_ns()
        pid = attempt.shim.pid if attempt.shim else None
        beat = await self._wire.heartbeat(token.token, {"phase": attempt.phase, "pid": pid})
        ttl = attempt.spec.lease_ms
        if attempt.presence_age_ms() < ttl and self._supervised():
            deadline = deadline_ns(sent, ttl, margin_ms(ttl))
            attempt.entry.set_lease(attempt.spec.fence, deadline)
            attempt.renewed(deadline)
            self.deadline_ns = deadline
            self.leased.set()
        if beat.cancel_requested:
            attempt.stop("cancelled")

    def _supervised(self) -> bool:
        """Whether the shim can obey. A stopped one cannot: it is continued, and not trusted yet."""
        shim = self._attempt.shim
        if shim is None or shim.pid == 0:
            return True
        stat = process_stat(shim.pid)
        if stat is None or stat[0] not in "Tt":
            return True
        log.warning("shim.stopped", unit=self._attempt.entry.unit, pid=shim.pid)
        send_signal(shim.pid, shim.ticks, signal.SIGCONT)
        return False
