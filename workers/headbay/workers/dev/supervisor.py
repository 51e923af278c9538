"""Keeps a whole cluster running on one machine: server, control worker, nodes.

Never in here: a decision about workloads. What the supervisor starts is ended by it, by the kernel
when the supervisor is killed, or at the next start; steps are no children of it and run on under
their lease.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import ClassVar

import structlog
from temporalio.client import Client

from headbay.domain.errors import HeadbayError
from headbay.workers.connection import ServerUnreachableError, connect
from headbay.workers.control.attributes import register_search_attributes
from headbay.workers.dev import layout, readiness
from headbay.workers.dev.child import Child, ChildSpec
from headbay.workers.dev.files import ClusterFiles
from headbay.workers.dev.logfile import LogFile
from headbay.workers.dev.ports import HOST, Ports, choose
from headbay.workers.dev.process import end, start_ticks
from headbay.workers.dev.record import ChildRecord, ClusterRecord, Phase, read, write

__all__ = ["Options", "StartFailedError", "Supervisor"]

log = structlog.get_logger(__name__)

SERVER_WAIT_S = 30.0
READY_WAIT_S = 60.0
SERVER_TRIES = 3
DEATHS_ALLOWED = 3
"""Deaths of one child during the start, before the start is given up."""

POLL_S = 0.1
TAIL_LINES = 15
LEFTOVER_GRACE_S = 10.0


class StartFailedError(HeadbayError):
    """The cluster did not come up; the message ends with the guilty child's last lines."""

    code: ClassVar[str] = "START_FAILED"


@dataclass(frozen=True)
class Options:
    """What kind of cluster.

    Attributes:
        ledger: URL, None for a SQLite file in the state directory.
    """

    shape: layout.NodeShape = field(default_factory=layout.NodeShape)
    ledger: str | None = None


