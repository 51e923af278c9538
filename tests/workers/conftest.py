"""A node's agent whose parts are real; only nobody is at the other end."""

import asyncio

import pytest

from headbay.activities.artifacts import DirectoryStore
from headbay.activities.executor import ExecutorSettings
from headbay.activities.executor.null import NullExecutor
from headbay.activities.places import Places
from headbay.domain.exchange import NodeFacts
from headbay.workers.node.agent import Agent
from headbay.workers.node.spool import Spool


@pytest.fixture
async def agent(tmp_path):
    """Of a node `n` with one CPU."""
    places = Places(tmp_path)
    spool = Spool(places.node("n"))
    spool.open()
    facts = NodeFacts(name="n", machine_id="m", boot_id="b", capacity={"cpu": 1000})
    executor = NullExecutor(ExecutorSettings(node="n", folder=tmp_path / "executor"))
    made = Agent(None, facts, places, spool, executor, DirectoryStore(tmp_path / "a"))
    yield made
    await asyncio.to_thread(made.scribe.close)
    spool.close()
