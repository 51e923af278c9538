"""Promises of `headbay node install`: what it writes, when it leaves files alone, what it runs."""

import argparse
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headbay.workers.node.__main__ import parser as worker_parser
from headbay.workers.node.install.__main__ import main, parser
from headbay.workers.node.install.remove import main as remove
from headbay.workers.node.install.unit import Service, environment_text, unit_text
from headbay.workers.node.options import WORDS, BadOptionError, capacity, words

UNIT = """\
[Unit]
Description=Headbay node worker
Wants=network-online.target
After=network-online.target
RequiresMountsFor=/var/lib/headbay
# Tried for ever: a server may be away for longer than any count of tries.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
EnvironmentFile=/etc/headbay/node.env
# Yours, never written by Headbay: TEMPORAL_API_KEY, TEMPORAL_TLS_*, HEADBAY_LOG_LEVEL, ...
EnvironmentFile=-/etc/headbay/node.local.env
ExecStart=/opt/headbay/bin/python -m headbay.workers.node "--label=what=50%% \\"x\\" $$y \\\\z"
# Steps run in scopes of their own, outside of this unit's control group, and a stop or an upgrade
# leaves them alone. Inside are the worker, its helpers, and supervisors that have not been told to
# go and start nothing. The worker alone hears SIGTERM, and lets its helpers finish what it asked
# of them; what is still here when it has ended is killed, so that no helper outlives it.
KillMode=mixed
# Ready means registered, which needs the server and a control worker; then it is tried anew.
TimeoutStartSec=3min
TimeoutStopSec=30s
Restart=always
RestartSec=1s
# 2: an option cannot be meant; 3: the node was refused. Starting again changes neither.
RestartPreventExitStatus=2 3
# The event loop itself gives the signs of life: one that hangs is started again.
WatchdogSec=30s
# A helper that is killed for memory is replaced by the worker.
OOMPolicy=continue
# Who supervises steps is among the last to be killed for memory; steps are not.
OOMScoreAdjust=-900
Slice=system.slice
StateDirectory=headbay
# Steps of other users must reach their own folders below it, and list nothing.
StateDirectoryMode=0711
# No sandboxing (Protect*=, Private*=, NoNewPrivileges=): steps are forked here and inherit it.

[Install]
WantedBy=multi-user.target
"""

SERVICE = Service(
    command=[
        "/opt/headbay/bin/python",
        "-m",
        "headbay.workers.node",
        '--label=what=50% "x" $y \\z',
    ],
    environment=Path("/etc/headbay/node.env"),
    local=Path("/etc/headbay/node.local.env"),
    state=Path("/var/lib/headbay"),
)

MACHINE = {"cpu": 4_000, "memory": 10 << 30, "tasks": 1_000}


def test_the_unit_of_a_machine_is_exactly_this():
    """Every line of the unit is on purpose; words that systemd would read into are quoted."""
    assert unit_text(SERVICE) == UNIT


def test_the_unit_of_a_user_asks_for_nothing_that_only_the_system_can_give():
    """A user's manager knows no system slice, no network target, and protects nobody."""
    own = Path("/home/you/.config/headbay")
    service = Service(["/p/python"], own / "node.env", own / "node.local.env", None, user=True)
    text = unit_text(service)
    for absent in ("Slice=", "OOMScoreAdjust=", "StateDirectory=", "network-online", "Mounts"):
        assert absent not in text
    assert "WantedBy=default.target\n" in text
    assert "KillMode=mixed\n" in text


