"""`python -m headbay.workers.node`: run a node worker until SIGTERM."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import structlog
import uvloop
from temporalio.worker import Worker

from headbay.activities.artifacts import DirectoryStore
from headbay.activities.executor import ExecutorSettings, prove_executor
from headbay.activities.places import Places, private
from headbay.domain.errors import HeadbayError
from headbay.workers.connection import connect
from headbay.workers.garbage import calm
from headbay.workers.logs import configure
from headbay.workers.node.agent import Agent
from headbay.workers.node.notify import Notifier
from headbay.workers.node.options import BadOptionError, add_options, capacity, labels, taints
from headbay.workers.node.registration import facts_of, machine, register
from headbay.workers.node.spool import Spool

log = structlog.get_logger(__name__)

SLOTS = 2_000
"""Activities complete asynchronously: a slot is held only while an order is spooled."""

FILE_THREADS = 16
"""For files that may take long: inputs, artifacts, other people's folders, secrets."""

BAD_OPTION_EXIT = 2
REFUSED_EXIT = 3
"""These two ends are final: what starts it again would only see them again."""


def parser() -> argparse.ArgumentParser:
    """Options of the node worker."""
    options = argparse.ArgumentParser(
        prog="headbay worker node",
        description="Runs what this machine's pool grants it. Connects as `temporal` does: "
        "TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_PROFILE; else the running dev cluster.",
    )
    add_options(options)
    options.add_argument(
        "--executor",
        default="process",
        help="systemd, systemd-user, process, or auto: the first of these that proves itself, for "
        "trying things out (default: %(default)s)",
    )
    options.add_argument("--state", type=Path, help="state directory (default: $HEADBAY_STATE)")
    return options


async def serve(options: argparse.Namespace, notifier: Notifier) -> int:
    """Run until SIGTERM or SIGINT; the process's exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    offers, marks, keeps_off = capacity(options, machine()), labels(options), taints(options)
    places = Places(options.state.absolute()) if options.state else Places.find(os.environ)
    spool = Spool(places.node(options.name))
    spool.open()
    settings = ExecutorSettings(
        node=options.name,
        folder=private(spool.places.root / "executor"),
        run_as=options.run_as,
        allow_root_user=options.allow_root_user,
    )
    name, executor, capability, refused = await prove_executor(options.executor, settings)
    log.info("node.executor", name=name, isolation=capability.isolation, stronger=refused)
    facts = facts_of(
        options.name,
        options.pool,
        spool.places,
        capacity=offers,
        labels=marks,
        taints=keeps_off,
        executor=name,
        isolation=capability.isolation,
    )
    client = await connect()
    store = DirectoryStore(Path(options.artifacts) if options.artifacts else places.artifacts)
    agent = Agent(client, facts, places, spool, executor, store)
    log.info("node.adopted", attempts=await agent.adopt(), isolation=facts.isolation)
    sweeper = asyncio.create_task(agent.sweep_forever())
    pinger = asyncio.create_task(notifier.keep(agent.summary))
    stopping = asyncio.create_task(stop.wait())
    while not stop.is_set():
        registering = asyncio.create_task(register(client, facts, agent.inventory_now))
        await asyncio.wait([registering, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not registering.done():
            registering.cancel()
            break
        registered, sent = registering.result()
        if not registered.accepted:
            log.error("node.refused", code=registered.code, message=registered.message)
            return REFUSED_EXIT
        agent.epoch = registered.epoch
        agent.resume_presence(sent, registered.presence_ttl_ms)
        worker = Worker(
            client,
            task_queue=agent.workflow_queue(),
            activities=[agent.execute, agent.stop, agent.inventory, agent.presence],
            max_concurrent_activities=SLOTS,
            graceful_shutdown_timeout=timedelta(seconds=2),
        )
        async with worker:
            notifier.ready(agent.summary())
            log.info("node.ready", name=facts.name, epoch=agent.epoch, capacity=facts.capacity)
            lost = asyncio.create_task(agent.presence_lost.wait())
            await asyncio.wait([lost, stopping], return_when=asyncio.FIRST_COMPLETED)
            lost.cancel()
    notifier.stopping()
    log.info("node.stopping", running=len(agent.inventory_now().live))
    sweeper.cancel()
    pinger.cancel()
    await agent.close()
    spool.close()
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; ends by `os._exit`, since the SDK may abort at interpreter exit.

    Source: temporalio/sdk-python#300.
    """
    options = parser().parse_args(arguments)
    notifier = Notifier.take(os.environ)
    calm()
    configure(process=f"node {options.name}")
    try:
        status = uvloop.run(serve(options, notifier))
    except HeadbayError as error:
        log.error("node.failed", code=error.code, message=str(error))  # noqa: TRY400 - for people
        status = BAD_OPTION_EXIT if isinstance(error, BadOptionError) else 1
    except OSError as error:
        if error.filename is None:
            log.exception("node.failed")
        else:
            why = f"{error.filename}: {error.strerror}; is the state directory writable?"
            log.error("node.failed", code="STATE_UNUSABLE", message=why)  # noqa: TRY400 - for people
        status = 1
    except Exception:
        log.exception("node.failed")
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
