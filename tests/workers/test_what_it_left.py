"""What a payload left, in whatever state: told in words, at once, and named until it is told."""

import pytest

from headbay.activities.artifacts import DirectoryStore
from headbay.activities.places import NodePlaces
from headbay.domain.attempt import LaunchSpec
from headbay.domain.outcome import Isolation
from headbay.workers.node.results import from_exit
from headbay.workers.node.spool import Token, unit_name
from headbay.workers.node.supervision import Attempt
from headbay.workers.node.workspace import Workspaces


def spec(**more) -> LaunchSpec:
    return LaunchSpec(
        workload="w",
        step="s",
        attempt=1,
        fence=7,
        allocation="default-7",
        pool="default",
        node="n",
        epoch=1,
        argv=["true"],
        **more,
    )


@pytest.fixture
def workspace(tmp_path):
    """Prepares a workspace for a spec."""

    def prepare(wanted: LaunchSpec):
        among = Workspaces(NodePlaces(tmp_path / "n"), DirectoryStore(tmp_path / "a"))
        among.open()
        made = among.of(wanted, unit_name("w", "s", 1, 7))
        made.prepare()
        return made

    return prepare


def test_a_folder_in_the_output_s_place_is_no_output(workspace):
    made = workspace(spec())
    made.output_file.mkdir()
    assert made.keep().violation == "$HEADBAY_OUTPUT is not a regular file"


def test_a_workspace_that_the_payload_removed_has_no_artifacts(workspace):
    made = workspace(spec(artifacts=["*"]))
    made.root.rmdir()
    assert "is not there any more" in made.keep().violation


def test_a_workspace_that_became_a_link_has_no_artifacts(workspace, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("x")
    made = workspace(spec(artifacts=["*"]))
    made.root.rmdir()
    made.root.symlink_to(tmp_path / "elsewhere")
    assert "was replaced by a link" in made.keep().violation
    made.root.unlink()
    inner = workspace(spec(artifacts=["*"], workdir="in"))
    inner.cwd.symlink_to(tmp_path / "elsewhere")
    assert "was replaced by a link" in inner.keep().violation


def test_a_timeout_is_told_as_it_was_written():
    record = {
        "exec_failure": None,
        "causes": ["timed_out"],
        "exit_code": None,
        "signal": 15,
        "leftovers_killed": False,
        "kill_incomplete": False,
        "log_kept_bytes": 0,
        "log_seen_bytes": 0,
        "boot_id": "b",
        "started_ms": 0,
        "ended_ms": 80,
        "wall_ms": 80,
    }
    result = from_exit(spec(timeout_ms=1), record, Isolation.UNENFORCED, "log")
    assert result.message == "killed after its timeout of 1ms"


async def test_an_attempt_is_named_until_its_end_was_told(agent):
    """Storing artifacts may take minutes; a pool frees what no node names for a minute."""
    ordered = spec(resources={"cpu": 600})
    attempt = Attempt(
        agent.spool.entry(unit_name("w", "s", 1, 7)), ordered, Token(b"t", "r"), agent
    )
    agent._live(attempt)
    assert agent.room.free() == {"cpu": 400}
    assert [grant.allocation for grant in agent.inventory_now().live] == ["default-7"]
    attempt._over()
    assert agent.room.free() == {"cpu": 1000}, "what is gone takes nothing, told or not"
    now = agent.inventory_now()
    assert (now.live, now.ending) == ([], ["default-7"])
    agent._over(attempt.entry.unit)
    assert agent.inventory_now().ending == []
