"""Real clusters for the tests of workflows."""

from collections.abc import AsyncIterator

import pytest
from support.cluster import Cluster


@pytest.fixture
async def cluster(tmp_path, request) -> AsyncIterator[Cluster]:
    """Server, control worker and one node `n1` with 4 CPUs, each a process of its own."""
    made = Cluster(tmp_path)
    try:
        await made.start_server()
        made.start_control()
        made.start_node("n1", "--cpu", "4", "--memory", "8Gi")
        await made.node_up("n1")
        yield made
    finally:
        made.stop()
        if getattr(request.node, "rep_call", None) is None or request.node.rep_call.failed:
            print(made.logs())  # noqa: T201 - shown by pytest for failed tests only
