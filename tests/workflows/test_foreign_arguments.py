"""Whatever a foreign program sends: it is refused, and the workflow goes on."""

import asyncio
from datetime import timedelta

import pytest
from support.cluster import until
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import RawValue

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

WORKLOAD, NODE, POOL = "headbay/w/any", "headbay/node/n1", "headbay/pool/default"
SIGNALS = {
    WORKLOAD: ("grants", "refused", "gone", "late_exit", "call_in", "cancel", "resolve"),
    NODE: ("presence_stale", "report", "retire", "cordon", "uncordon", "drain"),
    POOL: ("gone",),
}
UPDATES = {
    WORKLOAD: ("cancel", "resolve"),
    NODE: ("register", "cordon", "uncordon", "drain"),
    POOL: ("exchange", "report"),
}


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


UNREADABLE = {
    "deep": raw(b"[" * 100_000 + b"]" * 100_000),
    "surrogate": raw(b'{"name": "\\ud800"}'),
    "digits": raw(b'{"priority": ' + b"9" * 5_000 + b"}"),
    "torn": raw(b'{"name": '),
    "not-utf8": raw(b'{"name": "\xff"}'),
    "foreign": raw(b"\0\1\2", b"binary/encrypted"),
}


async def refusal(cluster, workflow: str, update: str, arguments: list) -> str:
    """The code with which an update is refused: a pool fails it, the others answer it."""
    handle = cluster.client.get_workflow_handle(workflow)
    try:
        answered = await handle.execute_update(
            update, args=arguments, rpc_timeout=timedelta(seconds=10)
        )
    except WorkflowUpdateFailedError as error:
        if workflow != POOL:
            raise
        return error.cause.type
    return answered["code"]


async def test_a_workflow_goes_on_whatever_it_is_told(cluster):
    await cluster.submit("any", {"steps": [{"name": "s", "run": "sleep 300", "grace": "1s"}]})

    async def running() -> bool:
        return (await cluster.step("any", "s"))["state"] == "RUNNING"

    await until(running, 30)
    told = [[{"by": "ann"}] * 2, [{"by": "ann"}] * 3, *([item] for item in UNREADABLE.values())]
    for arguments in told:
        for workflow, names in SIGNALS.items():
            for name in names:
                await cluster.client.get_workflow_handle(workflow).signal(name, args=arguments)
        for workflow, names in UPDATES.items():
            for name in names:
                code = await refusal(cluster, workflow, name, arguments)
                assert code == "BAD_ARGUMENT", (workflow, name, arguments)
    for name in UPDATES[POOL]:
        assert await refusal(cluster, POOL, name, []) == "BAD_ARGUMENT"
    for workflow in SIGNALS:
        refused = await cluster.query(workflow, "refusals")
        assert {row["code"] for row in refused} == {"BAD_ARGUMENT"}, workflow
    assert not (await cluster.node())["cordoned"]
    assert (await cluster.status("any"))["status"] == "RUNNING"
    await cluster.client.get_workflow_handle(WORKLOAD).signal("cancel", {"by": "ann"})

    async def cancelled() -> bool:
        return (await cluster.status("any"))["status"] == "CANCELLED"

    await until(cancelled, 30)


STARTS = {
    **{name: ([item], "DOCUMENT_REFUSED", "no JSON") for name, item in UNREADABLE.items()},
    "none": ([], "DOCUMENT_REFUSED", "the document is empty"),
    "three": ([{}, {}, {}], "BAD_CONTEXT", "3 arguments came"),
    "context": ([{}, UNREADABLE["torn"]], "BAD_CONTEXT", "context"),
    "no-base64": ([{}, {"previous": "!!!!"}], "BAD_CONTEXT", "previous: "),
    "no-state": ([{}, {"previous": "AAAA"}], "BAD_CONTEXT", "previous: "),
    "not-ascii": ([{}, {"previous": "é"}], "BAD_CONTEXT", "previous: "),
    "no-events": ([{}, {"continue_after_events": 0}], "BAD_CONTEXT", "greater than or equal to 50"),
}


async def test_a_start_that_cannot_be_meant_is_refused(cluster):
    async def refused(name: str) -> tuple[str, str]:
        handle = await cluster.client.start_workflow(
            "Workload", args=STARTS[name][0], id=f"headbay/w/{name}", task_queue="headbay"
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await asyncio.wait_for(handle.result(), 60)
        return failed.value.cause.type, str(failed.value.cause)

    found = dict(zip(STARTS, await asyncio.gather(*map(refused, STARTS)), strict=True))
    for name, (_, kind, said) in STARTS.items():
        assert found[name][0] == kind, (name, found[name])
        assert said in found[name][1], (name, found[name])
