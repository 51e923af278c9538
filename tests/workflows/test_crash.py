"""Any part may be killed at any time: one execution, one result, nothing left behind."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from support.cluster import Cluster, alive, spool_entries, until
from temporalio.client import WorkflowFailureError

from headbay.domain.ids import pool_workflow_id, workload_workflow_id

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MEMORY = {"memory": "16Mi"}


def launcher_pid(cluster: Cluster) -> int:
    """The launcher: the node worker's child that runs the launcher's module."""
    worker = cluster.parts["n1"].pid
    children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
    for child in children:
        if b"launcher" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    raise AssertionError(f"no launcher among {children}")


def payloads(cluster: Cluster) -> list[int]:
    """Live processes that carry the environment of a step of this cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(cluster.root).encode() in environ and b"HEADBAY_WORKLOAD=" in environ:
            found.append(int(entry.name))
    return [pid for pid in found if alive(pid)]


async def nothing_leaks(cluster: Cluster) -> None:
    async def clean() -> bool:
        pool = await cluster.pool()
        return not (
            pool["allocations"]
            or pool["pending"]
            or pool["workloads"]
            or spool_entries(cluster)
            or payloads(cluster)
        )

    try:
        await until(clean, 90, "nothing allocated, spooled or running")
    except AssertionError as error:
        pool = await cluster.pool()
        raise AssertionError(
            f"{error}: {pool} spool {spool_entries(cluster)} pids {payloads(cluster)}"
        ) from error
    work = cluster.root / "state" / "nodes" / "n1" / "work"
    kept = {p for p in work.iterdir() if p.name != "no-inputs.json"}
    free = {p for p in kept if p.name.startswith("free.") and not any(p.iterdir())}
    assert kept == free, "working directories are left over"


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    "victims",
    [["n1"], ["control"], ["launcher"], ["server"], ["n1", "control", "launcher", "server"]],
    ids=["node", "control", "launcher", "server", "all"],
)
async def test_a_killed_part_is_not_noticed_by_a_running_step(cluster, tmp_path, victims):
    log = tmp_path / "log"
    run = f"echo start $$ >> {log}; sleep 7; echo end $$ >> {log}"
    step = {"name": "s", "run": run, "lease": "12s"}  # renewed every three seconds
    handle = await cluster.submit("survivor", {"steps": [step]})

    async def started() -> bool:
        return len(lines(log)) == 1

    await until(started, 30, "the step has started")
    pid = int(lines(log)[0][1])
    launcher = launcher_pid(cluster)
    if "launcher" in victims:
        os.kill(launcher, signal.SIGKILL)
    for name in victims:
        if name != "launcher":
            cluster.parts[name].kill()
    if victims == ["server"]:
        await node_says(cluster, "lease.unanswered")
    assert alive(pid), "the payload must not notice"
    for name in reversed(victims):
        if name != "launcher":
            cluster.parts[name].start()
    if "server" in victims:
        await cluster.connect()
        handle = cluster.client.get_workflow_handle(workload_workflow_id("survivor"))
    result = await asyncio.wait_for(handle.result(), 60)
    assert result["status"] == "SUCCEEDED"
    assert lines(log) == [["start", str(pid)], ["end", str(pid)]], "one execution, one pid"
    assert len(result["steps"][0]["attempts"]) == 1
    after = await cluster.submit("after", {"steps": [{"name": "s", "run": "true"}]})
    assert (await asyncio.wait_for(after.result(), 60))["status"] == "SUCCEEDED"
    await nothing_leaks(cluster)


async def node_says(cluster: Cluster, what: str) -> None:
    async def said() -> bool:
        return what in cluster.parts["n1"].log.read_text()

    await until(said, 20, f"the node says {what}")


async def test_a_step_that_ends_while_the_server_is_away_is_told_when_it_is_back(cluster, tmp_path):
    log = tmp_path / "log"
    run = f"echo start $$ >> {log}; sleep 2; echo end $$ >> {log}"
    await cluster.submit("waiting", {"steps": [{"name": "s", "run": run}]})

    async def started() -> bool:
        return bool(lines(log))

    await until(started, 30, "the step has started")
    cluster.parts["server"].kill()
    await node_says(cluster, "completion.unanswered")
    cluster.parts["server"].start()
    await cluster.connect()
    handle = cluster.client.get_workflow_handle(workload_workflow_id("waiting"))
    result = await asyncio.wait_for(handle.result(), 60)
    assert result["status"] == "SUCCEEDED"
    assert [line[0] for line in lines(log)] == ["start", "end"]
    assert len(result["steps"][0]["attempts"]) == 1
    await nothing_leaks(cluster)


