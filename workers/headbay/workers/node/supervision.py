"""One attempt on this node: launch, lease, end, acknowledged completion.

Lease: the shim's deadline is the send time of the last *acknowledged* heartbeat plus TTL minus
margin. A heartbeat that is answered NOT_FOUND means that the attempt was closed without us: its
process is killed at once, and the pool and the workload are told what became of it.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any, Protocol

import structlog
from temporalio.service import RPCError

from headbay.activities.executor.port import Executor, LaunchFailedError, Started
from headbay.activities.executor.shim.family import Family
from headbay.activities.executor.shim.kernel import boot_id, boottime_ns, start_ticks
from headbay.domain.attempt import AttemptResult, LaunchSpec
from headbay.domain.exchange import Grant
from headbay.domain.lease import deadline_ns, heartbeat_interval_ms, margin_ms
from headbay.domain.outcome import Isolation, Outcome
from headbay.workers.node.results import from_exit, without_exit
from headbay.workers.node.spool import Entry, Spool, Token
from headbay.workers.node.wire import TokenGoneError, Wire
from headbay.workers.node.workspace import Kept, PreparationError, Workspace

__all__ = ["Attempt", "Surroundings"]

log = structlog.get_logger(__name__)

LAUNCH_TRIES = 3
BEGIN_WITHIN_S = 10.0
POLL_S = 0.02
LONGEST_POLL_S = 0.5


class Surroundings(Protocol):
    """What an attempt needs to know of its node."""

    spool: Spool
    wire: Wire
    executor: Executor
    isolation: Isolation

    def presence_age_ms(self) -> int:
        """How long ago the node's own presence was last acknowledged."""
        ...

    def workspace(self, spec: LaunchSpec, unit: str) -> Workspace:
        """An attempt's surroundings."""
        ...

    def secrets(self, spec: LaunchSpec) -> dict[str, str]:
        """Values of its secrets."""
        ...


