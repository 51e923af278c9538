"""One attempt on this node: launch, end, acknowledged completion.

The shim enforces lease, timeout and stop orders. This is the second layer: a shim that does not do
so in time is put down together with its payload.
"""

import asyncio
import contextlib
import functools
import os
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import structlog

from headbay.activities.executor.port import Executor, LaunchFailedError, Secrets, Started
from headbay.activities.executor.records import CorruptRecordError
from headbay.activities.executor.shim.family import KILL_WITHIN_S
from headbay.activities.executor.shim.kernel import boottime_ns, process_stat, send_signal
from headbay.domain.attempt import AttemptResult, LaunchSpec
from headbay.domain.errors import HeadbayError
from headbay.domain.exchange import Grant
from headbay.domain.outcome import Isolation, Outcome
from headbay.workers.node import adoption
from headbay.workers.node.keeper import Keeper
from headbay.workers.node.results import from_exit, without_exit
from headbay.workers.node.room import Room
from headbay.workers.node.scribe import Scribe
from headbay.workers.node.secret_store import SecretUnavailableError
from headbay.workers.node.spool import Entry, Spool, Token
from headbay.workers.node.wire import TokenGoneError, Wire
from headbay.workers.node.workspace import PreparationError, Workspace

__all__ = ["Attempt", "Surroundings"]

log = structlog.get_logger(__name__)

LAUNCH_TRIES = 3
NONCE_BYTES = 32
POLL_S = 0.02
KEEP_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
STOPPED_SLACK_S = 1.0
SLOW_SLACK_S = KILL_WITHIN_S + 2.0
TIGHT_BYTES = 64 << 20
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Surroundings(Protocol):
    """What an attempt needs to know of its node."""

    spool: Spool
    scribe: Scribe
    wire: Wire
    executor: Executor
    isolation: Isolation
    room: Room
    launches: asyncio.Semaphore

    def presence_age_ms(self) -> int:
        """How long ago the node's own presence was last acknowledged."""
        ...

    def workspace(self, spec: LaunchSpec, unit: str) -> Workspace:
        """An attempt's surroundings."""
        ...

    def secrets(self, spec: LaunchSpec) -> Secrets:
        """Values of its secrets; raises SecretUnavailableError if it has one of them not."""
        ...


