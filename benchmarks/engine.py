"""Engine throughput: workloads and DAG steps, against one-activity workflows and a fan-out.

The null executor replaces the launcher alone: every step is granted by the pool, runs as one
activity on the node's queue with an acknowledged heartbeat, is completed by token, and journaled.
"""

import asyncio
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from benchmarks.floor import WORKFLOW_QUEUE, FanOut, One
from benchmarks.stage import Stage, say
from headbay.domain.ids import CONTROL_QUEUE, pool_workflow_id, workload_workflow_id

__all__ = ["Engine", "Result"]

STARTS_IN_FLIGHT = 64
TARGETS = {
    "single_ratio": 0.6,
    "dag_ratio": 0.8,
    "own_events_per_workload": 18.0,
    "own_events_per_step": 3.6,
}


@dataclass
class Result:
    """What was measured; rates are per second, one entry a pair."""

    workloads: int
    steps: int
    slots: int
    floor_workflows_per_s: list[float] = field(default_factory=list)
    workloads_per_s: list[float] = field(default_factory=list)
    floor_activities_per_s: list[float] = field(default_factory=list)
    steps_per_s: list[float] = field(default_factory=list)
    own_events_per_workload: float = 0.0
    pool_events_per_workload: float = 0.0
    own_events_per_step: float = 0.0
    pool_events_per_step: float = 0.0

    @property
    def single_ratio(self) -> float:
        """Median of the pairs' ratios."""
        return _median_ratio(self.workloads_per_s, self.floor_workflows_per_s)

    @property
    def dag_ratio(self) -> float:
        """Median of the pairs' ratios."""
        return _median_ratio(self.steps_per_s, self.floor_activities_per_s)

    def to_json(self) -> dict[str, Any]:
        """All of it, with the ratios, and whether each target was met."""
        shown = asdict(self) | {"single_ratio": self.single_ratio, "dag_ratio": self.dag_ratio}
        rounded: dict[str, Any] = {
            k: [round(x, 1) for x in v] if isinstance(v, list) else round(v, 3)
            for k, v in shown.items()
        }
        met = {
            name: shown[name] >= bound if name.endswith("_ratio") else shown[name] <= bound
            for name, bound in TARGETS.items()
        }
        return rounded | {"targets": TARGETS, "met": met}


def _median_ratio(ours: list[float], floors: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, floors, strict=True))


