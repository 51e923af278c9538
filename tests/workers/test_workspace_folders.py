"""Promise: only a step with a `workdir` leaves its private folder."""

import os
import shutil
from pathlib import Path

import pytest

from headbay.activities.artifacts import DirectoryStore
from headbay.activities.places import Places
from headbay.domain.attempt import LaunchSpec
from headbay.workers.node.workspace import PreparationError, Workspaces


def workspaces(tmp_path: Path) -> Workspaces:
    made = Workspaces(Places(tmp_path).node("n"), DirectoryStore(tmp_path / "a"))
    made.open()
    return made


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
    workspace = workspaces(tmp_path).of(spec, "unit")
    assert str(workspace.cwd) == where.format(work=workspace.root)


@pytest.mark.parametrize("workdir", ["..", "../other", "a/../../b"])
def test_a_workdir_never_leaves_the_steps_own_folder(tmp_path, workdir):
    spec = LaunchSpec(
        workload="w", step="s", attempt=1, fence=1, allocation="a", pool="default", node="n",
        epoch=1, argv=["true"], workdir=workdir,
    )  # fmt: skip
    workspace = workspaces(tmp_path).of(spec, "unit")
    with pytest.raises(PreparationError, match="leaves the step's own folder"):
        workspace.prepare()


def test_a_folder_that_cannot_be_made_is_told_not_raised(tmp_path):
    spec = LaunchSpec(
        workload="w", step="s", attempt=1, fence=1, allocation="a", pool="default", node="n",
        epoch=1, argv=["true"],
    )  # fmt: skip
    among = workspaces(tmp_path)
    shutil.rmtree(among.places.work)
    among.places.work.write_text("a file where the folder should be")
    workspace = among.of(spec, "unit")
    with pytest.raises(PreparationError, match="could not prepare"):
        workspace.prepare()


def plain(**more) -> LaunchSpec:
    return LaunchSpec(
        workload="w", step="s", attempt=1, fence=1, allocation="a", pool="default", node="n",
        epoch=1, argv=["true"], **more,
    )  # fmt: skip


def test_a_folder_that_was_left_empty_is_used_again_and_looks_new(tmp_path):
    among = workspaces(tmp_path)
    first = among.of(plain(), "one")
    first.prepare()
    inode = first.root.stat().st_ino
    assert first.release()
    assert not first.root.exists()
    second = among.of(plain(), "two")
    second.prepare()
    assert second.root.stat().st_ino == inode
    assert list(second.root.iterdir()) == []


def _leave_file(root: Path) -> None:
    (root / "file").touch()


def _open_to_all(root: Path) -> None:
    root.chmod(0o777)


def _mark(root: Path) -> None:
    os.setxattr(root, "user.mark", b"1")


@pytest.mark.parametrize("trace", [_leave_file, _open_to_all, _mark])
def test_a_folder_with_any_trace_of_its_payload_is_never_used_again(tmp_path, trace):
    among = workspaces(tmp_path)
    first = among.of(plain(), "one")
    first.prepare()
    trace(first.root)
    assert not first.release()
    first.remove()
    assert not first.root.exists()
    second = among.of(plain(), "two")
    second.prepare()
    assert list(second.root.iterdir()) == []
    assert second.root.stat().st_mode & 0o777 == 0o700
    assert os.listxattr(second.root) == []


def test_an_output_never_outlives_its_attempt_whatever_the_payload_made_of_it(tmp_path):
    among = workspaces(tmp_path)
    for make in (Path.touch, Path.mkdir):
        workspace = among.of(plain(), "one")
        workspace.prepare()
        make(workspace.output_file)
        if not workspace.release():
            workspace.remove()
        assert not workspace.output_file.exists()
        assert not workspace.root.exists()


def test_the_inputs_of_whoever_has_none_are_made_anew_once_somebody_wrote_to_them(tmp_path):
    among = workspaces(tmp_path)
    workspace = among.of(plain(), "one")
    workspace.prepare()
    assert workspace.inputs_file.read_text() == "{}"
    workspace.inputs_file.chmod(0o644)
    workspace.inputs_file.write_text("spoilt")
    after = among.of(plain(), "two")
    after.prepare()
    assert after.inputs_file.read_text() == "{}"


def test_what_a_former_worker_gave_up_is_gone_when_the_next_one_starts(tmp_path):
    among = workspaces(tmp_path)
    left = among.places.work / "free.7"
    left.mkdir()
    (left / "secret").write_text("x")
    again = workspaces(tmp_path)
    assert not left.exists()
    workspace = again.of(plain(), "one")
    workspace.prepare()
    assert list(workspace.root.iterdir()) == []