async def test_three_hundred_workloads_on_a_small_node_through_a_killed_control_worker(tmp_path):
    cluster = Cluster(tmp_path, control_options=["--pool-continue-after", "150"])
    log = tmp_path / "log"
    try:
        await cluster.start_server()
        cluster.start_control()
        cluster.start_node("n1", "--cpu", "4", "--memory", "2Gi")
        await cluster.node_up("n1")
        run = (
            f"echo start $HEADBAY_WORKLOAD $(date +%s%N) >> {log}; "
            f"echo end $HEADBAY_WORKLOAD $(date +%s%N) >> {log}"
        )
        document = {"steps": [{"name": "s", "run": run, "resources": MEMORY}]}
        handles = await asyncio.gather(*(cluster.submit(f"w{n}", document) for n in range(300)))

        async def some_ran() -> bool:
            return len(lines(log)) >= 100

        await until(some_ran, 120, "fifty workloads have run")
        cluster.parts["control"].kill()
        cluster.parts["control"].start()
        results = await asyncio.wait_for(asyncio.gather(*(h.result() for h in handles)), 240)
        assert {r["status"] for r in results} == {"SUCCEEDED"}
        events = sorted((int(at), kind, who) for kind, who, at in lines(log))
        started = [who for _, kind, who in events if kind == "start"]
        assert sorted(started) == sorted({f"w{n}" for n in range(300)}), "each ran exactly once"
        running = peak = 0
        for _, kind, _ in events:
            running += 1 if kind == "start" else -1
            peak = max(peak, running)
        assert peak <= 4, f"{peak} payloads at once on 4 CPUs"
        runs = [
            w
            async for w in cluster.client.list_workflows(
                f"WorkflowId = '{pool_workflow_id('default')}'"
            )
        ]
        assert len(runs) >= 4, f"the pool continued as new only {len(runs) - 1} times"
        assert not any(w.status and w.status.name == "FAILED" for w in runs)
        await nothing_leaks(cluster)
        print(f"300 workloads, {len(runs)} runs of the pool, peak {peak} of 4")  # noqa: T201
    except BaseException:
        print(cluster.logs())  # noqa: T201
        raise
    finally:
        cluster.stop()


async def test_a_backlog_of_two_hundred_resumes_at_once_after_a_restart(cluster, tmp_path):
    log = tmp_path / "log"
    node = cluster.client.get_workflow_handle("headbay/node/n1")
    await node.execute_update("cordon", {"by": "test"})
    document = {"steps": [{"name": "s", "run": f"date +%s%N >> {log}", "resources": MEMORY}]}
    handles = await asyncio.gather(*(cluster.submit(f"b{n}", document) for n in range(200)))

    async def all_wait() -> bool:
        return (await cluster.pool())["pending"] == 200

    await until(all_wait, 120, "200 requests wait")
    cluster.parts["control"].kill()
    await node.signal("uncordon", {"by": "test"})
    cluster.parts["control"].start()
    restarted = time.monotonic()

    async def progress() -> bool:
        return bool(lines(log))

    await until(progress, 20, "progress after the restart")
    first = time.monotonic() - restarted
    results = await asyncio.wait_for(asyncio.gather(*(h.result() for h in handles)), 200)
    assert {r["status"] for r in results} == {"SUCCEEDED"}
    assert len(lines(log)) == 200
    assert first < 15, f"the first step started {first:.1f} s after the restart"
    await nothing_leaks(cluster)


async def start_long(cluster: Cluster, log: Path, workload: str = "long", seconds: int = 600):
    run = f"echo start $$ >> {log}; sleep {seconds}"
    document = {"steps": [{"name": "s", "run": run, "lease": "8s", "grace": "1s"}]}
    handle = await cluster.submit(workload, document)

    async def started() -> bool:
        return bool(lines(log))

    await until(started, 30, "the step has started")
    return handle, int(lines(log)[0][1])


async def dies(pid: int, seconds: float) -> None:
    async def dead() -> bool:
        return not alive(pid)

    await until(dead, seconds, f"process {pid} is dead")


async def test_terminating_a_workload_kills_its_processes_and_frees_its_capacity(cluster, tmp_path):
    handle, pid = await start_long(cluster, tmp_path / "log")
    await handle.terminate("by hand")
    await dies(pid, 10)
    await nothing_leaks(cluster)
    assert len(lines(tmp_path / "log")) == 1


