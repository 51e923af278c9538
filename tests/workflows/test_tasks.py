"""Promise: a side task that breaks is seen by the main loop; one that ends or is ended is not."""

import asyncio

import pytest

from headbay.workflows.tasks import Tasks


async def test_what_breaks_is_raised_where_it_is_seen():
    tasks = Tasks()

    async def breaks() -> None:
        raise KeyError("lost")

    await asyncio.wait([tasks.start(breaks())])
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="lost") as caught:
        tasks.check()
    assert isinstance(caught.value.__cause__, KeyError)


async def test_the_end_of_a_task_is_no_fault_nor_is_its_cancellation():
    tasks = Tasks()

    async def ends(seconds: float) -> None:
        await asyncio.sleep(seconds)

    long = tasks.start(ends(60))
    await asyncio.wait([tasks.start(ends(0))])
    long.cancel()
    await asyncio.wait([long])
    await asyncio.sleep(0)
    assert tasks.broken is None
    tasks.check()