@pytest.mark.parametrize("user", [False, True])
def test_systemd_finds_nothing_to_say_against_the_unit(tmp_path, user):
    """`systemd-analyze verify` reads every setting of the unit as it is meant."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("SYSTEMD-ANALYZE IS NOT THERE: nobody has checked the unit (package systemd)")
    folder = tmp_path / "units"
    folder.mkdir()
    (tmp_path / "node.env").touch()
    service = Service(
        [sys.executable, "-m", "headbay.workers.node", '--label=what=50% "x" $y'],
        tmp_path / "node.env",
        tmp_path / "node.local.env",
        None if user else Path("/var/lib/headbay"),
        user=user,
    )
    unit = folder / "headbay-node.service"
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path)}

    def verify(text):
        unit.write_text(text)
        command = ["systemd-analyze", "verify", "--man=no", *(["--user"] if user else []), unit]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | runtime
        )
        return [line for line in ran.stderr.splitlines() if "headbay-node" in line]

    assert verify(unit_text(service)) == []
    assert verify(unit_text(service).replace("KillMode=mixed", "KillMode=gently")) != []


def test_the_environment_file_says_its_values_as_they_are():
    """Quotes, dollars, backticks and backslashes reach the worker unchanged; control never."""
    text = environment_text({"A": "plain:7233", "B": 'a b"$c`\\'})
    assert text == 'A=plain:7233\nB="a b\\"\\$c\\`\\\\"\n'
    with pytest.raises(BadOptionError, match="control character"):
        environment_text({"A": "x\nTEMPORAL_API_KEY=y"})
    with pytest.raises(BadOptionError, match="control character"):
        unit_text(Service(["p", "a\nb"], SERVICE.environment, SERVICE.local, None))


def test_no_option_of_a_worker_is_lost_on_the_way_into_its_unit():
    """What the worker reads from the unit is what `install` was given, for every option it has."""
    given = ["--server=a:1", "--name=-n", "--pool=p", "--cpu=3", "--memory=4Gi", "--tasks=5"]
    given += ["--reserve-cpu=1", "--reserve-memory=1Gi", "--reserve-tasks=7", "--resource=a=1"]
    given += ["--resource=b=2", "--label=k=v w", "--run-as=nobody", "--allow-root-user"]
    given += ["--artifacts=/a b", "--taint=gpu=yes:NoSchedule"]
    options = parser().parse_args(given)
    read = vars(worker_parser().parse_args(words(options)))
    assert {name: read[name] for name in WORDS} == {n: vars(options)[n] for n in WORDS}
    assert set(read) == {*WORDS, "executor", "state"}
    assert all(value not in (None, [], False) for name, value in read.items() if name in WORDS)


@pytest.fixture
def image(tmp_path):
    """Installs below a folder; (call, unit, environment file)."""
    root = tmp_path / "root"

    def install(*more):
        return main(["--server", "t:7233", "--name", "n", "--root", str(root), *more])

    unit = root / "etc/systemd/system/headbay-node.service"
    return install, unit, root / "etc/headbay/node.env"


def test_what_is_written_once_is_unchanged_when_it_is_written_again(image, capsys):
    """The same options change nothing on disk; others replace; the environment is private."""
    install, unit, environment = image
    assert install() == 0
    assert stat.S_IMODE(environment.stat().st_mode) == 0o600
    assert stat.S_IMODE(unit.stat().st_mode) == 0o644
    assert "TEMPORAL_ADDRESS=t:7233\n" in environment.read_text()
    before = [(path.stat().st_ino, path.read_text()) for path in (unit, environment)]
    capsys.readouterr()
    assert install() == 0
    assert capsys.readouterr().out.count("unchanged") == 2
    assert [(path.stat().st_ino, path.read_text()) for path in (unit, environment)] == before
    environment.chmod(0o644)
    assert install("--label", "zone=eu") == 0
    assert "--label=zone=eu" in unit.read_text()
    assert stat.S_IMODE(environment.stat().st_mode) == 0o600


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("foreign", ["[Unit]\n", None])
def test_a_file_that_somebody_else_wrote_or_changed_is_left_alone(image, capsys, which, foreign):
    """Neither file is touched then, without --force; with it both are ours again."""
    install = image[0]
    assert install() == 0
    theirs = image[which]
    theirs.write_text(theirs.read_text() + "# mine\n" if foreign is None else foreign)
    before = [path.read_text() for path in image[1:]]
    assert install("--label", "zone=eu") == 1
    assert f"{theirs} was not written by Headbay, or was changed" in capsys.readouterr().err
    assert [path.read_text() for path in image[1:]] == before
    assert remove(["--root", str(image[1].parents[3])]) == 1
    assert [path.read_text() for path in image[1:]] == before
    assert install("--label", "zone=eu", "--force") == 0
    assert "--label=zone=eu" in image[1].read_text()
    assert remove(["--root", str(image[1].parents[3])]) == 0
    assert not any(path.exists() for path in image[1:])


def test_a_dry_run_prints_both_files_and_writes_none(image, capsys):
    """What would be written is shown whole, with its path and mode."""
    install, unit, environment = image
    assert install("--dry-run") == 0
    said = capsys.readouterr().out
    assert f"# {environment}, mode 0600" in said
    assert "KillMode=mixed" in said
    assert not unit.exists()
    assert not environment.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--server", "nowhere"], "HOST:PORT"),
        (["--server", "a:1", "--reserve-memory", "900Ti"], "this machine has"),
        (["--server", "a:1", "--label", "x"], "KEY=VALUE"),
        (["--server", "a:1", "--taint", "gpu"], "KEY=VALUE:NoSchedule"),
        (["--server", "a:1", "--state", "/a b"], "cannot be written into a unit"),
    ],
)
def test_what_the_worker_would_refuse_is_refused_before_anything_is_written(options, said, capsys):
    """Exit 2 with the reason, as the worker itself would end."""
    assert main([*options, "--dry-run"]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """A systemctl that writes down how it was called, and fails where it is told to."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {calls}\n[ -e {tmp_path}/fail ] || exit 0\necho no >&2; exit 5\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return lambda: calls.read_text().splitlines() if calls.exists() else []


