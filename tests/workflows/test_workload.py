"""The whole way of a workload through a real cluster."""

import json

import pytest
from support.cluster import Cluster, alive, spool_entries, until
from temporalio.client import WorkflowFailureError

from headbay.domain.ids import pool_workflow_id, workload_workflow_id

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def shell(name: str, run: str, **more) -> dict:
    return {"name": name, "run": run, "resources": {"memory": "64Mi"}, **more}


async def failure(handle) -> tuple[str, dict]:
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    return caught.value.cause.type, caught.value.cause.details[0]


async def settled(cluster: Cluster) -> None:
    """Nothing is allocated, pending or spooled any more."""

    async def nothing() -> bool:
        pool = await cluster.pool()
        return (
            not pool["allocations"]
            and not pool["pending"]
            and not pool["workloads"]
            and not spool_entries(cluster)
        )

    await until(nothing, 60, "nothing allocated, pending or spooled")


async def test_a_dag_runs_in_order_and_hands_outputs_on(cluster):
    handle = await cluster.submit(
        "dag",
        {
            "steps": [
                shell("a", "echo '{\"n\": 1}' > $HEADBAY_OUTPUT"),
                shell("b", "echo 2 > $HEADBAY_OUTPUT", dependsOn="a"),
                shell(
                    "join",
                    "cp $HEADBAY_INPUTS $HEADBAY_OUTPUT",
                    dependsOn=["a", "b"],
                ),
            ]
        },
    )
    result = await handle.result()
    assert result["status"] == "SUCCEEDED"
    steps = {s["name"]: s for s in result["steps"]}
    assert steps["join"]["output"]["value"] == {"a": {"n": 1}, "b": 2}
    a, b = steps["a"]["attempts"][0], steps["b"]["attempts"][0]
    assert a["fence"] < b["fence"] < steps["join"]["attempts"][0]["fence"]
    assert a["ended_ms"] <= b["started_ms"]
    await settled(cluster)


async def test_a_single_step_costs_at_most_18_events(cluster):
    handle = await cluster.submit("one", {"steps": [shell("s", "true")]})
    await handle.result()
    assert await cluster.events(workload_workflow_id("one")) <= 18


async def test_a_failing_step_skips_its_dependents_and_fails_the_workflow(cluster):
    handle = await cluster.submit(
        "bad",
        {
            "steps": [
                shell("boom", "exit 3"),
                shell("after", "true", dependsOn="boom"),
                shell("other", "true"),
            ]
        },
    )
    kind, result = await failure(handle)
    assert kind == "WORKLOAD_FAILED"
    steps = {s["name"]: s for s in result["steps"]}
    assert (steps["boom"]["state"], steps["boom"]["attempts"][0]["exit_code"]) == ("FAILED", 3)
    assert (steps["after"]["state"], steps["after"]["reason"]) == (
        "SKIPPED",
        "UPSTREAM_NOT_SUCCEEDED",
    )
    assert steps["other"]["state"] == "SUCCEEDED"


async def test_a_retried_step_succeeds_on_its_second_attempt(cluster, tmp_path):
    mark = tmp_path / "mark"
    handle = await cluster.submit(
        "retry",
        {
            "steps": [
                shell(
                    "flaky",
                    f"test -e {mark} || {{ touch {mark}; exit 1; }}",
                    retry={"maxAttempts": 2, "backoff": {"initial": "100ms"}},
                )
            ]
        },
    )
    result = await handle.result()
    outcomes = [a["outcome"] for a in result["steps"][0]["attempts"]]
    assert outcomes == ["FAILED", "SUCCEEDED"]


async def test_a_document_from_any_client_is_refused_with_all_its_problems(cluster):
    handle = await cluster.submit("broken", {"steps": [{"name": "A", "rnu": "true"}]})
    kind, problems = await failure(handle)
    assert kind == "DOCUMENT_REFUSED"
    assert len(problems) >= 2
    assert all(p["path"] and p["message"] for p in problems)


