"""What commands share: a client for the time of one command, and the meaning of ``last``."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

from headbay.client.cli.console import say

if TYPE_CHECKING:
    from headbay.activities.places import Places
    from headbay.client.client import HeadbayClient

__all__ = ["LAST", "ensure_cluster", "places", "remember", "resolve_id", "with_client"]

LAST: Final = "last"
"""Stands for the workload that was submitted last from this account."""

T = TypeVar("T")


def places() -> "Places":
    """Where Headbay keeps things on this machine."""
    from headbay.activities.places import Places

    return Places.find(os.environ)


def with_client(work: Callable[["HeadbayClient"], Awaitable[T]]) -> T:
    """Connect, work, close; what the work returns."""
    from headbay.client.client import HeadbayClient

    _hush()

    async def session() -> T:
        async with await HeadbayClient.connect() as client:
            return await work(client)

    return asyncio.run(session())


@cache
def _hush() -> None:
    """Let the SDK's core log errors alone: it warns of every retry, and we say it in our words."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    quiet = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    telemetry = TelemetryConfig(logging=LoggingConfig(filter=quiet))
    Runtime.set_default(Runtime(telemetry=telemetry), error_if_already_set=False)


def resolve_id(workload: str) -> str:
    """The id itself, or what ``last`` stands for.

    Raises:
        NothingSubmittedError: ``last``, but nothing was submitted yet.
    """
    from headbay.client.cli.problems import NothingSubmittedError

    if workload != LAST:
        return workload
    try:
        last = places().last.read_text().strip()
    except FileNotFoundError as error:
        raise NothingSubmittedError from error
    if not last:
        raise NothingSubmittedError
    return last


def remember(workload: str) -> None:
    """Make ``last`` mean this workload. It was submitted: that this fails is no reason to fail."""
    from headbay.activities.places import private

    file = places().last
    try:
        private(file.parent)
        draft = file.with_name(f".last.{os.getpid()}")
        draft.write_text(workload + "\n")
        draft.replace(file)
    except OSError as error:
        why = f"{file}: {error.strerror}"
        say(f"`{LAST}` will not mean this workload: {why}", kind="warning")


def ensure_cluster() -> None:
    """Start the embedded cluster where no server is configured and none runs; wait until it is up.

    Raises:
        ClusterNotInstalledError: Its packages are missing.
        ClusterNotStartedError: It did not start; its own words were shown.
    """
    from headbay.client.cli.problems import ClusterNotInstalledError, ClusterNotStartedError
    from headbay.client.connection import find_target

    target = find_target(os.environ, places())
    if target is not None and (target.dev is None or target.dev.phase == "ready"):
        return
    if find_spec("structlog") is None:
        raise ClusterNotInstalledError
    if target is None:
        say(
            "no Temporal server is configured: starting the embedded cluster on this machine "
            "(`headbay dev status` shows it, `headbay dev stop` ends it)"
        )
    # Its progress is for people, so it goes to standard error; it lives on in a session of its own.
    started = subprocess.run(
        [sys.executable, "-m", "headbay.workers.dev", "start"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    if started.returncode != 0:
        raise ClusterNotStartedError(started.returncode)
    if find_target(os.environ, places()) is None:
        raise ClusterNotStartedError(started.returncode)
