"""How a client reaches Temporal: as `temporal` itself does, else the running dev cluster.

Never in here: a second set of connection settings. Address, namespace, TLS and API keys come from
the SDK's ``envconfig`` (``TEMPORAL_*`` variables and TOML profiles).
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfigProfile, ClientConnectConfig
from temporalio.service import RPCError, RPCStatusCode

from headbay.activities.places import DevCluster, Places
from headbay.client.errors import (
    BadConfigurationError,
    NoServerConfiguredError,
    ServerUnreachableError,
)

__all__ = [
    "AWAY",
    "QUERY_TIMEOUT",
    "Target",
    "answered",
    "find_target",
    "is_away",
    "open_temporal",
]

QUERY_TIMEOUT: Final = timedelta(seconds=3)
"""Bound of everything that needs a worker's answer: without one the server would wait for ever."""

RPC_TIMEOUT: Final = timedelta(seconds=5)
WAIT_S: Final = 5.0

AWAY: Final = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.UNKNOWN,
    }
)
"""Answers that say nothing about what was asked: the server or its worker is away for now."""

HOPELESS: Final = frozenset(
    {
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.UNIMPLEMENTED,
    }
)


T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """Which cluster a client speaks to.

    Attributes:
        config: Arguments of `temporalio.client.Client.connect`.
        address, namespace: For people.
        dev: The dev cluster of this machine, if it is the target.
    """

    config: ClientConnectConfig
    address: str
    namespace: str
    dev: DevCluster | None = None


def is_away(error: RPCError) -> bool:
    """Whether asking again later may help."""
    return error.status in AWAY


async def answered(call: Awaitable[T]) -> T:
    """The answer to a call that was given ``rpc_timeout=QUERY_TIMEOUT``.

    The SDK grants that time to each of its own retries; here it bounds them together.

    Raises:
        RPCError: The call's own, or DEADLINE_EXCEEDED.
    """
    try:
        async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):
            return await call
    except TimeoutError as error:
        said = f"no answer within {QUERY_TIMEOUT.seconds} s"
        raise RPCError(said, RPCStatusCode.DEADLINE_EXCEEDED, b"") from error


def find_target(environ: Mapping[str, str], places: Places) -> Target | None:
    """The configured server, else the running dev cluster, else None.

    Raises:
        BadConfigurationError: A profile or its file cannot be read.
    """
    dev = places.dev_cluster()
    try:
        profile = ClientConfigProfile.load(override_env_vars=dict(environ))
        config = profile.to_client_connect_config()
    except (RuntimeError, ValueError) as error:
        raise BadConfigurationError(
            f"the Temporal connection settings cannot be read ({error}); correct them, or unset "
            "TEMPORAL_PROFILE and TEMPORAL_CONFIG_FILE"
        ) from error
    address = config.get("target_host")
    if address:
        ours = dev if dev is not None and dev.address == address else None
        return Target(config, address, config.get("namespace") or "default", ours)
    if dev is None:
        return None
    # Nothing else of the profile: its API key and TLS settings are for another server.
    local = ClientConnectConfig(target_host=dev.address, namespace=dev.namespace)
    return Target(local, dev.address, dev.namespace, dev)


async def open_temporal(target: Target | None, *, wait_s: float = WAIT_S) -> Client:
    """A client whose server and namespace have answered.

    Raises:
        NoServerConfiguredError: There is no target.
        ServerUnreachableError: It did not answer within ``wait_s`` seconds, or refused for good.
    """
    if target is None:
        raise NoServerConfiguredError
    deadline = time.monotonic() + wait_s
    pause = 0.05
    while True:
        try:
            return await _open_once(target)
        except (RPCError, RuntimeError) as error:
            hopeless = isinstance(error, RPCError) and error.status in HOPELESS
            if hopeless or time.monotonic() + pause > deadline:
                raise ServerUnreachableError(
                    target.address, target.namespace, _why(error)
                ) from error
        await asyncio.sleep(pause)
        pause = min(2 * pause, 1.0)


async def _open_once(target: Target) -> Client:
    client = await Client.connect(**target.config, data_converter=pydantic_data_converter)
    await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), timeout=RPC_TIMEOUT
    )
    return client


def _why(error: Exception) -> str:
    if isinstance(error, RPCError):
        return f"{error.status.name}: {error.message}"
    return str(error).splitlines()[0][:300]
