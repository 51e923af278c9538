"""The shim under faults: full disks, forks without end, orders at the worst moment."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.supervised import CAP, HOUR_NS, Supervised

from headbay.activities.executor.shim.entry import EXIT_FORBIDDEN
from headbay.activities.executor.shim.family import Family
from headbay.activities.executor.shim.kernel import process_stat, start_ticks

NOBODY = 65534


@pytest.fixture
def supervise(tmp_path):
    made: list[Supervised] = []

    def make(script: str | list[str], **launch) -> Supervised:
        argv = ["bash", "-c", script] if isinstance(script, str) else script
        folder = launch.pop("folder", tmp_path / f"a{len(made)}")
        made.append(Supervised(folder, argv, **launch))
        return made[-1]

    yield make
    for one in made:
        one.clean()


def test_go_is_not_obeyed_without_a_good_lease_or_after_a_stop(supervise):
    without = supervise("touch ran", lease=False)
    late = supervise("touch ran")
    late.lease(-1)
    foreign = supervise("touch ran", lease=False)
    foreign.lease(HOUR_NS, fence=6)
    stopped = supervise("touch ran")
    stopped.order("stop", reason="cancelled")
    for one in (without, late, foreign, stopped):
        one.go()
        assert one.process.wait(10) == EXIT_FORBIDDEN
        assert not one.ran()


def test_without_a_durable_begin_nothing_is_executed_and_nobody_waits_for_ever(supervise):
    one = supervise("touch ran")
    (one.folder / "begin.json.tmp").mkdir()
    one.go()
    assert one.process.wait(10) == 1
    deadline = time.monotonic() + 5
    while left := [e for e in Path("/proc").iterdir() if _reads(e / "cmdline", bytes(one.folder))]:
        assert time.monotonic() < deadline, f"the forked child still waits: {left}"
        time.sleep(0.02)
    assert not one.ran()


def test_a_second_shim_of_one_attempt_leaves_the_first_alone(supervise):
    one = supervise("sleep 1; exit 5").go()
    one.wait_for("begin.json")
    second = supervise("touch ran; exit 6", folder=one.folder).go()
    # It has another marker and nonce only in so far as its order was written anew.
    assert second.process.wait(10) == EXIT_FORBIDDEN
    assert one.end()["exit_code"] == 5


def test_what_a_shell_started_has_the_grace_that_the_shell_did_not_need(supervise):
    script = (
        "(trap 'sleep 0.5; echo clean > clean; exit' TERM; while :; do sleep 0.05; done) & wait"
    )
    one = supervise(f"{script}; exit 1", grace_ms=5_000).go()
    one.wait_for("begin.json")
    time.sleep(0.3)
    started = time.monotonic()
    one.order("stop", reason="cancelled")
    record = one.end()
    assert (one.folder / "clean").exists(), "it was killed while it cleaned up"
    assert time.monotonic() - started < 3, "nobody is left, so nothing is waited for"
    assert record["causes"] == ["cancelled"]
    assert not record["leftovers_killed"]


def test_a_lost_lease_cuts_a_grace_short(supervise):
    one = supervise("trap '' TERM; touch up; while :; do sleep 0.1; done", grace_ms=60_000).go()
    one.wait_for("begin.json")
    time.sleep(0.3)
    one.order("stop", reason="cancelled")
    time.sleep(0.3)
    one.lease(0)
    record = one.end(5)
    assert record["causes"] == ["cancelled", "lease_lost"]
    assert record["signal"] == signal.SIGKILL


def test_a_log_that_cannot_be_written_ends_nothing_and_is_counted(supervise):
    total = 3_000_000
    one = supervise(
        f"head -c {total} /dev/zero; echo end > done; exit 4",
        log_cap_bytes=16 << 20,
        file_limit=1_000_000,
    ).go()
    record = one.end()
    assert (one.folder / "done").exists()
    assert record["exit_code"] == 4
    assert record["log_errno"] is not None
    assert record["log_seen_bytes"] == total
    assert record["log_kept_bytes"] == (one.folder / "out.log").stat().st_size == 1_000_000


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_loses_the_log_but_not_the_exit_record(supervise, small_disk):
    folder = small_disk / "attempt"
    one = supervise("head -c 2000000 /dev/zero; exit 9", folder=folder, log_cap_bytes=16 << 20)
    record = one.go().end()
    assert record["exit_code"] == 9
    assert record["log_seen_bytes"] == 2_000_000
    assert record["log_kept_bytes"] < 256 << 10


def test_a_disk_that_is_full_beforehand_lets_nothing_begin(supervise, small_disk):
    folder = small_disk / "attempt"
    one = supervise("touch ran", folder=folder)
    with contextlib.suppress(OSError):
        (small_disk / "filler").write_bytes(b"x" * (300 << 10))
    one.go()
    assert one.process.wait(10) != 0
    assert not one.ran()


def test_a_fork_bomb_is_gone_within_the_bound(supervise):
    """Real, without end: every process forks two, as fast as its user's limit lets it."""
    if os.geteuid() != 0:
        pytest.skip("needs another user whose number of processes can be limited")
    bomb = "b() { b | b & b; }; b"
    script = (
        f"exec setpriv --reuid={NOBODY} --clear-groups bash -c "
        f"'ulimit -u 300; echo up > /proc/self/fd/9; {bomb}' 9> up 2>/dev/null"
    )
    one = supervise(script, grace_ms=200).go()
    one.folder.chmod(0o755)
    deadline = time.monotonic() + 10
    while len(one.family()) < 100:
        assert time.monotonic() < deadline, "the bomb did not go off"
        time.sleep(0.02)
    one.order("stop", reason="cancelled")
    record = one.end(15)
    assert not record["kill_incomplete"]
    assert not one.family()
    processes = [int(e.name) for e in Path("/proc").iterdir() if e.name.isdigit()]
    owned = [p for p in processes if _owner(p) == NOBODY and start_ticks(p) is not None]
    assert not owned


