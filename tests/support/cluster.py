"""A real cluster on one machine, part by part, so that tests can kill any of them.

Temporal's server with a database file, control workers and node workers are processes of their
own; each can be killed and started again.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from headbay.domain.ids import (
    CONTROL_QUEUE,
    node_workflow_id,
    pool_workflow_id,
    workload_workflow_id,
)

BIN = Path(sys.executable).parent


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(holds: Callable[[], Awaitable[Any]], seconds: float = 30.0, what: str = "") -> Any:
    """Poll until ``holds`` returns something true; its value. Fails loudly at the deadline."""
    deadline = time.monotonic() + seconds
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = await holds()
        except RPCError as error:
            last = error
        else:
            if last:
                return last
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what or holds.__name__}; last: {last!r}")


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@dataclass
class Part:
    """One process of the cluster."""

    name: str
    command: list[str]
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self.process is None or self.process.poll() is not None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(20)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


@dataclass
class Cluster:
    """All parts, and a client."""

    root: Path
    port: int = field(default_factory=free_port)
    ip: str = "127.0.0.1"
    ledger: str = ""
    client: Client | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    control_options: list[str] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HEADBAY_"))}
        return keep | {
            "TEMPORAL_ADDRESS": f"127.0.0.1:{self.port}",
            "HEADBAY_STATE": str(self.root / "state"),
            "HEADBAY_LEDGER": self.ledger or f"sqlite:///{self.root / 'ledger.db'}",
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }

    def add(self, name: str, command: list[str]) -> Part:
        part = Part(name, command, self.env, self.root / f"{name}.log")
        self.parts[name] = part
        part.start()
        return part

    async def start_server(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        command = [str(BIN / "temporal"), "server", "start-dev", "--headless"]
        command += ["--ip", self.ip, "--port", str(self.port), "--log-level", "error"]
        command += ["--db-filename", str(self.root / "temporal.db")]
        command += ["--sqlite-pragma", "journal_mode=wal"]
        self.add("server", command)
        await self.connect()

    async def connect(self) -> Client:
        deadline = time.monotonic() + 30
        while True:
            try:
                self.client = await Client.connect(
                    f"127.0.0.1:{self.port}", data_converter=pydantic_data_converter
                )
            except (RuntimeError, RPCError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
            else:
                return self.client

    def start_control(self, name: str = "control") -> Part:
        command = [sys.executable, "-m", "headbay.workers.control", *self.control_options]
        return self.add(name, command)

    def start_node(self, name: str = "n1", *options: str, executor: str = "process") -> Part:
        command = [sys.executable, "-m", "headbay.workers.node", "--name", name]
        command += ["--executor", executor, *options]
        return self.add(name, command)

    async def node_up(self, name: str = "n1", seconds: float = 40.0) -> None:
        async def ready() -> bool:
            nodes = await self.query(pool_workflow_id("default"), "nodes")
            return any(n["name"] == name and n["state"] == "up" and not n["awaited"] for n in nodes)

        await until(ready, seconds, f"node {name} up in its pool")

    async def query(self, workflow_id: str, name: str, *args: Any) -> Any:
        assert self.client is not None
        return await self.client.get_workflow_handle(workflow_id).query(name, args=list(args))

    async def pool(self) -> Any:
        return await self.query(pool_workflow_id("default"), "state")

    async def node(self, name: str = "n1") -> Any:
        return await self.query(node_workflow_id(name), "state")

    async def submit(self, workload: str, document: dict[str, Any], context: Any = None) -> Any:
        assert self.client is not None
        document = {"apiVersion": "headbay/v1", "name": workload, **document}
        return await self.client.start_workflow(
            "Workload",
            args=[document, context] if context else [document],
            id=workload_workflow_id(workload),
            task_queue=CONTROL_QUEUE,
        )

    async def status(self, workload: str) -> Any:
        return await self.query(workload_workflow_id(workload), "state")

    async def step(self, workload: str, step: str) -> Any:
        status = await self.status(workload)
        return next(s for s in (status or {"steps": []})["steps"] if s["name"] == step)

    async def events(self, workflow_id: str, run: str | None = None) -> int:
        assert self.client is not None
        handle = self.client.get_workflow_handle(workflow_id, run_id=run)
        return (await handle.describe()).history_length

    def stop(self) -> None:
        for name in reversed(list(self.parts)):
            self.parts[name].end()

    def logs(self) -> str:
        return "\n".join(
            f"--- {part.name}\n" + part.log.read_text(errors="replace")[-4_000:]
            for part in self.parts.values()
            if part.log.exists()
        )


def spool_entries(cluster: Cluster, node: str = "n1") -> list[str]:
    """Names of the entries in a node's spool that are not tombstones."""
    spool = cluster.root / "state" / "nodes" / node / "spool"
    return sorted(p.name for p in spool.iterdir() if p.is_dir() and p.name.startswith("hb."))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