def test_start_reloads_enables_and_restarts_what_has_changed(systemctl, tmp_path, capsys):
    """A user's service is written to their own folder and handed to their own manager."""
    line = ["--server", "a:1", "--user", "--name", "n"]
    assert main(line) == 0
    assert systemctl() == []
    said = capsys.readouterr().out
    assert "next: systemctl --user daemon-reload && systemctl --user enable" in said
    assert "loginctl enable-linger" in said
    unit = tmp_path / "config/systemd/user/headbay-node.service"
    assert f"EnvironmentFile={tmp_path}/config/headbay/node.env\n" in unit.read_text()
    assert "--executor systemd-user" in unit.read_text()
    assert main([*line, "--cpu", "1", "--start"]) == 0
    service = "headbay-node.service"
    calls = ["--user daemon-reload", f"--user enable {service}", f"--user restart {service}"]
    assert systemctl() == calls
    assert main([*line, "--cpu", "1", "--start"]) == 0
    assert systemctl()[3:] == [*calls[:2], f"--user start {service}"]
    assert remove(["--user"]) == 0
    assert systemctl()[6:] == [f"--user disable --now {service}", "--user daemon-reload"]
    assert not unit.exists()


def test_a_manager_that_refuses_is_quoted(systemctl, tmp_path, capsys):
    """What systemctl said, and where to look further; exit 1."""
    (tmp_path / "fail").touch()
    assert main(["--server", "a:1", "--user", "--start"]) == 1
    said = capsys.readouterr().err
    assert "`systemctl --user daemon-reload` ended with 5: no" in said
    assert "journalctl --user -u headbay-node.service" in said


def test_without_rights_the_line_to_run_is_printed_and_nothing_is_run(
    systemctl, monkeypatch, capsys
):
    """Nothing becomes root by itself."""
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert main(["--server", "a:1", "--label", "a=b c", "--start"]) == 1
    module = "headbay.workers.node.install"
    line = f"  sudo {sys.executable} -m {module} --server a:1 --label 'a=b c' --start"
    assert line in capsys.readouterr().err.splitlines()
    assert systemctl() == []


def offers(*words: str) -> dict[str, int]:
    options = worker_parser().parse_args(list(words))
    assert isinstance(options, argparse.Namespace)
    return capacity(options, MACHINE)


def test_a_tenth_stays_for_the_system_if_nothing_is_said():
    """All CPUs are offered, and nine tenths of memory and tasks."""
    assert offers() == {"cpu": 4_000, "memory": 9 << 30, "tasks": 900}


def test_what_is_reserved_is_not_offered():
    """Capacity is the machine less the reserve, each resource by itself; 0 keeps nothing back."""
    found = offers("--reserve-cpu", "500m", "--reserve-memory", "2Gi", "--reserve-tasks", "1")
    assert found == {"cpu": 3_500, "memory": 8 << 30, "tasks": 999}
    assert offers("--reserve-memory", "0")["memory"] == 10 << 30
    assert offers("--cpu", "2", "--reserve-memory", "1Gi") == {
        "cpu": 2_000,
        "memory": 9 << 30,
        "tasks": 900,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reserve-cpu", "4"], "this machine has 4 CPUs in all"),
        (["--reserve-memory", "11Gi"], "this machine has 10Gi of memory in all"),
        (["--reserve-tasks", "1000"], "this machine has 1000 tasks in all"),
        (["--memory", "1Gi", "--reserve-memory", "1Gi"], "contradict"),
        (["--reserve-memory", "much"], "--reserve-memory: "),
        (["--resource", "cpu=4"], "an option of its own"),
    ],
)
def test_a_reserve_that_leaves_nothing_or_contradicts_is_refused(words, said):
    """The refusal says what the machine has, or which options exclude each other."""
    with pytest.raises(BadOptionError, match=said):
        offers(*words)
