"""The shim, alone with real processes: nobody else is needed to keep its promises."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support.supervised import CAP, HOUR_NS, Supervised

from headbay.activities.executor.identity import identity_of
from headbay.activities.executor.shim.kernel import send_signal, start_ticks
from headbay.activities.executor.shim.secret_files import FIRST_FD


@pytest.fixture
def supervise(tmp_path):
    made: list[Supervised] = []

    def make(script: str | list[str], **launch) -> Supervised:
        argv = ["bash", "-c", script] if isinstance(script, str) else script
        made.append(Supervised(tmp_path / f"a{len(made)}", argv, **launch))
        return made[-1]

    yield make
    for one in made:
        one.clean()


def test_without_a_nonce_nothing_ever_runs(supervise):
    never = supervise("touch ran")
    os.close(never.gate)
    assert never.process.wait(10) == 75
    wrong = supervise("touch ran").go("cd" * 32)
    assert wrong.process.wait(10) == 76
    assert not never.ran()
    assert not wrong.ran()


def test_begin_is_on_disk_before_the_payload_runs(supervise):
    record = supervise("test -s begin.json").go().end()
    assert record["exit_code"] == 0


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 42", 42, None), ("kill -9 $$", None, 9), ("nowhere", 127, None)],
)
def test_the_exit_record_tells_status_and_signal(supervise, script, code, number):
    record = supervise(script).go().end()
    assert (record["exit_code"], record["signal"]) == (code, number)
    assert record["exec_failure"] is None
    assert record["causes"] == []


def test_a_launch_that_fails_is_told_from_exit_127(supervise):
    missing = supervise(["/no/such/program"]).go().end()
    assert missing["exec_failure"]["errno"] == 2
    assert "/no/such/program" in missing["exec_failure"]["where"]
    elsewhere = supervise("true", cwd="/no/such/folder").go().end()
    assert "/no/such/folder" in elsewhere["exec_failure"]["where"]


def test_the_payload_starts_with_default_signals_and_no_open_files(supervise):
    script = (
        "import os, signal\n"
        "print([n for n in range(1, 32) if n not in (9, 19) and"
        " signal.getsignal(n) == signal.SIG_IGN and n not in (13, 25)])\n"
        "print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:5])\n"
        "print(open('/proc/self/status').read().count('NoNewPrivs:\\t1'))\n"
    )
    one = supervise([sys.executable, "-I", "-c", script]).go()
    one.end()
    ignored, files, no_new_privs = (one.folder / "out.log").read_text().splitlines()
    assert ignored == "[]"
    assert files == "[0, 1, 2, 3]", "3 is the listing itself"
    assert no_new_privs == "1"


def test_a_timeout_kills_who_obeys_and_who_does_not(supervise):
    obeys = supervise("sleep 30", timeout_ms=300, grace_ms=5_000).go()
    ignores = supervise("trap '' TERM; while :; do sleep 0.1; done", timeout_ms=300).go()
    started = time.monotonic()
    assert obeys.end()["causes"] == ["timed_out"]
    assert time.monotonic() - started < 4, "who obeys TERM needs no grace"
    record = ignores.end()
    assert record["causes"] == ["timed_out"]
    assert record["signal"] == 9
    assert 800 <= record["wall_ms"] < 4_000, "timeout plus grace"


def test_a_lease_that_is_not_renewed_kills_without_grace_and_without_anybody(supervise):
    one = supervise("trap '' TERM; while :; do sleep 0.1; done", grace_ms=60_000)
    deadline = one.lease(700_000_000)
    record = one.go().end()
    assert record["causes"] == ["lease_lost"]
    late_ms = (record["boottime_ns"] - deadline) / 1e6
    assert 0 <= late_ms < 1_500
    assert not one.family()


@pytest.mark.parametrize("damage", ["torn", "foreign", "gone"])
def test_a_lease_that_is_torn_or_anothers_or_gone_renews_nothing_and_ends_nothing(
    supervise, damage
):
    one = supervise("sleep 60")
    deadline = one.lease(1_500_000_000)
    one.go()
    one.wait_for("begin.json")
    if damage == "torn":
        (one.folder / "lease").write_text('{"crc": 1, "bo')
    elif damage == "foreign":
        one.lease(HOUR_NS, fence=6)
    else:
        (one.folder / "lease").unlink()
    record = one.end()
    assert record["causes"] == ["lease_lost"]
    assert 0 <= (record["boottime_ns"] - deadline) / 1e6 < 1_500


def test_a_repeated_stop_never_extends_the_grace(supervise):
    one = supervise("trap '' TERM; touch up; while :; do sleep 0.1; done", grace_ms=1_000).go()
    one.wait_for("begin.json")
    time.sleep(0.2)
    started = time.monotonic()
    for _ in range(8):
        one.order("stop", reason="cancelled")
        time.sleep(0.2)
    record = one.end()
    assert record["causes"] == ["cancelled"]
    assert time.monotonic() - started < 1.0 + 2.0
    assert record["signal"] == 9


def test_a_stubborn_tree_with_daemons_and_stopped_processes_is_gone(supervise):
    script = (
        "trap '' TERM\n"
        "(setsid bash -c 'trap \"\" TERM; while :; do sleep 0.1; done' & disown)\n"
        "(setsid bash -c 'kill -STOP $$' & disown)\n"
        "env -i bash -c 'trap \"\" TERM; while :; do sleep 0.1; done' &\n"
        "sleep 0.3; echo up > up; while :; do sleep 0.1; done\n"
    )
    one = supervise(script).go()
    one.wait_for("up")
    assert len(one.family()) >= 4
    one.order("stop", reason="cancelled")
    one.end(5)
    assert not one.family()
    shim_pid = one.process.pid
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and start_ticks(int(entry.name)) is not None:
            stat = (entry / "stat").read_text(errors="replace") if entry.exists() else ""
            assert f" {shim_pid} " not in stat.rpartition(")")[2][:20], "a child is left"


def test_a_grandchild_that_holds_stdout_does_not_hold_up_the_end(supervise):
    started = time.monotonic()
    one = supervise("(setsid sleep 60 & disown); echo done; exit 3").go()
    record = one.end()
    assert time.monotonic() - started < 5
    assert record["exit_code"] == 3
    assert record["leftovers_killed"]
    assert not one.family()


def test_a_flood_without_newlines_is_capped_and_counted_exactly(supervise):
    total = 20_000_000
    script = f"head -c {total} /dev/zero | tr '\\0' '\\377'; printf END"
    one = supervise(script).go()
    record = one.end(60)
    log = (one.folder / "out.log").read_bytes()
    assert record["log_seen_bytes"] == total + 3
    assert record["log_kept_bytes"] == CAP
    dropped = int(re.search(rb"\[headbay: (\d+) bytes dropped here\]", log).group(1))
    assert dropped == total + 3 - CAP
    note = f"\n[headbay: {dropped} bytes dropped here]\n".encode()
    assert len(log) == CAP + len(note)
    assert log.endswith(b"END")
    assert not (one.folder / "out.log.ring").exists()


def test_a_bounded_fork_bomb_is_gone(supervise):
    script = "f() { sleep 30 & }; for i in $(seq 150); do f; done; echo up > up; wait"
    one = supervise(script, grace_ms=0).go()
    one.wait_for("up")
    one.order("stop", reason="cancelled")
    one.end(10)
    assert not one.family()


def test_a_secret_reaches_the_payload_and_no_file_or_command_line(supervise):
    one = supervise("test ${#TOKEN} = 11 && echo ok; sleep 0.5").go(TOKEN="canary-7f3a")  # noqa: S106
    one.wait_for("begin.json")
    shim_proc = Path(f"/proc/{one.process.pid}")
    assert b"canary" not in (shim_proc / "environ").read_bytes()
    assert b"canary" not in (shim_proc / "cmdline").read_bytes()
    assert one.end()["exit_code"] == 0
    assert (one.folder / "out.log").read_text() == "ok\n"
    for path in one.folder.iterdir():
        assert b"canary" not in path.read_bytes(), path.name


READ_FILE = """
import hashlib, json, os, stat, subprocess, sys
path = os.environ["KEY"]
about = os.stat(path)
def refused(flags):
    try:
        os.write(os.open(path, flags), b"x")
    except OSError:
        return True
    return False
