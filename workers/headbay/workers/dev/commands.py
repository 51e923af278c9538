"""start, stop, status and reset of a cluster that another process supervises."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar

from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig

from headbay.domain.errors import HeadbayError
from headbay.domain.ids import node_workflow_id
from headbay.workers.connection import ServerUnreachableError, connect
from headbay.workers.dev import readiness
from headbay.workers.dev.files import ClusterFiles
from headbay.workers.dev.process import end
from headbay.workers.dev.readiness import STOPPED_BY, Live
from headbay.workers.dev.record import ClusterRecord, read
from headbay.workers.dev.steps import end_steps
from headbay.workers.dev.supervisor import StartFailedError

__all__ = [
    "LOCKED_OUT",
    "StepsSurvivedError",
    "end_what_runs",
    "live",
    "running",
    "start",
    "stop",
    "tell",
    "until_text",
]

START_WAIT_S = 120.0
STOP_WAIT_S = 60.0
KILL_WAIT_S = 30.0
CONNECT_WAIT_S = 3.0
POLL_S = 0.05

LOCKED_OUT = 4
"""Exit code of a supervisor that found another one holding the lock."""


class StepsSurvivedError(HeadbayError):
    """Steps could not be ended."""

    code: ClassVar[str] = "STEPS_SURVIVED"


def tell(line: str) -> None:
    """Progress is for people: standard error."""
    print(line, file=sys.stderr, flush=True)


def running(files: ClusterFiles) -> ClusterRecord | None:
    """The record of a cluster whose supervisor is alive."""
    record = read(files.places.dev_json)
    return record if record is not None and record.alive else None


def start(files: ClusterFiles, options: Sequence[str]) -> ClusterRecord:
    """Start a supervisor of its own session and wait until it is ready.

    A running cluster is left as it is; one that somebody else is starting is waited for.

    Args:
        files: Where.
        options: Passed on to the supervisor.

    Raises:
        StartFailedError: It ended, or was not ready in time.
    """
    supervisor: subprocess.Popen[bytes] | None = None
    if running(files) is None:
        with files.log("supervisor").open("wb") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "headbay.workers.dev", "run", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    said = ""
    deadline = time.monotonic() + START_WAIT_S
    while time.monotonic() < deadline:
        record = running(files)
        if record is not None and record.phase == "ready":
            return record
        if record is not None and record.phase == "starting" and record.doing != said:
            said = record.doing
            if said:
                tell(f"headbay dev: {said}")
        if record is None and (supervisor is None or supervisor.poll() not in (None, LOCKED_OUT)):
            raise StartFailedError(_why_not(files))
        time.sleep(POLL_S)
    raise StartFailedError(
        f"not ready within {START_WAIT_S:.0f} s; still {said or 'starting'}; "
        f"logs: {files.places.dev_logs}"
    )


def _why_not(files: ClusterFiles) -> str:
    log = files.log("supervisor")
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    # What it ends with is for people; the JSON lines before are for who looks deeper.
    said = [line for line in lines if not line.startswith("{")] or lines
    return "\n".join(["the cluster did not start:", *said[-30:], f"({files.log('supervisor')})"])


def stop(files: ClusterFiles, *, kill: bool) -> Live | None:
    """Stop the cluster; None if none ran.

    Args:
        files: Where.
        kill: End running steps first, by draining the nodes; else they run on under their lease.

    Returns:
        What still ran when it stopped.
    """
    record = running(files)
    if record is None:
        return None
    left = asyncio.run(_prepare_stop(record, kill=kill))
    killed = end(record.pid, record.ticks, grace_s=STOP_WAIT_S)
    if killed:
        tell(f"headbay dev: the supervisor did not stop within {STOP_WAIT_S:.0f} s: killed")
        _end_orphans(files)
    if kill:
        end_what_runs(files)
    return left


def end_what_runs(files: ClusterFiles) -> None:
    """End the steps that a stopped cluster left to their lease.

    Raises:
        StepsSurvivedError: Some still run.
    """
    left = end_steps(files.places, wait_s=KILL_WAIT_S)
    if left:
        raise StepsSurvivedError(
            f"still running after {KILL_WAIT_S:.0f} s: {', '.join(entry.unit for entry in left)}; "
            "look at their processes (HEADBAY_ATTEMPT in their environment) and try again"
        )


def _end_orphans(files: ClusterFiles) -> None:
    last = read(files.places.dev_json)
    for child in reversed(last.children if last else []):
        if child.pid is not None and child.ticks is not None:
            end(child.pid, child.ticks, grace_s=10.0)


async def _prepare_stop(record: ClusterRecord, *, kill: bool) -> Live:
    client = await _client(record)
    if client is None:
        return Live(count=0, known=False)
    left = await readiness.live_attempts(client)
    if not kill or left.count == 0:
        return left
    tell(
        f"headbay dev: ending {left.count} running steps; their workloads go on at the next start, "
        "unless `headbay cancel` ends them"
    )
    for name in record.nodes:
        await client.get_workflow_handle(node_workflow_id(name)).signal(
            "drain", {"by": STOPPED_BY, "reason": "the cluster stops", "deadline_s": 0}
        )
    deadline = time.monotonic() + KILL_WAIT_S
    while left.count and time.monotonic() < deadline:
        await asyncio.sleep(2 * POLL_S)
        left = await readiness.live_attempts(client)
    return left


async def _client(record: ClusterRecord) -> Client | None:
    config = ClientConnectConfig(target_host=record.address, namespace=record.namespace)
    try:
        return await connect(config=config, wait_s=CONNECT_WAIT_S)
    except ServerUnreachableError:
        return None


def live(record: ClusterRecord) -> Live:
    """What runs now."""

    async def ask() -> Live:
        client = await _client(record)
        unknown = Live(count=0, known=False)
        return unknown if client is None else await readiness.live_attempts(client)

    return asyncio.run(ask())


def until_text(left: Live) -> str:
    """When the last lease of a stopped cluster's steps runs out, for people."""
    at = datetime.now(UTC).timestamp() + left.longest_lease_ms / 1_000
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")
