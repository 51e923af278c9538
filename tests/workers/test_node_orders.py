"""The last boundary before a process exists, and what the spool remembers."""

import errno
import os
import subprocess
import sys

import pytest

from headbay.activities.executor.records import (
    CorruptRecordError,
    read_record,
    replace,
)
from headbay.activities.executor.shim.files import write_durably
from headbay.activities.executor.shim.ladder import Lease
from headbay.activities.places import NodePlaces
from headbay.domain.attempt import LAUNCH_SPEC_VERSION, LaunchSpec
from headbay.domain.outcome import Isolation, Outcome
from headbay.workers.node.orders import refuse
from headbay.workers.node.room import Room
from headbay.workers.node.spool import Entry, Spool, SpoolTakenError, Token, unit_name


def spec(step="s", attempt=1, fence=100, cpu=1000, **more) -> LaunchSpec:
    return LaunchSpec(
        workload="w",
        step=step,
        attempt=attempt,
        fence=fence,
        allocation=f"default-{fence}",
        pool="default",
        node="n1",
        epoch=5,
        argv=["true"],
        resources={"cpu": cpu},
        **more,
    )


def judge(order: LaunchSpec, live=(), **more):
    settings = {
        "node": "n1",
        "epoch": 5,
        "isolation": Isolation.UNENFORCED,
        "delivery": 1,
        "highest_fence": 0,
    }
    room = Room({"cpu": 4000})
    for other in live:
        room.take(unit_name(other.workload, other.step, other.attempt, other.fence), other)
    return refuse(order, room=room, **(settings | more))


def test_an_order_that_fits_is_accepted():
    assert judge(spec(), live=[spec("other", fence=99, cpu=3000)]) is None


@pytest.mark.parametrize(
    ("order", "more", "word"),
    [
        (spec(version=LAUNCH_SPEC_VERSION + 1), {}, "upgrade"),
        (spec(), {"epoch": 6}, "epoch"),
        (spec(), {"node": "n2"}, "n2"),
        (spec(), {"delivery": 2}, "delivered again"),
        (spec(attempt=2, fence=101), {"live": [spec()]}, "attempt 1 of this step is still live"),
        (spec(require="enforced"), {}, "requires enforced"),
        (spec(cpu=2000), {"live": [spec("other", cpu=3000)]}, "lacks {'cpu': 1000}"),
    ],
)
def test_what_may_not_run_here_is_proven_not_started_with_a_reason(order, more, word):
    result = judge(order, **more)
    assert result.outcome is Outcome.NOT_STARTED
    assert not result.began
    assert word in result.message
    assert (result.allocation, result.fence) == (order.allocation, order.fence)


@pytest.mark.parametrize("seen", [100, 101])
def test_what_may_have_been_here_before_is_never_run_again_and_its_end_is_unknown(seen):
    result = judge(spec(fence=100), highest_fence=seen)
    assert result.outcome is Outcome.UNKNOWN, "it may have run: `repeat: never` must not repeat it"
    assert result.began
    assert "STALE_ORDER" in result.message
    assert judge(spec(fence=102), highest_fence=seen) is None


@pytest.fixture
def spool(tmp_path) -> Spool:
    made = Spool(NodePlaces(tmp_path / "n1"))
    made.open()
    return made


def create(spool, order: LaunchSpec, token: Token) -> Entry:
    entry = spool.entry(unit_name(order.workload, order.step, order.attempt, order.fence))
    for fd in spool.create(entry, order, token, {"argv": order.argv}):
        os.close(fd)
    return entry


def test_an_order_survives_with_its_token_and_a_newer_token_wins(spool):
    entry = create(spool, spec(), Token(b"\x00\xffold", "run-1"))
    (found,) = spool.entries()
    assert found.spec == spec()
    assert found.token == Token(b"\x00\xffold", "run-1")
    entry.set_token(Token(b"new", "run-1"))
    assert spool.find(entry.unit).token == Token(b"new", "run-1")


def test_burying_leaves_the_highest_fence_and_the_log_alone(spool, tmp_path):
    entry = create(spool, spec(), Token(b"t", "r"))
    write_durably(str(entry.folder), "exit.json", {"x": 1})
    entry.log.write_bytes(b"hello")
    kept = tmp_path / "logs" / "w" / "s.log"
    spool.bury(entry, kept)
    assert list(spool.entries()) == []
    assert kept.read_bytes() == b"hello"
    assert spool.highest_fence("w", "s") == 100
    assert spool.highest_fence("w", "other") == 0


def test_a_restarted_node_remembers_what_it_buried_and_what_it_holds(spool, tmp_path):
    spool.bury(create(spool, spec(fence=100), Token(b"t", "r")), tmp_path / "log")
    create(spool, spec(attempt=2, fence=200), Token(b"t", "r"))
    again = Spool(spool.places)
    spool.close()
    again.open()
    assert again.highest_fence("w", "s") == 200
    assert [entry.spec.fence for entry in again.entries()] == [200]