class Supervisor:
    """One cluster's life. The caller holds the lock of its files.

    Args:
        files: Where everything is kept.
        options: What kind of cluster.
        show: Told every line that a child logs: (child, line); None for nobody.
    """

    def __init__(
        self, files: ClusterFiles, options: Options, show: Callable[[str, str], None] | None = None
    ) -> None:
        self._files = files
        self._options = options
        self._show = show
        self._children: dict[str, Child] = {}
        self._phase: Phase = "starting"
        self._doing = ""
        self._started_ms = time.time_ns() // 1_000_000
        self._ports = Ports(grpc=0, ui=0)
        self._stop = asyncio.Event()

    def request_stop(self) -> None:
        """Begin to stop; safe in a signal handler of the loop."""
        self._stop.set()

    async def run(self) -> None:
        """Start, watch until told to stop, stop.

        Raises:
            StartFailedError: It did not come up; everything was stopped again.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.request_stop)
        self._end_leftovers()
        tailing = asyncio.create_task(self._tail(), name="tail")
        starting = asyncio.create_task(self._start(), name="start")
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                failures = [
                    asyncio.create_task(child.failure()) for child in self._children.values()
                ]
                await asyncio.wait([stopping, tailing, *failures], return_when="FIRST_COMPLETED")
                for task in (tailing, *failures):
                    if task.done():
                        task.result()
                    task.cancel()
        finally:
            starting.cancel()
            stopping.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await self._stop_children()
            tailing.cancel()
            await asyncio.gather(tailing, return_exceptions=True)
            self._show_new()
            self._files.places.dev_json.unlink(missing_ok=True)

    # -- start ---------------------------------------------------------------------------------

    def _end_leftovers(self) -> None:
        """End what a killed supervisor left behind and the kernel has not ended."""
        last = read(self._files.places.dev_json)
        for child in reversed(last.children if last else []):
            if child.pid is not None and child.ticks is not None:
                killed = end(child.pid, child.ticks, grace_s=LEFTOVER_GRACE_S)
                log.info("leftover.ended", child=child.name, pid=child.pid, killed=killed)

    async def _start(self) -> None:
        client = await self._start_server()
        self._say("setting up the namespace")
        await readiness.retain(client)
        await register_search_attributes(client)
        env = self._environment()
        self._add(layout.control(env))
        for name in self._options.shape.names:
            self._add(layout.node(env, name, self._options.shape))
        await self._wait_for_nodes(client)
        for name in self._options.shape.names:
            if await readiness.undrain(client, name):
                log.info("node.uncordoned", node=name)
        self._phase = "ready"
        self._say("")
        log.info("cluster.ready", ui=self._record().ui, address=self._record().address)

    async def _start_server(self) -> Client:
        """Start the server; on other ports if somebody takes them in the same moment."""
        for attempt in range(1, SERVER_TRIES + 1):
            self._ports, changes = choose(self._files.ports)
            for change in changes:
                log.warning("port.changed", what=change)
            self._say("starting Temporal")
            spec = layout.server(
                self._environment(), database=self._files.places.temporal_db, ports=self._ports
            )
            child = self._add(spec)
            try:
                return await self._server_answers(child)
            except StartFailedError:
                await child.stop()
                if attempt == SERVER_TRIES or not self._address_in_use(child):
                    raise
        raise AssertionError("the last try returns or raises")

    async def _server_answers(self, child: Child) -> Client:
        deadline = time.monotonic() + SERVER_WAIT_S
        while True:
            self._give_up_on(child, deaths=1)
            try:
                return await connect(
                    config={"target_host": f"{HOST}:{self._ports.grpc}"}, wait_s=POLL_S
                )
            except ServerUnreachableError as error:
                if time.monotonic() > deadline:
                    raise StartFailedError(f"Temporal does not answer: {error}") from error
            await asyncio.sleep(POLL_S)

    async def _wait_for_nodes(self, client: Client) -> None:
        deadline = time.monotonic() + READY_WAIT_S
        wanted = set(self._options.shape.names)
        while True:
            up = await readiness.nodes_up(client)
            if wanted <= up:
                return
            self._say(f"waiting for the pool and {', '.join(sorted(wanted - up))}")
            for child in self._children.values():
                self._give_up_on(child, deaths=DEATHS_ALLOWED)
            if time.monotonic() > deadline:
                late = sorted(wanted - up)
                tails = "\n".join(self._tail_of(f"node-{name}") for name in late)
                raise StartFailedError(
                    f"not registered within {READY_WAIT_S:.0f} s: {', '.join(late)}\n"
                    f"{self._tail_of('control')}\n{tails}"
                )
            await asyncio.sleep(POLL_S)

    def _give_up_on(self, child: Child, *, deaths: int) -> None:
        if child.deaths >= deaths:
            raise StartFailedError(
                f"{child.spec.name} died ({child.last_exit}); its log says:\n"
                + self._tail_of(child.spec.name)
            )

    @staticmethod
    def _address_in_use(child: Child) -> bool:
        return any("address already in use" in line for line in child.log.tail(TAIL_LINES))

    def _tail_of(self, name: str) -> str:
        child = self._children[name]
        lines = child.log.tail(TAIL_LINES)
        return "\n".join(f"  {name} | {line}" for line in lines) + f"\n  ({child.log.path})"

    def _environment(self) -> dict[str, str]:
        return layout.environment(
            os.environ,
            state=self._files.places.root,
            ports=self._ports,
            ledger=self._ledger(),
            artifacts=self._files.places.artifacts,
        )

    def _ledger(self) -> str:
        return self._options.ledger or self._files.places.ledger_url

    def _add(self, spec: ChildSpec) -> Child:
        logfile = LogFile(self._files.log(spec.name))
        child = Child(spec, logfile, changed=self._publish)
        self._children[spec.name] = child
        child.start()
        return child

    # -- while it runs -------------------------------------------------------------------------

    def _say(self, doing: str) -> None:
        if doing and doing != self._doing:
            log.info("cluster.doing", phase=self._phase, doing=doing)
        self._doing = doing
        self._publish()

    def _publish(self) -> None:
        write(self._files.places.dev_json, self._record())

    def _record(self) -> ClusterRecord:
        pid = os.getpid()
        return ClusterRecord(
            pid=pid,
            ticks=start_ticks(pid) or 0,
            phase=self._phase,
            doing=self._doing,
            address=f"{HOST}:{self._ports.grpc}",
            ui=f"http://{HOST}:{self._ports.ui}",
            namespace=layout.NAMESPACE,
            started_ms=self._started_ms,
            version=version("headbay"),
            ledger=self._ledger(),
            artifacts=str(self._files.places.artifacts),
            nodes=self._options.shape.names,
            children=[
                ChildRecord(
                    name=name,
                    pid=child.pid,
                    ticks=child.ticks,
                    started_ms=child.started_ms,
                    deaths=child.deaths,
                    last_exit=child.last_exit,
                    log=str(child.log.path),
                )
                for name, child in self._children.items()
            ],
        )

    async def _tail(self) -> None:
        while True:
            await asyncio.sleep(2 * POLL_S)
            self._show_new()
            for name, child in self._children.items():
                if child.log.rotate():
                    log.info("log.rotated", child=name)

    def _show_new(self) -> None:
        if self._show is None:
            return
        for name, child in self._children.items():
            for line in child.log.new_lines():
                self._show(name, line)

    # -- stop ----------------------------------------------------------------------------------

    async def _stop_children(self) -> None:
        """Workers first, all at once, while the server still answers them; then the server."""
        self._phase = "stopping"
        self._say("stopping the workers")
        workers = [child for name, child in self._children.items() if name != "server"]
        await asyncio.gather(*(child.stop() for child in workers))
        self._say("stopping Temporal")
        if "server" in self._children:
            await self._children["server"].stop()
        log.info("cluster.stopped")
