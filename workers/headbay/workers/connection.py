"""How workers reach Temporal: as `temporal` itself does, else the running dev cluster.

Never in here: a second set of connection settings. Address, namespace, TLS and API keys come from
the SDK's ``envconfig`` (``TEMPORAL_*`` variables and TOML profiles).
"""

import asyncio
import os
import time
from datetime import timedelta
from typing import ClassVar

import structlog
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfigProfile, ClientConnectConfig
from temporalio.service import RPCError, RPCStatusCode

from headbay.activities.places import Places
from headbay.domain.errors import HeadbayError

__all__ = ["NoServerConfiguredError", "ServerUnreachableError", "configuration", "connect"]

log = structlog.get_logger(__name__)

WAIT_S = 60.0
"""How long a worker waits for a server that does not answer yet."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
SAY_EVERY_S = 3.0
RPC_TIMEOUT = timedelta(seconds=5)

HOPELESS = frozenset(
    {
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.UNIMPLEMENTED,
    }
)
"""Answers that waiting does not change."""


class NoServerConfiguredError(HeadbayError):
    """No Temporal address is configured, and no dev cluster runs."""

    code: ClassVar[str] = "NO_SERVER_CONFIGURED"


class ServerUnreachableError(HeadbayError):
    """The configured Temporal server did not answer.

    Attributes:
        address: Where it was looked for. namespace: Which one was asked for.
    """

    code: ClassVar[str] = "SERVER_UNREACHABLE"

    def __init__(self, address: str, namespace: str, why: str) -> None:
        super().__init__(
            f"Temporal at {address}, namespace {namespace!r}: {why}; check TEMPORAL_ADDRESS, "
            "TEMPORAL_NAMESPACE and TEMPORAL_PROFILE, or run `headbay doctor`"
        )
        self.address = address
        self.namespace = namespace


def configuration() -> ClientConnectConfig:
    """Address, namespace and credentials: an `envconfig` profile, else the dev cluster.

    Raises:
        NoServerConfiguredError: Neither exists.
    """
    config = ClientConfigProfile.load().to_client_connect_config()
    if "target_host" in config:
        return config
    dev = Places.find(os.environ).dev_cluster()
    if dev is None:
        raise NoServerConfiguredError(
            "no Temporal address is configured and no dev cluster runs: set TEMPORAL_ADDRESS "
            "(or TEMPORAL_PROFILE), or start one with `headbay dev`"
        )
    # Nothing else of the profile: its API key and TLS settings are for another server.
    return ClientConnectConfig(target_host=dev.address, namespace=dev.namespace)


async def connect(
    *,
    config: ClientConnectConfig | None = None,
    wait_s: float = WAIT_S,
    identity: str | None = None,
    converter: DataConverter = pydantic_data_converter,
) -> Client:
    """A client whose server and namespace have answered.

    Tries again until the deadline, since servers and workers are started together, and says
    every few seconds what it waits for.

    Args:
        config: Where; None for `configuration`.
        wait_s: How long to try, in seconds.
        identity: What Temporal shows as the worker's identity; None for ``pid@host``.
        converter: Reads and writes payloads.

    Raises:
        NoServerConfiguredError: Nothing says where the server is.
        ServerUnreachableError: It did not answer in time, or refused for good.
    """
    config = configuration() if config is None else config
    address, namespace = config.get("target_host", ""), config.get("namespace", "default")
    deadline = time.monotonic() + wait_s
    say_at = time.monotonic() + SAY_EVERY_S
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await _connect_once(config, namespace, identity, converter)
        except (RPCError, RuntimeError) as error:
            hopeless = isinstance(error, RPCError) and error.status in HOPELESS
            if hopeless or time.monotonic() + pause > deadline:
                raise ServerUnreachableError(address, namespace, _why(error)) from error
            if time.monotonic() >= say_at:
                say_at = time.monotonic() + SAY_EVERY_S
                log.info("temporal.waiting", address=address, namespace=namespace, why=_why(error))
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


async def _connect_once(
    config: ClientConnectConfig, namespace: str, identity: str | None, converter: DataConverter
) -> Client:
    """Connect and ask for the namespace: a server may answer before it has made it."""
    client = await Client.connect(**config, data_converter=converter, identity=identity)
    await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=namespace), timeout=RPC_TIMEOUT
    )
    return client


def _why(error: Exception) -> str:
    if isinstance(error, RPCError):
        return f"{error.status.name}: {error.message}"
    return str(error).splitlines()[0][:300]
