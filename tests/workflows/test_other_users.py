"""Promise: a step that runs as another user has that user's rights, and so has all done for it."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from support.cluster import Cluster, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


@pytest.fixture
def open_folder():
    """One that every user may pass; pytest's own are closed."""
    made = Path(tempfile.mkdtemp(prefix="headbay-users-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def cluster(open_folder):
    """A node whose steps run as `nobody`."""
    made = Cluster(open_folder / "cluster")
    try:
        await made.start_server()
        made.start_control()
        made.start_node("n1", "--cpu", "4", "--memory", "8Gi", "--run-as", "nobody")
        await made.node_up("n1")
        yield made
    finally:
        made.stop()


async def ended(cluster, workload):
    """Its final status."""

    async def final():
        status = await cluster.status(workload)
        return status if status and status.get("finished_ms") else None

    return await until(final, 60, f"{workload} ended")


async def test_an_output_is_kept_that_a_restarted_worker_finds(cluster, open_folder):
    marks = open_folder / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    script = (
        f"touch {marks}/begun; while [ ! -e {marks}/go ]; do sleep 0.05; done\n"
        "echo '\"kept\"' > $HEADBAY_OUTPUT"
    )
    await cluster.submit("w", {"steps": [{"name": "s", "run": script}]})

    async def begun():
        return (marks / "begun").exists()

    await until(begun, 30, "the payload runs")
    cluster.parts["n1"].kill()
    cluster.parts["n1"].start()

    async def adopted():
        return '"attempts": 1, "isolation"' in cluster.parts["n1"].log.read_text()

    await until(adopted, 30, "the worker has taken it over")
    (marks / "go").touch()
    (step,) = (await ended(cluster, "w"))["steps"]
    assert len(step["attempts"]) == 1, step
    assert step["output"]["value"] == "kept", step


async def test_artifacts_are_only_what_the_steps_user_may_read(cluster):
    folder = cluster.root.parent / "open"
    folder.mkdir(mode=0o755)
    for name, mode in (("shadow", 0o600), ("public", 0o644)):
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
    step = {"run": "true", "workdir": str(folder)}
    steps = [{"name": name, "artifacts": [name], **step} for name in ("shadow", "public")]
    await cluster.submit("w", {"steps": steps})
    found = {s["name"]: s for s in (await ended(cluster, "w"))["steps"]}
    assert found["public"]["state"] == "SUCCEEDED", found
    assert found["shadow"]["state"] == "FAILED", found
    assert "is not readable for the step's user" in found["shadow"]["message"], found


async def test_a_workdir_behind_a_siblings_link_is_not_made_with_the_workers_rights(cluster):
    folder = cluster.root.parent / "roots"
    folder.mkdir(mode=0o755)
    await cluster.submit(
        "w",
        {
            "workspace": "shared",
            "steps": [
                {"name": "plant", "run": f"ln -s {folder} w; mkdir -p own/inner"},
                {"name": "use", "dependsOn": "plant", "run": "true", "workdir": "w/sub"},
                {"name": "own", "dependsOn": "plant", "run": "pwd", "workdir": "own/inner/new"},
            ],
        },
    )
    found = {s["name"]: s for s in (await ended(cluster, "w"))["steps"]}
    assert found["use"]["reason"] == "EXEC_FAILED", found
    assert "Permission denied" in found["use"]["message"], found
    assert found["own"]["state"] == "SUCCEEDED", found
    assert list(folder.iterdir()) == []
    assert folder.stat().st_uid == 0
