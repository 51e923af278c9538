"""Promise: only a step with a `workdir` leaves its private folder."""

import pytest

from headbay.activities.artifacts import DirectoryStore
from headbay.activities.places import Places
from headbay.domain.attempt import LaunchSpec
from headbay.workers.node.workspace import PreparationError, Workspace


@pytest.mark.parametrize(
    ("workdir", "base_dir", "where"),
    [
        (None, None, "{work}"),
        (None, "/src", "{work}"),
        ("sub", None, "{work}/sub"),
        (".", "/src", "/src"),
        ("..", "/src/examples", "/src/examples/.."),
        ("/abs", "/src", "/abs"),
    ],
)
def test_where_a_step_runs(tmp_path, workdir, base_dir, where):
    spec = LaunchSpec(
        workload="w", step="s", attempt=1, fence=1, allocation="a", pool="default", node="n",
        epoch=1, argv=["true"], workdir=workdir, base_dir=base_dir,
    )  # fmt: skip
    workspace = Workspace(spec, "unit", Places(tmp_path).node("n"), DirectoryStore(tmp_path / "a"))
    assert str(workspace.cwd) == where.format(work=workspace.root)


@pytest.mark.parametrize("workdir", ["..", "../other", "a/../../b"])
def test_a_workdir_never_leaves_the_steps_own_folder(tmp_path, workdir):
    spec = LaunchSpec(
        workload="w", step="s", attempt=1, fence=1, allocation="a", pool="default", node="n",
        epoch=1, argv=["true"], workdir=workdir,
    )  # fmt: skip
    workspace = Workspace(spec, "unit", Places(tmp_path).node("n"), DirectoryStore(tmp_path / "a"))
    with pytest.raises(PreparationError, match="leaves the step's own folder"):
        workspace.prepare()


def test_a_folder_that_cannot_be_made_is_told_not_raised(tmp_path):
    spec = LaunchSpec(
        workload="w", step="s", attempt=1, fence=1, allocation="a", pool="default", node="n",
        epoch=1, argv=["true"],
    )  # fmt: skip
    node = Places(tmp_path).node("n")
    node.root.mkdir(parents=True)
    node.work.write_text("a file where the folder should be")
    workspace = Workspace(spec, "unit", node, DirectoryStore(tmp_path / "a"))
    with pytest.raises(PreparationError, match="could not prepare"):
        workspace.prepare()