class Attempt:
    """One entry of the spool, from its order to the acknowledgement of its end."""

    def __init__(self, entry: Entry, spec: LaunchSpec, token: Token, node: Surroundings) -> None:
        self.entry = entry
        self.spec = spec
        self.token = token
        self._node = node
        self._workspace = node.workspace(spec, entry.unit)
        self._shim: Started | None = None
        self._phase = "launching"
        self._lost = False
        self._stop_reason: str | None = None
        self._leased = asyncio.Event()

    # -- from outside --------------------------------------------------------------------------

    def grant(self) -> Grant:
        """The allocation that it runs under."""
        spec = self.spec
        return Grant(
            allocation=spec.allocation,
            workload=spec.workload,
            run=self.token.run,
            step=spec.step,
            attempt=spec.attempt,
            node=spec.node,
            epoch=spec.epoch,
            fence=spec.fence,
            resources=spec.resources,
            lease_ms=spec.lease_ms,
            grace_ms=spec.grace_ms,
        )

    @property
    def live(self) -> bool:
        """Whether its process is not proven gone; what is gone carries no resources any more."""
        return self._phase != "ended"

    def replace_token(self, token: Token) -> None:
        """The order was delivered again: heartbeats and completion go to the new token."""
        self.token = token
        self.entry.set_token(token)

    def stop(self, reason: str) -> None:
        """End it: cancelled, preempted or lease_lost; the first reason stays, but for the last."""
        if self._stop_reason is None or reason == "lease_lost":
            self._stop_reason = reason
        self.entry.set_stop(self.spec.fence, reason)
        self._poke()

    def _poke(self) -> None:
        """Let the shim look at its orders now."""
        shim = self._shim
        if shim is None or shim.pid == 0:
            return
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(shim.pid)
            try:
                if start_ticks(shim.pid) == shim.ticks:
                    signal.pidfd_send_signal(fd, signal.SIGUSR1)
            finally:
                os.close(fd)

    # -- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Launch it, and see it through."""
        keeper = asyncio.create_task(self._keep())
        try:
            result = await self._launch()
            if result is None:
                result = await self._await_end()
            await self._close(result)
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def adopt(self) -> None:
        """Take over after a restart of the worker."""
        keeper = asyncio.create_task(self._keep())
        try:
            result = await self._adopted()
            await self._close(result)
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _launch(self) -> AttemptResult | None:
        """Prepare, spawn, go; a result if it ended before it began.

        Nothing is told to go before the first heartbeat was acknowledged.
        """
        spec = self.spec
        try:
            secrets = self._node.secrets(spec)
            nonce = await asyncio.to_thread(self._prepare)
        except PreparationError as error:
            return self._no_exit(Outcome.EXEC_FAILED, str(error))
        await self._leased.wait()
        why = "the launcher failed"
        for _ in range(LAUNCH_TRIES):
            if self._lost or self._stop_reason is not None:
                break
            try:
                self._shim = await self._node.executor.spawn(self.entry.folder)
                self.entry.replace("shim", [self._shim.pid, self._shim.ticks])
                self._phase = "running"
                await self._node.executor.go(self._shim, nonce, secrets)
            except LaunchFailedError as error:
                why = str(error)
                log.warning("launch.failed", unit=self.entry.unit, error=why)
                if self._shim is not None and await self._has_begun(self._shim):
                    return None
            else:
                return None
        if self._stop_reason is not None or self._lost:
            outcome = Outcome.LEASE_LOST if self._lost else _OUTCOMES[self._stop_reason or ""]
            return self._no_exit(outcome, "ended before it was started")
        return self._no_exit(Outcome.NOT_STARTED, why)

    def _prepare(self) -> str:
        """Make the surroundings and write what the shim reads; the nonce that lets it go."""
        spec = self.spec
        launch = {
            "fence": spec.fence,
            "argv": spec.argv,
            "timeout_ms": spec.timeout_ms,
            "grace_ms": spec.grace_ms,
            **self._workspace.prepare(),
        }
        return self._node.spool.prepare(self.entry, launch)

    async def _has_begun(self, shim: Started) -> bool:
        """Whether a shim that may or may not have heard *go* did; waits until one is sure."""
        while start_ticks(shim.pid) == shim.ticks:
            if self.entry.read("begin.json") is not None:
                return True
            await asyncio.sleep(POLL_S)
        return self.entry.read("begin.json") is not None

    async def _await_end(self) -> AttemptResult:
        shim = self._shim
        if shim is not None:
            await self._gone(shim)
        return await self._account()

    async def _gone(self, shim: Started) -> None:
        """Wait until the shim has left. A pidfd first, then its start time: pids are reused."""
        if shim.pid == 0:
            return
        try:
            fd = os.pidfd_open(shim.pid)
        except ProcessLookupError:
            return
        loop = asyncio.get_running_loop()
        left = asyncio.Event()
        try:
            if start_ticks(shim.pid) != shim.ticks:
                return
            loop.add_reader(fd, left.set)
            await left.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    async def _account(self) -> AttemptResult:
        """What the exit record says; without one, what can be proven."""
        record = self.entry.read("exit.json")
        if record is not None:
            return await self._from_exit(record)
        begin = self.entry.read("begin.json")
        if begin is None:
            return self._no_exit(Outcome.NOT_STARTED, "its supervisor left before it began")
        if begin["boot_id"] != boot_id():
            return self._no_exit(Outcome.NODE_LOST, "the machine was rebooted", began=True)
        complete = await asyncio.to_thread(self._sweep)
        return self._no_exit(
            Outcome.SUPERVISOR_LOST,
            "its supervisor died; what was left of it was killed",
            began=True,
            kill_incomplete=not complete,
        )

    def _sweep(self) -> bool:
        """Kill what is left of this attempt; whether all of it is gone."""
        return Family(self.entry.unit).end()

    async def _from_exit(self, record: dict[str, Any]) -> AttemptResult:
        result = from_exit(self.spec, record, self._node.isolation, self._log_path())
        if result.outcome is not Outcome.SUCCEEDED:
            return result
        if not self._workspace.left_something():
            return result
        kept: Kept = await asyncio.to_thread(self._workspace.keep)
        if kept.violation:
            return result.model_copy(
                update={"outcome": Outcome.OUTPUT_CONTRACT_VIOLATION, "message": kept.violation}
            )
        return result.model_copy(update={"output": kept.output, "artifacts": kept.artifacts})

    def _no_exit(self, outcome: Outcome, why: str, **more: Any) -> AttemptResult:
        return without_exit(self.spec, outcome, why, self._node.isolation, **more)

    async def _adopted(self) -> AttemptResult:
        """1. It has ended; 2. its shim lives: go on; 3. what can be proven of the rest.

        A shim without `begin` may have been told to go a moment ago: it is killed before anyone
        says that it never began.
        """
        if self.entry.read("exit.json") is None:
            row = self.entry.read("shim")
            if row is not None:
                shim = Started(*row)
                alive = start_ticks(shim.pid) == shim.ticks
                if alive and self.entry.read("begin.json") is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(shim.pid, signal.SIGKILL)
                self._shim = shim
                self._phase = "running"
                await self._gone(shim)
        return await self._account()

    # -- lease ---------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Renew until the completion is acknowledged."""
        interval = heartbeat_interval_ms(self.spec.lease_ms) / 1_000
        while True:
            pause = interval
            try:
                await self._renew()
            except TokenGoneError:
                self._lost = True
                self._leased.set()
                log.warning("lease.gone", unit=self.entry.unit)
                self.stop("lease_lost")
                return
            except RPCError as error:
                log.warning("lease.unanswered", unit=self.entry.unit, error=str(error))
                pause = min(interval, 1.0)
            await asyncio.sleep(pause)

    async def _renew(self) -> None:
        sent = boottime_ns()
        details = {"phase": self._phase, "pid": self._shim.pid if self._shim else None}
        beat = await self._node.wire.heartbeat(self.token.token, details)
        if self._node.presence_age_ms() < self.spec.lease_ms:
            ttl = self.spec.lease_ms
            self.entry.set_lease(self.spec.fence, deadline_ns(sent, ttl, margin_ms(ttl)))
            self._leased.set()
        if beat.cancel_requested and self._stop_reason is None:
            self.stop("cancelled")

    # -- end -----------------------------------------------------------------------------------

    async def _close(self, result: AttemptResult) -> None:
        """Tell how it ended until somebody has acknowledged it; then remove it."""
        self._phase = "ended"
        log.info("attempt.ended", unit=self.entry.unit, outcome=result.outcome)
        try:
            if not self._lost:
                await self._node.wire.complete(self.token.token, result)
        except TokenGoneError:
            self._lost = True
        if self._lost:
            await self._node.wire.tell_gone(self.spec.pool, result)
        await asyncio.to_thread(self._bury)

    def _log_path(self) -> str:
        spec = self.spec
        name = f"{spec.step}.a{spec.attempt}.f{spec.fence}.log"
        return str(self._node.spool.places.logs / spec.workload / name)

    def _bury(self) -> None:
        self._workspace.remove()
        self._node.spool.bury(self.entry, Path(self._log_path()))


_OUTCOMES = {
    "cancelled": Outcome.CANCELLED,
    "preempted": Outcome.PREEMPTED,
    "lease_lost": Outcome.LEASE_LOST,
}