@pytest.mark.parametrize("operation", ["update", "signal", "temporal"])
async def test_cancel_kills_a_stubborn_tree_with_daemons_within_grace_and_two_seconds(
    cluster, tmp_path, operation
):
    pids = tmp_path / "pids"
    tree = (
        "trap '' TERM; echo $$ >> PIDS; "
        "(trap '' TERM; setsid bash -c 'trap \"\" TERM; echo $$ >> PIDS; "
        "while :; do sleep 0.2; done' & disown; exit 0); "
        "while :; do sleep 0.2; done"
    ).replace("PIDS", str(pids))
    handle = await cluster.submit("tree", {"steps": [shell("t", tree, grace="1s")]})

    async def both() -> bool:
        return pids.exists() and len(pids.read_text().split()) == 2

    await until(both, 30, "two processes of the tree")
    family = [int(p) for p in pids.read_text().split()]
    assert all(alive(p) for p in family)
    match operation:
        case "update":
            answer = await handle.execute_update("cancel", {"by": "ann", "reason": "enough"})
            assert answer["accepted"]
            again = await handle.execute_update("cancel", {"by": "bob"})
            assert again["code"] in {"ALREADY_CANCELLED", "ACCEPTED"}
        case "signal":
            await handle.signal("cancel", {"by": "ann", "reason": "enough"})
            await handle.signal("cancel", {"by": "bob"})
        case "temporal":
            await handle.cancel()

    async def dead() -> bool:
        return not any(alive(p) for p in family)

    await until(dead, 3.0, "the tree is dead within grace + 2 s")
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    status = await cluster.status("tree")
    assert status["status"] == "CANCELLED"
    assert status["steps"][0]["attempts"][0]["outcome"] == "CANCELLED"
    await settled(cluster)


async def test_cancel_in_every_other_state(cluster):
    blocker = await cluster.submit(
        "blocker", {"steps": [shell("s", "sleep 60", resources={"cpu": 4, "memory": "64Mi"})]}
    )
    queued = await cluster.submit(
        "queued",
        {
            "steps": [
                shell("q", "true", resources={"cpu": 4, "memory": "64Mi"}),
                shell("p", "true", dependsOn="q"),
            ]
        },
    )

    async def waits() -> bool:
        return (await cluster.step("queued", "q"))["state"] == "QUEUED"

    await until(waits, 20, "queued")
    await queued.execute_update("cancel", {"by": "ann"})
    kind, result = await failure(queued)
    assert kind == "WORKLOAD_CANCELLED"
    assert {s["state"] for s in result["steps"]} == {"CANCELLED"}
    assert not any(a.get("began") for s in result["steps"] for a in s.get("attempts", []))
    await blocker.execute_update("cancel", {"by": "ann"})
    await failure(blocker)
    retrying = await cluster.submit(
        "retrying",
        {
            "steps": [
                shell(
                    "r",
                    "exit 1",
                    retry={"maxAttempts": 3, "backoff": {"initial": "1h", "max": "1h"}},
                )
            ]
        },
    )

    async def backs_off() -> bool:
        step = await cluster.step("retrying", "r")
        return step["state"] == "PENDING" and bool(step.get("attempts"))

    await until(backs_off, 20, "waiting for its retry")
    await retrying.execute_update("cancel", {"by": "ann"})
    kind, _ = await failure(retrying)
    assert kind == "WORKLOAD_CANCELLED"
    await settled(cluster)


async def test_forty_large_outputs_meet_in_one_join_and_history_stays_small(cluster):
    make = "python3 -c 'import json;print(json.dumps(\"x\"*60000))' > $HEADBAY_OUTPUT"
    count = (
        'python3 -c \'import json,os;d=json.load(open(os.environ["HEADBAY_INPUTS"]));'
        "print(json.dumps([len(d),sum(map(len,d.values()))]))' > $HEADBAY_OUTPUT"
    )
    numbers = [str(n) for n in range(40)]
    small = {"cpu": "100m", "memory": "64Mi"}
    handle = await cluster.submit(
        "join40",
        {
            "steps": [
                shell("make", make, matrix={"N": numbers}, resources=small),
                shell("join", count, dependsOn="make"),
            ]
        },
    )
    result = await handle.result()
    join = next(s for s in result["steps"] if s["name"] == "join")
    assert join["output"]["value"] == [40, 40 * 60_000]
    size = (await handle.describe()).raw_description.workflow_execution_info.history_size_bytes
    assert size < 400_000, f"history of {size} bytes for 41 steps"


async def test_bad_operator_json_changes_nothing_and_can_be_read_back(cluster):
    handle = await cluster.submit("ops", {"steps": [shell("s", "sleep 2")]})
    for bad in ("text", 5, ["x"], {"by": 7}, None):
        await handle.signal("resolve", bad)
    await handle.signal("grants", {"nonsense": True})
    await handle.signal("gone", "nonsense")
    refused = await handle.execute_update("resolve", {"step": "s", "verdict": "success"})
    assert (refused["accepted"], refused["code"]) == (False, "NOT_UNRESOLVED")
    refused = await handle.execute_update("resolve", {"step": "zz", "verdict": "success"})
    assert refused["code"] == "UNKNOWN_STEP"
    assert (await handle.result())["status"] == "SUCCEEDED"
    rows = await handle.query("refusals")
    assert len(rows) >= 7
    pool = cluster.client.get_workflow_handle(pool_workflow_id("default"))
    await pool.signal("gone", {"nonsense": True})
    assert await pool.query("refusals")