class Engine:
    """The benchmark.

    Args:
        stage: Where.
        workloads: Single-step workloads a round. steps: Steps of the DAG. slots: The node's CPUs.
    """

    def __init__(self, stage: Stage, *, workloads: int, steps: int, slots: int) -> None:
        self._client = stage.client
        self._result = Result(workloads=workloads, steps=steps, slots=slots)
        self._run = uuid.uuid4().hex[:8]
        self._round = 0

    async def measure(self, pairs: int) -> Result:
        """Warm everything up, then measure floor and ours in turn."""
        result = self._result
        say("warming up")
        for warm_up in (self._floor_workflows, self._workloads):
            await warm_up(20)
        for warm_up in (self._floor_activities, self._dag):
            await warm_up(50)
        for pair in range(1, pairs + 1):
            n = result.workloads
            result.floor_workflows_per_s.append(
                await _timed(f"pair {pair}: {n} one-activity workflows", n, self._floor_workflows)
            )
            before = await self._pool_events()
            result.workloads_per_s.append(
                await _timed(f"pair {pair}: {n} single-step workloads", n, self._workloads)
            )
            result.pool_events_per_workload = (await self._pool_events() - before) / n
        for pair in range(1, pairs + 1):
            n = result.steps
            result.floor_activities_per_s.append(
                await _timed(f"pair {pair}: fan-out of {n} activities", n, self._floor_activities)
            )
            before = await self._pool_events()
            result.steps_per_s.append(await _timed(f"pair {pair}: DAG of {n} steps", n, self._dag))
            result.pool_events_per_step = (await self._pool_events() - before) / n
        return result

    # -- the floors ----------------------------------------------------------------------------

    async def _floor_workflows(self, count: int) -> None:
        async def one(number: int) -> WorkflowHandle[Any, Any]:
            return await self._client.start_workflow(
                One.run,
                {"step": "s"},
                id=f"floor/{self._name()}/{number}",
                task_queue=WORKFLOW_QUEUE,
            )

        await _results(await _start_all(one, count))

    async def _floor_activities(self, count: int) -> None:
        handle = await self._client.start_workflow(
            FanOut.run, count, id=f"floor/{self._name()}", task_queue=WORKFLOW_QUEUE
        )
        answered = await handle.result()
        assert answered == count, f"{answered} of {count} activities answered"

    # -- ours ----------------------------------------------------------------------------------

    async def _workloads(self, count: int) -> None:
        name = self._name()
        document = _document("bench", 1)

        async def one(number: int) -> WorkflowHandle[Any, Any]:
            return await _submit(self._client, f"{name}-{number}", document)

        handles = await _start_all(one, count)
        for status in await _results(handles):
            assert status["status"] == "SUCCEEDED", status
        self._result.own_events_per_workload = statistics.mean(
            [(await handle.describe()).history_length for handle in handles]
        )

    async def _dag(self, count: int) -> None:
        handle = await _submit(self._client, self._name(), _document("bench-dag", count))
        status = await handle.result()
        assert status["counts"] == {"SUCCEEDED": count}, status["counts"]
        self._result.own_events_per_step = (await handle.describe()).history_length / count

    def _name(self) -> str:
        self._round += 1
        return f"bench-{self._run}-{self._round}"

    async def _pool_events(self) -> int:
        """Events of all runs of the pool so far: it continues as new under way."""
        total = 0
        handle = self._client.get_workflow_handle(pool_workflow_id("default"))
        run: str | None = (await handle.describe()).run_id
        while run is not None:
            one = self._client.get_workflow_handle(pool_workflow_id("default"), run_id=run)
            description = await one.describe()
            total += description.history_length
            first = await anext(aiter(one.fetch_history_events(page_size=1)))
            started = first.workflow_execution_started_event_attributes
            run = started.continued_execution_run_id or None
        return total


async def _timed(what: str, count: int, work: Callable[[int], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work(count)
    rate = count / (time.perf_counter() - began)
    say(f"{what}: {rate:.1f}/s")
    return rate


async def _start_all(
    start: Callable[[int], Awaitable[WorkflowHandle[Any, Any]]], count: int
) -> list[WorkflowHandle[Any, Any]]:
    in_flight = asyncio.Semaphore(STARTS_IN_FLIGHT)

    async def one(number: int) -> WorkflowHandle[Any, Any]:
        async with in_flight:
            return await start(number)

    return await asyncio.gather(*(one(number) for number in range(count)))


async def _results(handles: list[WorkflowHandle[Any, Any]]) -> list[Any]:
    return await asyncio.gather(*(handle.result() for handle in handles))


def _document(name: str, steps: int) -> dict[str, Any]:
    return {
        "apiVersion": "headbay/v1",
        "name": name,
        "defaults": {"resources": {"cpu": 1, "memory": "1Mi", "tasks": 1}},
        "steps": [{"name": f"s{number}", "run": ["true"]} for number in range(steps)],
    }


async def _submit(
    client: Client, workload: str, document: dict[str, Any]
) -> WorkflowHandle[Any, Any]:
    """Start a workload with the search attributes that Headbay's client gives it."""
    keyword = SearchAttributeKey.for_keyword
    attributes = TypedSearchAttributes(
        [
            SearchAttributePair(keyword("HeadbayPool"), "default"),
            SearchAttributePair(keyword("HeadbayQueue"), "default"),
            SearchAttributePair(keyword("HeadbayName"), document["name"]),
            SearchAttributePair(SearchAttributeKey.for_int("HeadbayPriority"), 0),
        ]
    )
    return await client.start_workflow(
        "Workload",
        args=[document],
        id=workload_workflow_id(workload),
        task_queue=CONTROL_QUEUE,
        search_attributes=attributes,
        static_summary=document["name"],
    )