def test_nothing_of_a_buried_attempt_is_seen_in_the_folder_that_is_used_again(spool, tmp_path):
    old = create(spool, spec(fence=100), Token(b"old", "r"))
    for name in ("exit.json", "begin.json", "stop", "token", "shim", "shim.err", "out.log.ring"):
        (old.folder / name).write_text("old")
    old.set_lease(100, 10**18)
    inode = old.folder.stat().st_ino
    spool.bury(old, tmp_path / "log")
    new = create(spool, spec("t", fence=101), Token(b"new", "r"))
    assert new.folder.stat().st_ino == inode, "the folder is used again"
    assert sorted(path.name for path in new.folder.iterdir()) == ["lease", "order.json"]
    assert Lease(str(new.folder), 101).read() == 0, "another fence's lease renews nothing"
    new.set_lease(101, 10**18)
    assert Lease(str(new.folder), 101).read() == 10**18


def test_a_tombstone_that_cannot_be_written_does_not_keep_an_entry(spool, tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    entry = create(spool, spec(), Token(b"t", "r"))
    with monkeypatch.context() as patched:
        patched.setattr("headbay.workers.node.tombstones.os.write", full)
        spool.bury(entry, tmp_path / "log")
    assert list(spool.entries()) == []
    assert spool.highest_fence("w", "s") == 100


def test_an_order_that_may_not_be_durable_is_withdrawn_whole(spool):
    entry = create(spool, spec(), Token(b"t", "r"))
    spool.withdraw(entry)
    assert list(spool.entries()) == []


def test_an_order_that_cannot_be_written_leaves_nothing(spool, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("headbay.workers.node.spool.write_new", full)
    with pytest.raises(OSError, match="no space"):
        create(spool, spec(), Token(b"t", "r"))
    assert list(spool.entries()) == []
    assert spool.highest_fence("w", "s") == 0


def test_a_second_worker_on_one_spool_is_refused(spool):
    script = (
        "from pathlib import Path\n"
        "from headbay.activities.places import NodePlaces\n"
        "from headbay.workers.node.spool import Spool, SpoolTakenError\n"
        f"spool = Spool(NodePlaces(Path({str(spool.places.root)!r})))\n"
        "try:\n    spool.open()\n"
        "except SpoolTakenError as error:\n    print(error.code, error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert told.startswith("SPOOL_TAKEN")
    assert "--name" in told
    assert SpoolTakenError.code == "SPOOL_TAKEN"


@pytest.mark.parametrize("left", [(), ("lease",)])
def test_a_folder_without_an_order_is_not_an_entry(spool, left):
    unit = unit_name("w", "s", 1, 100)
    (spool.places.spool / unit).mkdir()
    for name in left:
        (spool.places.spool / unit / name).write_text("{}")
    assert list(spool.entries()) == []
    assert (spool.places.spool / unit).exists(), "a reader beside the worker changes nothing"
    spool.close()
    spool = Spool(spool.places)
    spool.open()
    assert not (spool.places.spool / unit).exists()
    assert create(spool, spec(), Token(b"t", "r")).spec == spec(), "what a crash left is replaced"


def test_an_entry_that_lost_its_order_is_shown_for_quarantine(spool):
    entry = create(spool, spec(), Token(b"t", "r"))
    write_durably(str(entry.folder), "begin.json", {"main": [1, 1]})
    (entry.folder / "order.json").unlink()
    (found,) = spool.entries()
    with pytest.raises(FileNotFoundError):
        assert found.spec
    aside = spool.quarantine(found)
    assert (aside / "begin.json").exists()
    again = Spool(spool.places)
    spool.close()
    again.open()
    assert again.highest_fence("w", "s") == 100, "it is never run again"


@pytest.mark.parametrize("damage", [b"", b'{"crc":1,"body":{}}', b'{"body":1}', b"\xff\xfe", b"[]"])
def test_a_torn_or_altered_record_is_never_taken_for_a_whole_one(tmp_path, damage):
    path = tmp_path / "record"
    path.write_bytes(damage)
    with pytest.raises(CorruptRecordError):
        read_record(path)


def test_an_immutable_record_is_written_once_and_a_replaceable_one_whole(tmp_path):
    path = tmp_path / "exit.json"
    write_durably(str(tmp_path), path.name, {"a": 1})
    with pytest.raises(FileExistsError):
        write_durably(str(tmp_path), path.name, {"a": 2})
    assert read_record(path) == {"a": 1}
    (tmp_path / "exit.json.tmp").unlink()
    replace(tmp_path / "lease", {"b": "é"}, durable=True)
    assert read_record(tmp_path / "lease") == {"b": "é"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["exit.json", "lease"]


def test_a_stop_is_hardened_but_never_softened(spool):
    entry = create(spool, spec(), Token(b"t", "r"))
    entry.set_stop(100, "cancelled")
    entry.set_stop(100, "preempted")
    assert entry.read("stop")["reason"] == "cancelled"
    entry.set_stop(100, "lease_lost")
    entry.set_stop(100, "cancelled")
    assert entry.read("stop")["reason"] == "lease_lost"


def test_names_of_units_are_unique_and_fit_for_systemd_and_files():
    names = {
        unit_name(workload, step, attempt, fence)
        for workload in ("a.b", "a_b", "x" * 100, "-")
        for step in ("a-b", "ab", "s" * 64)
        for attempt in (1, 2)
        for fence in (1, 1796112114463)
    }
    assert len(names) == 4 * 3 * 2 * 2
    assert all(len(name) + len(".scope") <= 255 for name in names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._") for name in names)