def _owner(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except FileNotFoundError:
        return None


def test_no_child_that_is_born_while_its_parent_leaves_is_missed(supervise):
    """Daemons that fork again and again, each parent leaving at once, without a marker."""
    hop = (
        "import time\nuntil = time.time() + 30\n"
        "while time.time() < until:\n    if os.fork(): os._exit(0)\n    os.setsid()\n"
    )
    for _ in range(5):
        one = supervise(["python3", "-c", f"import os\nif os.fork():\n    os._exit(3)\n{hop}"],
                        env={"PATH": os.environ["PATH"]}).go()  # fmt: skip
        record = one.end(15)
        assert record["exit_code"] == 3
        assert record["leftovers_killed"]
        assert not record["kill_incomplete"]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _reads(entry / "cmdline", hop[:30].encode()):
                stat = process_stat(int(entry.name))
                assert stat is None or stat[0] in "ZX", f"{entry.name} is left"


def _reads(path: Path, part: bytes) -> bool:
    try:
        return part in path.read_bytes()
    except OSError:
        return False


def test_two_hundred_megabytes_pass_quickly_and_in_flat_memory(supervise):
    total = 200_000_000
    started = time.monotonic()
    one = supervise(f"head -c {total} /dev/zero").go()
    peak = 0
    while one.process.poll() is None:
        status = Path(f"/proc/{one.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        peak = max(peak, int(found.group(1)) if found else 0)
        time.sleep(0.02)
        assert time.monotonic() - started < 30
    record = one.end()
    assert record["log_seen_bytes"] == total
    assert record["log_kept_bytes"] == CAP
    assert peak < 20_000, f"{peak} kB resident"


def test_the_shim_is_small_and_out_of_the_oom_killers_way(supervise):
    one = supervise("cat /proc/self/oom_score_adj; sleep 5").go()
    one.wait_for("out.log")
    shim = Path(f"/proc/{one.process.pid}")
    protected = (shim / "oom_score_adj").read_text()
    rss = int(re.search(r"VmRSS:\s+(\d+) kB", (shim / "status").read_text()).group(1))
    assert rss < 16_000
    own = Path("/proc/self/oom_score_adj").read_text()
    assert (one.folder / "out.log").read_text() == own, "the payload is no exception"
    try:
        Path(f"/proc/{one.process.pid}/oom_score_adj").write_text("-999")
    except OSError:
        return  # This user may not lower it, and the shim neither.
    assert protected == "-1000\n"


def test_an_order_that_nobody_can_execute_is_told_whole(supervise):
    record = supervise(["/" + "x" * 9_000]).go().end()
    assert record["exec_failure"]["errno"] in (36, 2)
    assert record["exit_code"] == 127
    nul = supervise(["echo", "a\0b"]).go().end()
    assert "null byte" in nul["exec_failure"]["why"]


def test_when_the_shim_is_killed_the_main_process_leads_to_the_rest(supervise):
    """Without a shim and without the marker, the session of the main process is the last thread."""
    one = supervise("env -i sleep 301 & env -i bash -c 'sleep 302; true' & sleep 303").go()
    one.wait_for("begin.json")
    deadline = time.monotonic() + 10
    main = (0, 0)
    while True:
        from headbay.activities.executor.records import read_record

        main = tuple(read_record(one.folder / "begin.json")["main"])
        family = Family(one.unit, main=main)
        if len(family.members()) >= 5:
            break
        assert time.monotonic() < deadline, family.members()
        time.sleep(0.02)
    one.process.kill()
    one.process.wait(10)
    members = family.members()
    assert len(members) >= 5
    assert family.end()
    assert not [pid for pid, ticks in members if start_ticks(pid) == ticks]


def test_limits_of_the_test_process_are_its_own():
    """A guard for this file: `file_limit` must not have leaked into the tests."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