def truncated():
    try:
        os.truncate(path, 0)
    except OSError:
        return True
    return False
child = '''import hashlib, os
print(hashlib.sha256(open(os.environ['KEY'], 'rb').read()).hexdigest())'''
print(json.dumps({
    "path": path,
    "sha256": hashlib.sha256(open(path, "rb").read()).hexdigest(),
    "in_a_child_without_its_files": subprocess.check_output(
        [sys.executable, "-I", "-c", child], text=True).strip(),
    "mode": oct(stat.S_IMODE(about.st_mode)),
    "owner": [about.st_uid, about.st_gid],
    "me": [os.getuid(), os.getgid()],
    "device": [os.major(about.st_dev), about.st_dev],
    "unchangeable": refused(os.O_WRONLY) and refused(os.O_RDWR) and truncated(),
    "mounts": [line.split()[3] for line in open("/proc/mounts") if line.split()[1] == sys.argv[1]],
    "core": __import__("resource").getrlimit(4)[0],
}), flush=True)
"""
BYTES = b"\x00\xff canary-7f3a \n\n" * 500
"""What no environment can hold, above one page."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and other users need root")


@pytest.fixture
def public():
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="headbay-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("user", "mounted"),
    [
        pytest.param(None, False, id="held"),
        pytest.param("nobody", False, id="held-for-another-user", marks=as_root),
        pytest.param(None, True, id="mounted", marks=as_root),
        pytest.param("nobody", True, id="mounted-for-another-user", marks=as_root),
    ],
)
def test_a_secret_file_is_the_payloads_alone_in_memory_and_gone_when_it_ends(
    supervise, public, user, mounted
):
    """Byte for byte, unchangeable, open to all its processes, and on no disk at any time."""
    folder = public / "secrets"
    more = {"user": identity_of(user, allow_root=False)} if user else {}
    more |= {"secret_folder": str(folder)} if mounted else {}
    python = shutil.which("python3", path="/usr/bin:/bin") if user else sys.executable
    assert python is not None, "another user may not reach this environment's"
    script = [python, "-I", "-c", READ_FILE + "\nimport time; time.sleep(60)", str(folder)]
    one = supervise(script, cwd="/", timeout_ms=30_000, **more).go(files={"KEY": BYTES})
    seen = json.loads(one.wait_for("out.log").read_text())
    digest = hashlib.sha256(BYTES).hexdigest()
    assert seen["sha256"] == seen["in_a_child_without_its_files"] == digest
    assert (seen["mode"], seen["owner"]) == ("0o400", seen["me"])
    assert seen["me"][0] == (more["user"]["uid"] if user else os.getuid())
    assert seen["device"][0] == 0, "it is on a device"
    assert seen["unchangeable"]
    assert seen["core"] == 0, "a core would hold it"
    if mounted:
        assert seen["path"] == f"{folder}/KEY"
        (options,) = seen["mounts"]
        assert {"ro", "nosuid", "nodev", "noexec"} <= set(options.split(","))
        assert list(folder.iterdir()) == [], "everybody else sees it too"
        assert folder.stat().st_dev != seen["device"][1]
    else:
        assert seen["path"].startswith("/proc/")
        assert hashlib.sha256(Path(seen["path"]).read_bytes()).hexdigest() == digest, "held"
    shim = Path(f"/proc/{one.process.pid}")
    for name in ("environ", "cmdline"):
        assert b"canary" not in (shim / name).read_bytes()
    assert not [fd for fd in (shim / "fd").iterdir() if "memfd" in str(fd.readlink())]
    one.order("stop", reason="cancelled")
    assert one.end()["causes"] == ["cancelled"]
    assert not Path(seen["path"]).exists()
    for path in one.folder.iterdir():
        assert b"canary" not in path.read_bytes(), path.name