async def test_resetting_a_workload_kills_the_old_process_before_it_runs_again(cluster, tmp_path):
    log = tmp_path / "log"
    run = (
        f"echo start $$ >> {log}; trap 'echo term $$ >> {log}' TERM; "
        f"for i in $(seq 400); do echo tick $$ $(date +%s%N) >> {log}.ticks; sleep 0.05; done"
    )
    document = {"steps": [{"name": "s", "run": run, "lease": "8s", "grace": "1s"}]}
    handle = await cluster.submit("again", document)

    async def ticking() -> bool:
        return len(lines(Path(f"{log}.ticks"))) > 5

    await until(ticking, 30, "the step runs")
    await reset(cluster, workload_workflow_id("again"))
    handle = cluster.client.get_workflow_handle(workload_workflow_id("again"))
    result = await asyncio.wait_for(handle.result(), 120)
    assert result["status"] == "SUCCEEDED"
    ticks = [(int(at), pid) for _, pid, at in lines(Path(f"{log}.ticks"))]
    pids = list(dict.fromkeys(pid for _, pid in ticks))
    assert len(pids) == 2, f"expected one killed and one finished process, saw {pids}"
    first = [at for at, pid in ticks if pid == pids[0]]
    second = [at for at, pid in ticks if pid == pids[1]]
    assert max(first) < min(second), "two executions overlapped"
    await nothing_leaks(cluster)


async def reset(cluster: Cluster, workflow_id: str) -> None:
    """Reset a workflow to its last completed workflow task, with Temporal's own command."""
    process = await asyncio.create_subprocess_exec(
        "temporal",
        "workflow",
        "reset",
        "--workflow-id",
        workflow_id,
        "--type",
        "LastWorkflowTask",
        "--reason",
        "test",
        env=cluster.env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


@pytest.mark.parametrize("how", ["terminate", "reset"])
async def test_a_lost_pool_learns_its_allocations_again(cluster, tmp_path, how):
    log = tmp_path / "log"
    handle, pid = await start_long(cluster, log, seconds=12)
    blocked = await cluster.submit(
        "blocked",
        {"steps": [{"name": "s", "run": "true", "resources": {"cpu": 4, "memory": "16Mi"}}]},
    )

    async def waits() -> bool:
        return (await cluster.pool())["pending"] == 1

    await until(waits, 20, "the second workload waits")
    before = await cluster.query(pool_workflow_id("default"), "allocations")
    if how == "terminate":
        await cluster.client.get_workflow_handle(pool_workflow_id("default")).terminate("by hand")
    else:
        await reset(cluster, pool_workflow_id("default"))

    async def knows_again() -> bool:
        pool = await cluster.pool()
        return (
            pool["allocations"] == 1
            and pool["pending"] == 1
            and [n["awaited"] for n in pool["nodes"]] == [False]
        )

    await until(knows_again, 30, "the new pool knows the allocation and the request")
    after = await cluster.query(pool_workflow_id("default"), "allocations")
    assert after[0]["allocation"] == before[0]["allocation"]
    assert alive(pid)
    result = await asyncio.wait_for(handle.result(), 60)
    assert result["status"] == "SUCCEEDED"
    result = await asyncio.wait_for(blocked.result(), 60)
    assert result["status"] == "SUCCEEDED"
    assert result["steps"][0]["attempts"][0]["fence"] > before[0]["fence"]
    assert len(lines(log)) == 1
    await nothing_leaks(cluster)


async def pause(cluster: Cluster, workflow_id: str, activity: str) -> None:
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import PauseActivityRequest

    await cluster.client.workflow_service.pause_activity(
        PauseActivityRequest(
            namespace="default",
            execution=WorkflowExecution(workflow_id=workflow_id),
            identity="test",
            type=activity,
            reason="test",
        )
    )


async def test_a_paused_step_whose_node_dies_is_not_awaited_for_ever(cluster, tmp_path):
    """A paused activity never times out: the presence's loss and the pool's audit must tell."""
    log = tmp_path / "log"
    handle, pid = await start_long(cluster, log, seconds=20)
    await pause(cluster, workload_workflow_id("long"), "execute")
    cluster.parts["n1"].kill()
    await dies(pid, 20)
    started = time.monotonic()
    cluster.parts["n1"].start()
    result = await asyncio.wait_for(handle.result(), 150)
    assert result["status"] == "SUCCEEDED"
    assert len(lines(log)) == 2
    assert time.monotonic() - started < 140
    await nothing_leaks(cluster)


async def test_a_paused_presence_whose_node_dies_is_shown_lost(cluster):
    spooled = cluster.root / "state" / "nodes" / "n1" / "presence"

    async def present() -> bool:
        return spooled.exists()

    await until(present, 20, "the node keeps its presence")
    await pause(cluster, "headbay/node/n1", "presence")
    cluster.parts["n1"].kill()

    async def lost() -> bool:
        return (await cluster.node())["state"] == "lost"

    await until(lost, 45, "the node is shown lost")
    cluster.parts["n1"].start()
    await cluster.node_up("n1")
    handle = await cluster.submit("back", {"steps": [{"name": "s", "run": "true"}]})
    assert (await asyncio.wait_for(handle.result(), 60))["status"] == "SUCCEEDED"


async def test_a_failed_workload_keeps_its_words_in_temporal_itself(cluster):
    handle = await cluster.submit("sad", {"steps": [{"name": "s", "run": "exit 4"}]})
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert "FAILED: s (FAILED)" in str(caught.value.cause)