async def test_impossible_resources_are_refused_at_once_with_numbers(cluster):
    handle = await cluster.submit(
        "huge", {"steps": [shell("s", "true", resources={"cpu": 64, "memory": "64Mi"})]}
    )
    kind, result = await failure(handle)
    assert kind == "WORKLOAD_FAILED"
    assert result["steps"][0]["reason"] == "EXCEEDS_EVERY_NODE"
    assert "cpu 64 > 4" in json.dumps(result)


async def test_a_workflow_id_that_names_no_workload_is_refused(cluster):
    document = {"apiVersion": "headbay/v1", "name": "x", "steps": [{"name": "s", "run": "true"}]}
    for workflow_id in ("headbay/w/..", "headbay/w/a b", "elsewhere/x"):
        handle = await cluster.client.start_workflow(
            "Workload", document, id=workflow_id, task_queue="headbay"
        )
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert caught.value.cause.type == "BAD_WORKLOAD_ID"


async def test_a_workload_drains_and_continues_as_new_without_losing_or_repeating(
    cluster, tmp_path
):
    log = tmp_path / "log"
    numbers = [str(n) for n in range(40)]
    document = {
        "maxParallel": 4,
        "steps": [
            shell("m", f"echo $N >> {log}; echo $N > $HEADBAY_OUTPUT", matrix={"N": numbers}),
            shell("join", "cp $HEADBAY_INPUTS $HEADBAY_OUTPUT", dependsOn="m"),
        ],
    }
    handle = await cluster.submit("continues", document, {"continue_after_events": 50})
    result = await handle.result()
    assert result["status"] == "SUCCEEDED"
    assert sorted(log.read_text().split(), key=int) == numbers, "each ran exactly once"
    join = next(s for s in result["steps"] if s["name"] == "join")
    assert sorted(join["output"]["value"].values()) == list(range(40))
    query = f"WorkflowId = '{workload_workflow_id('continues')}'"
    runs = [execution async for execution in cluster.client.list_workflows(query)]
    assert len(runs) >= 3
    await settled(cluster)


async def test_steps_with_large_environments_are_ordered_in_portions(cluster):
    """All of them in one workflow task would be a message that the server ends a workflow for."""
    large = {f"V{n}": "x" * 60_000 for n in range(14)}
    steps = [
        shell(f"s{n}", "echo ${#V13} > $HEADBAY_OUTPUT", resources={"cpu": "100m"})
        for n in range(12)
    ]
    handle = await cluster.submit("large", {"defaults": {"env": large}, "steps": steps})
    result = await handle.result()
    assert result["counts"] == {"SUCCEEDED": 12}
    assert {step["output"]["value"] for step in result["steps"]} == {60_000}
    await settled(cluster)


async def test_a_payload_that_removes_its_own_spool_entry_is_not_taken_for_one_that_never_ran(
    cluster, tmp_path
):
    log = tmp_path / "log"
    ruin = f'echo ran >> {log}; rm -rf "$HEADBAY_SPOOL/$HEADBAY_ATTEMPT"'
    await cluster.submit(
        "ruin", {"steps": [shell("s", ruin, repeat="never", retry={"maxAttempts": 5})]}
    )

    async def in_doubt() -> bool:
        return (await cluster.step("ruin", "s"))["state"] == "UNRESOLVED"

    await until(in_doubt, 30)
    step = await cluster.step("ruin", "s")
    assert [a["outcome"] for a in step["attempts"]] == ["UNKNOWN"]
    assert "spool entry was removed" in step["attempts"][0]["message"]
    assert log.read_text() == "ran\n"
    order = {"step": "s", "verdict": "failure", "by": "ann"}
    handle = cluster.client.get_workflow_handle(workload_workflow_id("ruin"))
    await handle.execute_update("resolve", order)
    await settled(cluster)


@pytest.mark.timeout(400)
async def test_a_thousand_steps_with_large_outputs_leave_a_small_history(cluster):
    make = "head -c 60000 /dev/zero | tr '\\0' x | sed 's/.*/\"&\"/' > $HEADBAY_OUTPUT"
    numbers = [str(n) for n in range(1_000)]
    small = {"cpu": "200m", "memory": "8Mi"}
    handle = await cluster.submit(
        "thousand",
        {"steps": [shell("make", make, matrix={"N": numbers}, resources=small)]},
    )
    result = await handle.result()
    assert result["counts"] == {"SUCCEEDED": 1_000}
    sizes = {step["output"]["size_bytes"] for step in result["steps"]}
    assert sizes == {60_002}, "60,000 x and their quotes"
    described = (await handle.describe()).raw_description.workflow_execution_info
    print(f"1000 steps: {described.history_size_bytes} bytes, {described.history_length} events")  # noqa: T201 - a figure worth seeing
    assert described.history_size_bytes < 5_000_000
    assert described.history_length < 5_000
    await settled(cluster)