@as_root
def test_a_secret_file_that_cannot_be_mounted_is_a_payload_that_never_ran(supervise, public):
    """It is not put anywhere else instead."""
    blocked = public / "file"
    blocked.write_text("")
    one = supervise("touch ran", secret_folder=str(blocked / "secrets")).go(files={"KEY": b"x"})
    failure = one.end()["exec_failure"]
    assert failure["where"] == f"mount its secrets on {blocked}/secrets"
    assert not (one.folder / "ran").exists()


@as_root
@pytest.mark.parametrize("name", ["../KEY", "a/b", "", ".", "..", "/etc/KEY"])
def test_the_name_of_a_secret_file_cannot_leave_its_folder(supervise, public, name):
    """The order may be anybody's, and a root writes the file."""
    one = supervise("true", secret_folder=str(public / "in" / "secrets"))
    record = one.go(files={name: b"canary"}).end()
    assert "cannot name a file" in record["exec_failure"]["why"]
    assert not [path for path in public.rglob("*") if path.is_file()]


def test_a_held_secret_file_leaves_the_numbers_that_scripts_use_alone(supervise):
    """A script that opens its own 3 to 9 must not close its secret thereby."""
    script = 'exec 3</dev/null 9</dev/null; test "$(cat "$KEY")" = v && ls /proc/self/fd | xargs'
    one = supervise(script).go(files={"KEY": b"v"})
    assert one.end()["exit_code"] == 0
    numbers = sorted(int(number) for number in (one.folder / "out.log").read_text().split())
    assert numbers == [0, 1, 2, 3, 4, 9, FIRST_FD], "4 is the listing itself"


def test_a_reused_pid_is_never_signalled():
    bystander = subprocess.Popen(["sleep", "30"])
    try:
        ticks = start_ticks(bystander.pid)
        assert not send_signal(bystander.pid, ticks - 1, signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            bystander.wait(0.5)
        assert send_signal(bystander.pid, ticks, signal.SIGKILL)
        assert bystander.wait(5) == -signal.SIGKILL
    finally:
        bystander.kill()
        bystander.wait(5)
