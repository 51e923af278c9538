"""The node's side of Temporal: its activities, its attempts, its presence.

Never in here: a promise that the spool does not hold already.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import structlog
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from headbay.activities.artifacts import ArtifactStore
from headbay.activities.executor.port import Executor, Secrets
from headbay.activities.executor.records import CorruptRecordError, read_record, replace
from headbay.activities.executor.shim.family import Family
from headbay.activities.executor.shim.kernel import boottime_ns, start_ticks
from headbay.activities.places import Places
from headbay.domain.attempt import AttemptResult, LaunchSpec, StopOrder
from headbay.domain.errors import HeadbayError
from headbay.domain.exchange import Inventory, NodeFacts, PresenceOrder
from headbay.domain.ids import node_queue
from headbay.domain.lease import heartbeat_interval_ms
from headbay.domain.outcome import Isolation, Outcome
from headbay.workers.node import adoption
from headbay.workers.node.orders import refuse
from headbay.workers.node.results import without_exit
from headbay.workers.node.room import Room
from headbay.workers.node.scribe import Scribe
from headbay.workers.node.secret_store import SecretStore
from headbay.workers.node.spool import Entry, Spool, Token, unit_name
from headbay.workers.node.supervision import Attempt
from headbay.workers.node.wire import TokenGoneError, Wire
from headbay.workers.node.workspace import Workspace, Workspaces

__all__ = ["Agent"]

log = structlog.get_logger(__name__)

SWEEP_EVERY_S = 30.0
PRESENCE_AGAIN_S = 1.0
PRUNE_EVERY_S = 3_600.0
LAUNCHES = 4 * (os.cpu_count() or 1)
"""Attempts that are being started at once. The rest wait for their turn, with their leases renewed:
all at once would take the processor from what renews them."""
BREAK_S = 5.0
BREAKS = 5
"""How often the supervision of one attempt may break before its end is told as unknown."""

CAUSES = {
    Outcome.CANCELLED: "cancelled",
    Outcome.PREEMPTED: "preempted",
    Outcome.LEASE_LOST: "lease_lost",
}


class Agent:
    """Everything that runs on one node."""

    def __init__(  # noqa: PLR0917 - its parts, in the order in which they are made
        self,
        client: Client,
        facts: NodeFacts,
        places: Places,
        spool: Spool,
        executor: Executor,
        store: ArtifactStore,
    ) -> None:
        self.facts = facts
        self.spool = spool
        self.scribe = Scribe(spool.places.spool)
        self._workspaces = Workspaces(spool.places, store)
        self._workspaces.open()
        self.executor = executor
        self.isolation = Isolation(facts.isolation)
        self.room = Room(facts.capacity)
        self.launches = asyncio.Semaphore(LAUNCHES)
        self.wire = Wire(client)
        self.epoch = 0
        self.presence_lost = asyncio.Event()
        self._secrets = SecretStore.find(places, os.environ)
        self._attempts: dict[str, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._spooling: dict[str, asyncio.Event] = {}
        self._presence_ns = 0
        self._presence: asyncio.Task[None] | None = None

    # -- surroundings of attempts --------------------------------------------------------------

    def presence_age_ms(self) -> int:
        """How long ago the presence was last acknowledged."""
        return (boottime_ns() - self._presence_ns) // 1_000_000

    def workspace(self, spec: LaunchSpec, unit: str) -> Workspace:
        """An attempt's surroundings."""
        return self._workspaces.of(spec, unit)

    def secrets(self, spec: LaunchSpec) -> Secrets:
        """Values of its secrets."""
        return self._secrets.read(spec)

    # -- start ---------------------------------------------------------------------------------

    async def adopt(self) -> int:
        """Take over everything that the spool holds; an unreadable entry is put aside alone.

        Returns:
            How many attempts were taken over.
        """
        for entry in list(self.spool.entries()):
            try:
                attempt = Attempt(entry, entry.spec, entry.token, self, entry.user)
            except (CorruptRecordError, OSError, ValueError, KeyError) as error:
                await self._put_aside(entry, error)
                continue
            self._start(attempt, adopted=True)
        return len(self._attempts)

    def _live(self, attempt: Attempt) -> None:
        self._attempts[attempt.entry.unit] = attempt
        self.room.take(attempt.entry.unit, attempt.spec)

    def _over(self, unit: str) -> None:
        self._attempts.pop(unit, None)
        self.room.leave(unit)

    def _start(self, attempt: Attempt, *, adopted: bool) -> None:
        self._live(attempt)
        task = asyncio.create_task(self._see_through(attempt, adopted=adopted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _see_through(self, attempt: Attempt, *, adopted: bool) -> None:
        """Until its end was acknowledged. What broke is taken up again: it may be running.

        If it breaks again and again, at least its end is told, as unknown.
        """
        excuse = None
        try:
            for breaks in itertools.count(1):
                try:
                    await (attempt.adopt(excuse) if adopted else attempt.run())
                except CorruptRecordError as error:
                    await self._put_aside(attempt.entry, error)
                    return
                except Exception as error:
                    log.exception("attempt.broken", unit=attempt.entry.unit)
                    adopted = True
                    if breaks >= BREAKS:
                        excuse = f"the node could not see it through: {error!r}"
                    await asyncio.sleep(BREAK_S)
                else:
                    return
        finally:
            self._over(attempt.entry.unit)

    async def _put_aside(self, entry: Entry, error: Exception) -> None:
        """Quarantine one unreadable entry, alone; what it may have started is killed first."""
        rest = await asyncio.to_thread(adoption.kill_rest, entry, None)
        aside = self.spool.quarantine(entry)
        log.error("spool.quarantined", to=str(aside), error=str(error), all_killed=rest.complete)

    def inventory_now(self) -> Inventory:
        """What is not proven gone, and whose end is not told yet."""
        attempts = self._attempts.values()
        return Inventory(
            node=self.facts.name,
            epoch=self.epoch,
            boot_id=self.facts.boot_id,
            live=[attempt.grant() for attempt in attempts if attempt.live],
            ending=[attempt.spec.allocation for attempt in attempts if not attempt.live],
        )

    def summary(self) -> str:
        """One line on what this node does, for whoever looks at its service."""
        running = sum(attempt.live for attempt in self._attempts.values())
        registered = "registering" if not self.epoch or self.presence_lost.is_set() else "up"
        return f"{self.facts.name}: {registered}, {running} running"

    # -- activities ----------------------------------------------------------------------------

    @activity.defn(name="execute")
    async def execute(self, spec: LaunchSpec) -> AttemptResult:
        """Run one attempt; completed by token when it has ended."""
        answer = await self._ordered(spec)
        if answer is None:
            activity.raise_complete_async()
        return answer

    async def _ordered(self, spec: LaunchSpec) -> AttemptResult | None:
        """Take an order; a result if it is refused."""
        info = activity.info()
        token = Token(info.task_token, info.workflow_run_id or "")
        unit = unit_name(spec.workload, spec.step, spec.attempt, spec.fence)
        if unit in self._spooling:
            await self._spooling[unit].wait()
        live = self._attempts.get(unit)
        if live is not None:
            refusal = await self._deliver_again(live, token)
        else:
            refusal = self._refuse(spec, info.attempt)
        if refusal is not None:
            log.warning("order.refused", step=spec.step, why=refusal.message)
            return refusal
        return await self._accept(spec, unit, token) if live is None else None

    async def _accept(self, spec: LaunchSpec, unit: str, token: Token) -> AttemptResult | None:
        """Spool an order and start its attempt.

        Its resources are taken from the moment it was checked; the writing happens beside that of
        other orders, since syncs at the same time share one commit of the disk.
        """
        attempt = Attempt(self.spool.entry(unit), spec, token, self)
        self._live(attempt)
        self._spooling[unit] = asyncio.Event()
        try:
            await attempt.spool()
        except OSError as error:
            self._over(unit)
            log.exception("spool.failed", unit=unit)
            why = f"the node could not spool the order: {error}"
            return without_exit(spec, Outcome.NOT_STARTED, why, self.isolation)
        finally:
            self._spooling.pop(unit).set()
        self._start(attempt, adopted=False)
        return None

    async def _deliver_again(self, live: Attempt, token: Token) -> AttemptResult | None:
        """A live attempt's order only replaces its token; another run's order ends it.

        The answer to the other run frees capacity and lets the step run elsewhere: it is given
        only once the process is gone. If that takes too long there is none, and the activity runs
        out, which frees nothing by itself.
        """
        if live.token.run == token.run:
            try:
                await asyncio.to_thread(live.replace_token, token)
            except FileNotFoundError:  # Buried a moment ago.
                why = "STALE_ORDER: this attempt ended before"
                return without_exit(live.spec, Outcome.UNKNOWN, why, self.isolation, began=True)
            return None
        began = live.began
        live.stop("lease_lost")
        try:
            async with asyncio.timeout(live.spec.lease_ms / 2_000):
                await live.ended.wait()
        except TimeoutError:
            return None
        why = "another run of the workload had ordered it; its process was killed"
        return without_exit(live.spec, Outcome.LEASE_LOST, why, self.isolation, began=began)

    def _refuse(self, spec: LaunchSpec, delivery: int) -> AttemptResult | None:
        return refuse(
            spec,
            node=self.facts.name,
            epoch=self.epoch,
            room=self.room,
            isolation=self.isolation,
            delivery=delivery,
            highest_fence=self.spool.highest_fence(spec.workload, spec.step),
        )

    @activity.defn(name="stop")
    async def stop(self, order: StopOrder) -> None:
        """End an attempt; one that is not here has ended already."""
        unit = unit_name(order.workload, order.step, order.attempt, order.fence)
        attempt = self._attempts.get(unit)
        if attempt is not None:
            attempt.stop(CAUSES[order.reason])

    @activity.defn(name="inventory")
    async def inventory(self, _: dict[str, Any]) -> Inventory:
        """What is not proven gone."""
        return self.inventory_now()

    @activity.defn(name="presence")
    async def presence(self, order: PresenceOrder) -> None:
        """Show that this node is alive; heartbeated by spooled token, never completed."""
        token = activity.info().task_token
        replace(self._presence_file, {"token": token.hex(), **order.model_dump()}, durable=True)
        self._keep_presence(token, order.ttl_ms)
        activity.raise_complete_async()

    # -- presence ------------------------------------------------------------------------------

    @property
    def _presence_file(self) -> Path:
        return self.spool.places.root / "presence"

    def resume_presence(self, registered_ns: int, ttl_ms: int) -> None:
        """Go on with the presence of before a restart, if it is of this epoch; else await one.

        The order to be present may have been given to a worker that died before it had spooled
        it. Nobody renews it then, and this node must register again once it has run out.

        Args:
            registered_ns: When the registration that was acknowledged was sent, by CLOCK_BOOTTIME.
            ttl_ms: How long a presence lasts that nobody renews.
        """
        self.presence_lost.clear()
        self._presence_ns = registered_ns
        self._replace_presence(self._await_presence(ttl_ms))
        try:
            row = read_record(self._presence_file)
        except (FileNotFoundError, CorruptRecordError):
            return
        if row["epoch"] == self.epoch:
            self._keep_presence(bytes.fromhex(row["token"]), row["ttl_ms"])

    def _keep_presence(self, token: bytes, ttl_ms: int) -> None:
        self._replace_presence(self._renew_presence(token, ttl_ms))

    def _replace_presence(self, presence: Coroutine[Any, Any, None]) -> None:
        if self._presence is not None:
            self._presence.cancel()
        self._presence = asyncio.create_task(presence)

    async def _await_presence(self, ttl_ms: int) -> None:
        await asyncio.sleep(ttl_ms / 1_000 + PRESENCE_AGAIN_S)
        log.warning("presence.missing", epoch=self.epoch)
        self.presence_lost.set()

    async def _renew_presence(self, token: bytes, ttl_ms: int) -> None:
        interval = heartbeat_interval_ms(ttl_ms) / 1_000
        while True:
            sent = boottime_ns()
            try:
                await self.wire.heartbeat(token, {"live": len(self._attempts)})
                self._presence_ns = max(self._presence_ns, sent)
                self.executor.present(sent)
            except TokenGoneError:
                log.warning("presence.gone", epoch=self.epoch)
                self.presence_lost.set()
                return
            except RPCError as error:
                log.warning("presence.unanswered", error=str(error))
                await asyncio.sleep(min(interval, PRESENCE_AGAIN_S))
                continue
            await asyncio.sleep(interval)

    # -- sweep ---------------------------------------------------------------------------------

    async def sweep_forever(self) -> None:
        """Kill what carries this spool's marker and no live attempt's; prune what is old."""
        pruned = -PRUNE_EVERY_S
        while True:
            try:
                await asyncio.to_thread(self._sweep)
                for unit in await self.executor.sweep(self._is_known):
                    log.warning("orphan.scope_killed", unit=unit)
                if time.monotonic() - pruned >= PRUNE_EVERY_S:
                    pruned = time.monotonic()
                    live = {attempt.spec.workload for attempt in self._attempts.values()}
                    await asyncio.to_thread(self.spool.prune, live)
            except (OSError, HeadbayError):
                log.exception("sweep.failed")
            await asyncio.sleep(SWEEP_EVERY_S)

    def _is_known(self, unit: str) -> bool:
        return unit in self._attempts or self.spool.find(unit) is not None

    def _sweep(self) -> None:
        mine = f"HEADBAY_SPOOL={self.spool.places.spool}\0".encode()
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                environ = b"\0" + (process / "environ").read_bytes()
            except OSError:
                continue
            if b"\0" + mine not in environ:
                continue
            unit = _marker(environ)
            ticks = start_ticks(int(process.name))
            if unit is None or ticks is None or self.spool.find(unit) is not None:
                continue
            gone = Family(unit).end()
            log.warning("orphan.killed", pid=int(process.name), unit=unit, all_killed=gone)

    def workflow_queue(self) -> str:
        """The task queue of the current epoch."""
        return node_queue(self.facts.name, self.epoch)

    async def close(self) -> None:
        """Let go: running payloads go on under their leases."""
        if self._presence is not None:
            self._presence.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.executor.close()
        await asyncio.to_thread(self.scribe.close)


def _marker(environ: bytes) -> str | None:
    for item in environ.split(b"\0"):
        if item.startswith(b"HEADBAY_ATTEMPT="):
            return item.partition(b"=")[2].decode(errors="replace")
    return None
