"""Promise: only a step with a `workdir` leaves its private folder."""

import pytest

from headbay.activities.artifacts import DirectoryStore
from headbay.activities.places import Places
from headbay.domain.attempt import LaunchSpec
from headbay.workers.node.workspace import Workspace


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
