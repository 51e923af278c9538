"""The last boundary before a process exists, and what the spool remembers."""

import subprocess
import sys

import pytest

from headbay.activities.executor.records import (
    CorruptRecordError,
    read_record,
    replace,
    write_once,
)
from headbay.activities.places import NodePlaces
from headbay.domain.attempt import LAUNCH_SPEC_VERSION, LaunchSpec
from headbay.domain.outcome import Isolation, Outcome
from headbay.workers.node.orders import refuse
from headbay.workers.node.spool import Spool, SpoolTakenError, Token, unit_name


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
        "capacity": {"cpu": 4000},
        "isolation": Isolation.UNENFORCED,
        "delivery": 1,
        "buried": False,
    }
    return refuse(order, live=live, **(settings | more))


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


def test_an_attempt_that_was_buried_is_never_run_again_and_its_end_is_unknown():
    result = judge(spec(), buried=True)
    assert result.outcome is Outcome.UNKNOWN, "it did run: `repeat: never` must not repeat it"
    assert result.began
    assert "STALE_ORDER" in result.message


@pytest.fixture
def spool(tmp_path) -> Spool:
    made = Spool(NodePlaces(tmp_path / "n1"))
    made.open()
    return made


def test_an_order_survives_with_its_token_and_a_newer_token_wins(spool):
    entry = spool.create(spec(), Token(b"\x00\xffold", "run-1"))
    (found,) = spool.entries()
    assert found.spec == spec()
    assert found.token == Token(b"\x00\xffold", "run-1")
    entry.set_token(Token(b"new", "run-1"))
    assert spool.find(entry.unit).token == Token(b"new", "run-1")


def test_burying_leaves_a_tombstone_and_the_log_alone(spool, tmp_path):
    entry = spool.create(spec(), Token(b"t", "r"))
    entry.write("exit.json", {"x": 1})
    entry.log.write_bytes(b"hello")
    kept = tmp_path / "logs" / "w" / "s.log"
    spool.bury(entry, kept)
    assert list(spool.entries()) == []
    assert spool.buried(entry.unit)
    assert kept.read_bytes() == b"hello"
    assert list((spool.tombstones / entry.unit).iterdir()) == []


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


def test_a_half_written_entry_is_not_an_entry(spool):
    unit = unit_name("w", "s", 1, 100)
    (spool.places.spool / f"new.{unit}").mkdir()
    assert list(spool.entries()) == []
    assert spool.create(spec(), Token(b"t", "r")).spec == spec(), "what a crash left is replaced"


@pytest.mark.parametrize("damage", [b"", b'{"crc":1,"body":{}}', b'{"body":1}', b"\xff\xfe", b"[]"])
def test_a_torn_or_altered_record_is_never_taken_for_a_whole_one(tmp_path, damage):
    path = tmp_path / "record"
    path.write_bytes(damage)
    with pytest.raises(CorruptRecordError):
        read_record(path)


def test_an_immutable_record_is_written_once_and_a_replaceable_one_whole(tmp_path):
    path = tmp_path / "exit.json"
    write_once(path, {"a": 1})
    with pytest.raises(FileExistsError):
        write_once(path, {"a": 2})
    assert read_record(path) == {"a": 1}
    replace(tmp_path / "lease", {"b": "é"}, durable=True)
    assert read_record(tmp_path / "lease") == {"b": "é"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["exit.json", "lease"]


def test_a_stop_is_hardened_but_never_softened(spool):
    entry = spool.create(spec(), Token(b"t", "r"))
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
