"""Where things live."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from headbay.activities.places import BadNameError, DevCluster, Places, private


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HEADBAY_STATE": "/a/b", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/a/b"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/headbay"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/headbay"),
        ({"HOME": "/h"}, "/h/.local/state/headbay"),
        ({"HEADBAY_STATE": "", "XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/headbay"),
        ({}, str(Path.home() / ".local/state/headbay")),
    ],
)
def test_the_state_directory_is_the_first_that_is_named(environ: dict[str, str], expected: str):
    assert Places.find(environ).state == Path(expected)


def test_a_relative_state_directory_is_fixed_at_once(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Places.find({"HEADBAY_STATE": "here"}).state == tmp_path / "here"


def test_everything_has_one_place():
    places = Places(Path("/s"))
    assert places.ledger_url == "sqlite:////s/ledger.db"
    assert places.dev_json == Path("/s/dev/dev.json")
    assert places.node("n1").spool == Path("/s/nodes/n1/spool")
    assert places.node("n1").work == Path("/s/nodes/n1/work")
    assert places.node("n1").logs == Path("/s/nodes/n1/logs")
    assert places.secret("pypi") == Path("/s/secrets/pypi")
    found = [places.artifacts, places.ledger, places.last, places.secrets, places.dev]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "a\0b", "x" * 129])
def test_a_name_cannot_lead_out_of_its_place(name: str):
    for ask in (Places(Path("/s")).secret, Places(Path("/s")).node):
        with pytest.raises(BadNameError):
            ask(name)


def test_folders_are_made_private_all_the_way_and_others_left_alone(tmp_path: Path):
    tmp_path.chmod(0o755)
    made = private(tmp_path / "a" / "b")
    assert [p.stat().st_mode & 0o777 for p in (made, made.parent)] == [0o700, 0o700]
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    made.chmod(0o750)
    assert private(made).stat().st_mode & 0o777 == 0o750


def test_only_a_running_dev_cluster_is_found(tmp_path: Path):
    places = Places(tmp_path)
    assert places.dev_cluster() is None
    private(places.dev)
    stat = Path("/proc/self/stat").read_text()
    ticks = int(stat.rpartition(")")[2].split()[19])
    record = {"pid": os.getpid(), "ticks": ticks, "address": "127.0.0.1:7233", "news": 1}
    places.dev_json.write_text(json.dumps(record | {"ui": "http://x", "namespace": "n"}))
    assert places.dev_cluster() == DevCluster(
        pid=os.getpid(), address="127.0.0.1:7233", ui="http://x", namespace="n"
    )
    places.dev_json.write_text(json.dumps(record | {"ticks": ticks - 1}))
    assert places.dev_cluster() is None, "the pid is another process's by now"


def test_a_dead_cluster_is_not_found_even_while_it_is_a_zombie(tmp_path: Path):
    places = Places(tmp_path)
    private(places.dev)
    with subprocess.Popen(["true"]) as dead:
        places.dev_json.write_text(json.dumps({"pid": dead.pid, "address": "x"}))
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        assert places.dev_cluster() is None
    assert places.dev_cluster() is None