class Attempt:
    """One entry of the spool, from its order to the acknowledgement of its end.

    Attributes:
        phase: ``launching``, ``running`` or ``ended``; shown in the activity's heartbeats.
        ended: Set once its process is proven gone.
    """

    def __init__(
        self,
        entry: Entry,
        spec: LaunchSpec,
        token: Token,
        node: Surroundings,
        user: dict[str, Any] | None = None,
    ) -> None:
        self.entry = entry
        self.spec = spec
        self.token = token
        self.phase = "launching"
        self.shim: Started | None = None
        self.ended = asyncio.Event()
        self._node = node
        self._workspace = node.workspace(spec, entry.unit)
        self._workspace.belongs_to(user)
        self._keeper = Keeper(self, node.wire)
        self._nonce = secrets.token_hex(NONCE_BYTES)
        self._ordered = False
        self._buried = False
        self._unprepared: PreparationError | None = None
        self._terms: dict[str, Any] = {}
        self._lost = False
        self._stop_reason: str | None = None
        self._stopped_ns: int | None = None
        self._went_ns: int | None = None

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
        return not self.ended.is_set()

    @property
    def began(self) -> bool:
        """Whether its payload may have been executed."""
        try:
            return self.entry.read("begin.json") is not None
        except CorruptRecordError:
            return True

    def renewed(self, deadline_ns: int) -> None:
        """Its lease was renewed until then."""
        self._node.executor.renewed(self.spec.lease_ms, deadline_ns)

    def presence_age_ms(self) -> int:
        """How long ago the node's own presence was last acknowledged."""
        return self._node.presence_age_ms()

    def replace_token(self, token: Token) -> None:
        """The order was delivered again: heartbeats and completion go to the new token."""
        self.entry.set_token(token)
        self.token = token

    def lose(self) -> None:
        """Its activity was closed without this node: kill it at once."""
        self._lost = True
        self.stop("lease_lost")

    def stop(self, reason: str) -> None:
        """End it: cancelled, preempted or lease_lost; the first reason stays, but for the last.

        The order reaches the shim as a file. If that cannot be written, the second layer acts.
        """
        if self.ended.is_set() or reason == self._stop_reason:
            return
        if self._stop_reason is None or reason == "lease_lost":
            self._stop_reason = reason
            self._stopped_ns = self._stopped_ns or boottime_ns()
        self._keeper.leased.set()
        try:
            self.entry.set_stop(self.spec.fence, reason)
        except OSError as error:
            log.error("stop.unwritten", unit=self.entry.unit, error=str(error))  # noqa: TRY400
        if self.shim is not None and self.shim.pid != 0:
            send_signal(self.shim.pid, self.shim.ticks, signal.SIGUSR1)

    # -- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Launch it, and see it through."""
        async with self._kept():
            result = await self._launch()
            if result is None:
                await self._gone()
                result = await self._account()
            await self._close(result)

    async def adopt(self, excuse: str | None = None) -> None:
        """Take over after a restart of the worker, or after its supervision broke.

        Args:
            excuse: Why nothing else than UNKNOWN can be told of its end.
        """
        async with self._kept():
            if self.live:
                await self._take_over()
            result = (
                await self._account()
                if excuse is None
                else self._no_exit(Outcome.UNKNOWN, excuse, began=True)
            )
            await self._close(result)

    @contextlib.asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        keeper = asyncio.create_task(self._keeper.keep())
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _launch(self) -> AttemptResult | None:
        """Prepare, spawn, go; a result if it ended before it began.

        Nothing is told to go before the first heartbeat was acknowledged.
        """
        try:
            await self._prepare()
            await self._keeper.leased.wait()
            values = Secrets()
            if self.spec.secrets or self.spec.secret_files:
                values = await asyncio.to_thread(self._node.secrets, self.spec)
        except (PreparationError, SecretUnavailableError) as error:
            return self._no_exit(Outcome.EXEC_FAILED, str(error))
        except OSError as error:
            why = f"the node could not write its order: {error}"
            return self._no_exit(Outcome.NOT_STARTED, why)
        async with self._node.launches:
            return await self._launch_in_turn(values)

    async def _launch_in_turn(self, values: Secrets) -> AttemptResult | None:
        why = "the launcher failed"
        for _ in range(LAUNCH_TRIES):
            if self._stop_reason is not None:
                outcome = adoption.OUTCOME_OF[self._stop_reason]
                return self._no_exit(outcome, "ended before it was started")
            try:
                await self._start(values)
            except LaunchFailedError as error:
                why = str(error)
                log.warning("launch.failed", unit=self.entry.unit, error=why)
                if self.shim is not None and await self._has_begun(self.shim):
                    return None
            else:
                return None
        return self._no_exit(Outcome.NOT_STARTED, why)

    async def spool(self) -> None:
        """Make its order durable.

        Raises:
            OSError: It is not.
        """
        try:
            self._terms = self._node.executor.terms(self.spec)
        except HeadbayError as error:
            self._unprepared = PreparationError(str(error))
        self._workspace.belongs_to(self._terms.get("user"))
        launch = {
            "nonce": self._nonce,
            "fence": self.spec.fence,
            "argv": self.spec.argv,
            "timeout_ms": self.spec.timeout_ms,
            "grace_ms": self.spec.grace_ms,
            **self._workspace.describe(),
            **self._terms,
        }
        try:
            await self._node.scribe.write(lambda: self._write_order(launch))
        except OSError:
            with contextlib.suppress(OSError):  # The first one is told.
                await self._node.scribe.write(self._withdraw)
            raise

    def _write_order(self, launch: dict[str, Any]) -> list[int]:
        descriptors = self._node.spool.create(self.entry, self.spec, self.token, launch)
        self._ordered = True
        if self._workspace.quick and self._unprepared is None:
            try:
                self._workspace.prepare()
            except PreparationError as error:
                self._unprepared = error
        return descriptors

    def _withdraw(self) -> list[int]:
        """An order whose sync failed counts as never spooled."""
        if self._ordered:
            self._node.spool.withdraw(self.entry)
            if self._workspace.quick:
                self._workspace.release()
        return []

    async def _prepare(self) -> None:
        if self._unprepared is not None:
            raise self._unprepared
        if not self._workspace.quick:
            await asyncio.to_thread(self._workspace.prepare)

    async def _start(self, values: Secrets) -> None:
        """Spawn a shim, remember it, and only then let it go."""
        executor = self._node.executor
        shim = await executor.spawn(self.entry.folder)
        try:
            if shim.pid != 0:
                self.entry.set_shim(shim.pid, shim.ticks)
        except OSError:
            await executor.drop(shim)
            raise
        self.shim = shim
        self.phase = "running"
        self._went_ns = boottime_ns()
        await executor.go(shim, self._nonce, values)

    async def _has_begun(self, shim: Started) -> bool:
        """Whether a shim that may or may not have heard *go* did; waits until one is sure."""
        while adoption.alive(shim):
            if self.began:
                return True
            await asyncio.sleep(POLL_S)
        return self.began

    async def _take_over(self) -> None:
        """Wait until its shim is gone, if it has one.

        One that has not begun may have been told to go a moment ago: it is killed before anyone
        says that it never began.
        """
        if self.entry.exists("exit.json"):
            return
        shim = self.shim or adoption.recorded_shim(self.entry)
        if shim is None:
            return
        self.shim = shim
        self.phase = "running"
        if self._stop_reason is None and (reason := self.entry.stop_reason()) is not None:
            self._stop_reason, self._stopped_ns = reason, boottime_ns()
        if not self.began:
            send_signal(shim.pid, shim.ticks, signal.SIGKILL)
        self._went_ns = self._went_ns or boottime_ns()
        await self._gone()

    # -- end -----------------------------------------------------------------------------------

    async def _gone(self) -> None:
        """Wait until the shim has left; put it down if it does not do what it is for."""
        shim = self.shim
        if shim is None or shim.pid == 0:
            return
        left = asyncio.create_task(_left(shim))
        try:
            while not left.done():
                due = self._due_ns()
                wait = None if due is None else max(0.05, (due - boottime_ns()) / NS_PER_S)
                await asyncio.wait([left], timeout=min(wait or 1.0, 1.0))
                if not left.done() and self._overdue(shim):
                    log.error("shim.overdue", unit=self.entry.unit, pid=shim.pid)
                    await asyncio.to_thread(self._put_down, shim)
        finally:
            left.cancel()

    def _due_ns(self) -> int | None:
        """When the shim should have begun to kill, by what it was told; None if nothing is due."""
        grace = self.spec.grace_ms * NS_PER_MS
        due = []
        if self._stopped_ns is not None:
            due.append(self._stopped_ns + (0 if self._stop_reason == "lease_lost" else grace))
        if self._keeper.deadline_ns is not None:
            due.append(self._keeper.deadline_ns)
        if self.spec.timeout_ms is not None and self._went_ns is not None:
            due.append(self._went_ns + self.spec.timeout_ms * NS_PER_MS + grace)
        return min(due, default=None)

    def _overdue(self, shim: Started) -> bool:
        """Whether it is too late: soon for a shim that is stopped, later for one that kills."""
        due = self._due_ns()
        if due is None:
            return False
        stat = process_stat(shim.pid)
        slack = STOPPED_SLACK_S if stat is not None and stat[0] in "Tt" else SLOW_SLACK_S
        return boottime_ns() >= due + int(slack * NS_PER_S)

    def _put_down(self, shim: Started) -> None:
        """The payload first, while the shim still holds it together; then the shim."""
        try:
            begin = self.entry.read("begin.json")
        except CorruptRecordError:
            begin = None
        main = tuple(begin["main"]) if begin is not None else None
        adoption.kill_rest(self.entry, main, (shim.pid, shim.ticks))
        send_signal(shim.pid, shim.ticks, signal.SIGKILL)

    async def _account(self) -> AttemptResult:
        """What can be proven now that its shim is gone, and what it left."""
        prove = functools.partial(adoption.prove, self.entry, self.entry.last_word)
        quick = self.entry.exists("exit.json")
        proof = prove() if quick else await asyncio.to_thread(prove)
        self._over()
        if proof.exit is None:
            return self._no_exit(
                proof.outcome,
                proof.why,
                began=proof.began,
                kill_incomplete=proof.kill_incomplete,
                account=proof.account,
            )
        result = from_exit(self.spec, proof.exit, self._node.isolation, self._log_path())
        if result.outcome is not Outcome.SUCCEEDED or not self._workspace.left_something():
            return result
        return await self._with_what_it_left(result)

    def _over(self) -> None:
        """Its process is proven gone."""
        self.phase = "ended"
        self.ended.set()
        self._node.room.leave(self.entry.unit)

    async def _with_what_it_left(self, result: AttemptResult) -> AttemptResult:
        """Output and artifacts; success is told only once they are safe."""
        for pause in (*KEEP_PAUSES_S, None):
            try:
                kept = await asyncio.to_thread(self._workspace.keep)
            except OSError as error:
                log.warning("keep.failed", unit=self.entry.unit, error=str(error))
                if pause is None:
                    why = f"what it left could not be kept: {error}"
                    return result.model_copy(
                        update={"outcome": Outcome.OUTPUT_CONTRACT_VIOLATION, "message": why}
                    )
                await asyncio.sleep(pause)
            else:
                break
        if kept.violation:
            return result.model_copy(
                update={"outcome": Outcome.OUTPUT_CONTRACT_VIOLATION, "message": kept.violation}
            )
        return result.model_copy(update={"output": kept.output, "artifacts": kept.artifacts})

    def _no_exit(self, outcome: Outcome, why: str, **more: Any) -> AttemptResult:
        return without_exit(self.spec, outcome, why, self._node.isolation, **more)

    async def _close(self, result: AttemptResult) -> None:
        """Tell how it ended until somebody has acknowledged it; then remove it."""
        self._over()
        log.info("attempt.ended", unit=self.entry.unit, outcome=result.outcome)
        if self._needs_nothing(result) and self._is_tight():
            await asyncio.to_thread(self._workspace.remove)
        if self._lost or not await self._completed(result):
            await self._node.wire.tell_gone(self.spec.pool, result)
        await self._node.scribe.write(self._bury_if_clean)
        if not self._buried:
            await asyncio.to_thread(self._workspace.remove)
            await self._node.scribe.write(self._bury)

    @staticmethod
    def _needs_nothing(result: AttemptResult) -> bool:
        """Whether whoever tells this end again, after a crash, needs nothing that it left.

        What violated its contract is looked at again: without it, it would be a success.
        """
        kept = result.output or result.artifacts
        return not kept and result.outcome is not Outcome.OUTPUT_CONTRACT_VIOLATION

    def _is_tight(self) -> bool:
        """Whether what it left may be what nobody can write beside any more.

        The server itself, where it shares the disk: then no completion is ever acknowledged.
        """
        status = os.statvfs(self._node.spool.places.work)
        return status.f_bavail * status.f_frsize < TIGHT_BYTES

    async def _completed(self, result: AttemptResult) -> bool:
        """Complete its activity; False if that was closed before."""
        while True:
            token = self.token
            try:
                await self._node.wire.complete(token.token, result)
            except TokenGoneError:
                if self.token == token:
                    return False
            else:
                return True

    def _log_path(self) -> str:
        spec = self.spec
        name = f"{spec.step}.a{spec.attempt}.f{spec.fence}.log"
        return str(self._node.spool.places.logs / spec.workload / name)

    def _bury_if_clean(self) -> list[int]:
        return self._bury() if self._workspace.release() else []

    def _bury(self) -> list[int]:
        self._node.spool.bury(self.entry, Path(self._log_path()))
        self._buried = True
        return []


async def _left(shim: Started) -> None:
    """Wait until a shim is gone. A pidfd first, then its start time: pids are used again."""
    try:
        fd = os.pidfd_open(shim.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    left = asyncio.Event()
    try:
        if adoption.alive(shim):
            loop.add_reader(fd, left.set)
            await left.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
