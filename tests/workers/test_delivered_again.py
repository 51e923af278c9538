"""An order that comes a second time: of the same run it is the same attempt, of another its end."""

import asyncio

import pytest

from headbay.domain.attempt import LaunchSpec
from headbay.domain.outcome import Outcome
from headbay.workers.node.spool import Token, unit_name
from headbay.workers.node.supervision import Attempt

SPEC = LaunchSpec(
    workload="w", step="s", attempt=1, fence=7, allocation="a", pool="default", node="n", epoch=1,
    argv=["true"], resources={"cpu": 600},
)  # fmt: skip
UNIT = unit_name("w", "s", 1, 7)


@pytest.fixture
async def live(agent):
    """An attempt that is spooled and runs, ordered by run r1."""
    attempt = Attempt(agent.spool.entry(UNIT), SPEC, Token(b"t1", "r1"), agent)
    agent._live(attempt)
    await attempt.spool()
    return attempt


async def test_the_same_run_s_order_only_replaces_the_token(agent, live):
    assert await agent._deliver_again(live, Token(b"t2", "r1")) is None
    assert live.entry.token == live.token == Token(b"t2", "r1")
    assert live.entry.stop_reason() is None


async def test_another_run_s_order_is_answered_once_the_process_is_gone(agent, live):
    answer = asyncio.create_task(agent._deliver_again(live, Token(b"t2", "r2")))
    await asyncio.wait([answer], timeout=0.2)
    assert not answer.done(), "its answer frees capacity and lets the step run elsewhere"
    assert live.entry.stop_reason() == "lease_lost"
    live._over()
    result = await answer
    assert (result.outcome, result.began) == (Outcome.LEASE_LOST, False)
    assert live.token == Token(b"t1", "r1")


async def test_another_run_s_order_is_not_answered_while_the_process_cannot_be_killed(agent, live):
    live.spec = SPEC.model_copy(update={"lease_ms": 100})
    assert await agent._deliver_again(live, Token(b"t2", "r2")) is None
    assert agent.room.free() == {"cpu": 400}
