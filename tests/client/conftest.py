"""A real cluster for the tests of the client: server, control worker and one node of this machine.

One for all tests of a file: what they submit, cordon or cancel, they leave behind as others may
expect it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from support.cluster import Cluster
from support.command import Command

from headbay.client import HeadbayClient


async def _start(cluster: Cluster) -> None:
    await cluster.start_server()
    cluster.start_control()
    cluster.start_node("n1", "--cpu", "4", "--memory", "8Gi")
    await cluster.node_up("n1")
    cluster.client = None  # It belongs to this event loop.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """The cluster; its node is ``n1`` with 4 CPUs."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        try:
            asyncio.run(_start(made))
        except BaseException:
            print(made.logs())  # noqa: T201 - shown by pytest for failed tests only
            raise
        yield made
    finally:
        made.stop()


@pytest.fixture
async def headbay(cluster) -> AsyncIterator[HeadbayClient]:
    """A connected client."""
    async with await HeadbayClient.connect(environ=cluster.env) as client:
        yield client


@pytest.fixture
def command(cluster, tmp_path) -> Command:
    """The command line."""
    return Command(cluster, tmp_path)
