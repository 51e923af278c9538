"""`python -m headbay.workers.control`: run a control worker until SIGTERM."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta

import structlog
import uvloop
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from headbay.activities.ledger import open_ledger
from headbay.activities.places import Places
from headbay.domain.errors import HeadbayError
from headbay.domain.ids import CONTROL_QUEUE, POOL_QUEUE
from headbay.domain.operation import LEAST_EVENTS
from headbay.workers.connection import connect
from headbay.workers.control.activities import ControlActivities
from headbay.workers.control.attributes import register_search_attributes
from headbay.workers.control.batcher import Senders
from headbay.workers.control.journaler import Journaler
from headbay.workers.control.refiller import Refiller
from headbay.workers.control.watch import Watch
from headbay.workers.garbage import calm
from headbay.workers.logs import configure
from headbay.workflows.node import Node
from headbay.workflows.payloads import data_converter
from headbay.workflows.pool import Pool, PoolSettings
from headbay.workflows.workload import Workload

log = structlog.get_logger(__name__)

STICKY_TIMEOUT = timedelta(seconds=2)
"""After a worker was killed, tasks bound to its cache wait this long before another takes them."""


def _events(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < LEAST_EVENTS:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of at least {LEAST_EVENTS}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Options of the control worker."""
    options = argparse.ArgumentParser(
        prog="headbay worker control",
        description="Hosts Workload, Pool and Node workflows. Connects as `temporal` does: "
        "TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_PROFILE; else the running dev cluster.",
    )
    options.add_argument(
        "--ledger",
        default=os.environ.get("HEADBAY_LEDGER"),
        help="sqlite:///PATH or postgresql://… (default: $HEADBAY_LEDGER, else a SQLite file in "
        "the state directory)",
    )
    options.add_argument(
        "--pool",
        action="append",
        default=[],
        help="pool to keep running; may be given several times (default: default)",
    )
    options.add_argument(
        "--pool-continue-after",
        type=_events,
        default=PoolSettings().continue_after_events,
        metavar="EVENTS",
        help="history length at which a pool continues as new (default: %(default)s)",
    )
    return options


def sandbox() -> SandboxedWorkflowRunner:
    """The workflow sandbox, for replay in tests: it catches what import rules cannot.

    Our own packages are passed through: the default triples the CPU of a workflow task.
    """
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(
            "headbay", "pydantic", "pydantic_core", "annotated_types"
        )
    )


def workers(client: Client, activities: ControlActivities) -> tuple[Worker, Worker]:
    """The two workers of a control process: workloads, and pools with nodes.

    They run outside of the sandbox: measured, a fifth of their CPU went into entering and leaving
    it for every payload (docs/adr/010). Imports are checked, and every recorded history is
    replayed inside of it. Payloads are not kept outside of Temporal: the SDK's concurrency for
    that, a task for every payload, is off.
    """
    workloads = Worker(
        client,
        task_queue=CONTROL_QUEUE,
        workflows=[Workload],
        activities=[activities.exchange],
        workflow_runner=UnsandboxedWorkflowRunner(),
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        max_concurrent_workflow_tasks=200,
        max_concurrent_local_activities=500,
        max_cached_workflows=1_000,
        max_workflow_task_external_storage_concurrency=1,
    )
    pools = Worker(
        client,
        task_queue=POOL_QUEUE,
        workflows=[Pool, Node],
        activities=[
            activities.report,
            activities.deliver,
            activities.census,
            activities.holders,
        ],
        workflow_runner=UnsandboxedWorkflowRunner(),
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        max_cached_workflows=1_000,
        max_workflow_task_external_storage_concurrency=1,
    )
    return workloads, pools


async def serve(options: argparse.Namespace) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = PoolSettings(continue_after_events=options.pool_continue_after)
    ledger = open_ledger(options.ledger or f"sqlite:///{Places.find(os.environ).ledger}")
    await ledger.migrate()
    client = await connect(converter=data_converter)
    await register_search_attributes(client)
    journaler, senders = Journaler(ledger), Senders(client, settings)
    activities = ControlActivities(client, senders, journaler, ledger)
    workloads, pools = workers(client, activities)
    background: list[asyncio.Task[None]] = [
        journaler.task,
        asyncio.create_task(Watch(client, options.pool or ["default"], settings).run()),
        asyncio.create_task(Refiller(client, ledger, journaler).run()),
    ]
    async with workloads, pools:
        log.info("control.ready", namespace=client.namespace, pools=options.pool or ["default"])
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([waiting, *background], return_when=asyncio.FIRST_COMPLETED)
        for task in background:
            if task.done():
                task.result()
        log.info("control.stopping")
    await senders.close()
    await journaler.close()
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)
    await ledger.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; ends by `os._exit`, since the SDK may abort at interpreter exit.

    Source: temporalio/sdk-python#300.
    """
    options = parser().parse_args(arguments)
    calm()
    configure(process="control")
    status = 1
    try:
        uvloop.run(serve(options))
        status = 0
    except HeadbayError as error:
        log.error("control.failed", code=error.code, message=str(error))  # noqa: TRY400 - for people
    except Exception:
        log.exception("control.failed")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
