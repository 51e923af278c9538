"""The command without a server: help, usage errors, completion, init."""

import json
import os
import subprocess
import sys
import time

import pytest

COMMANDS = (
    "run",
    "submit",
    "wait",
    "follow",
    "list",
    "status",
    "logs",
    "cancel",
    "resolve",
    "explain",
    "history",
    "node",
    "queue",
    "validate",
    "init",
    "doctor",
    "ui",
    "completion",
    "dev",
    "worker",
)


@pytest.fixture
def headbay(tmp_path):
    """Runs the command in an empty directory, with no server configured."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HEADBAY_"))}
    env = keep | {"HEADBAY_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}

    def run(*arguments, stdin=None, **more):
        return subprocess.run(
            [sys.executable, "-m", "headbay.client.cli", *arguments],
            capture_output=True,
            text=True,
            input=stdin,
            cwd=tmp_path,
            env=env | more,
            timeout=60,
            check=False,
        )

    run.folder = tmp_path
    return run


def test_help_names_every_command_and_the_exit_codes(headbay):
    shown = headbay("--help")
    assert shown.returncode == 0
    assert shown.stderr == ""
    words = shown.stdout.split()
    assert [name for name in COMMANDS if name not in words] == []
    assert "headbay run -- make test" in shown.stdout


LEAVES = (
    [[name] for name in COMMANDS if name not in ("node", "queue", "dev", "worker")]
    + [["node", name] for name in ("list", "cordon", "uncordon", "drain", "install", "uninstall")]
    + [["queue", "list"]]
)


@pytest.mark.parametrize("command", LEAVES, ids=" ".join)
def test_every_command_teaches_by_example(headbay, command):
    shown = headbay(*command, "--help")
    assert shown.returncode == 0
    typed = " ".join(["headbay", *command])
    examples = [line for line in shown.stdout.splitlines() if line.startswith("    ")]
    assert any(typed in line for line in examples), shown.stdout


def test_help_waits_for_neither_temporal_nor_pydantic(headbay):
    code = (
        "import sys\n"
        "from headbay.client.cli import run_cli\n"
        "assert run_cli(sys.argv[1:]) == 0\n"
        "slow = [m for m in ('temporalio', 'pydantic', 'ruamel', 'asyncio') if m in sys.modules]\n"
        "print(slow, file=sys.stderr)\n"
    )
    for arguments in (["--help"], ["run", "--help"], ["--version"], ["completion", "bash"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        assert ran.stderr.strip() == "[]", arguments


def test_help_answers_in_a_few_tenths_of_a_second(headbay):
    def best(*command):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    floor = best(sys.executable, "-c", "import cyclopts, rich.console, rich.table")
    assert best(sys.executable, "-m", "headbay.client.cli", "--help") < 3 * floor + 0.1


def test_the_client_library_needs_nothing_of_the_command():
    code = (
        "import sys, headbay.client as c\n"
        "c.HeadbayClient, c.ConflictError, c.Reading\n"
        "print([m for m in ('cyclopts', 'rich', 'ruamel', 'ruamel.yaml') if m in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_public_name_of_the_library_is_there():
    import headbay.client

    assert [name for name in headbay.client.__all__ if not hasattr(headbay.client, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = headbay.client.Nope


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "Unknown command"),
        (["run", "--bogus", "x.yaml"], "--bogus"),
        (["run"], "nothing to run; give a file"),
        (["run", "--"], "no command follows"),
        (["run", "a.yaml", "--", "make"], "leave one of them out"),
        (["run", "make", "test"], "`headbay run -- make test`"),
        (["run", "--cpu", "2", "a.yaml"], "--cpu only describe a command"),
        (["run", "-e", "NOPE", "--", "true"], "KEY=VALUE"),
        (["run", "--id", "last", "--", "true"], "choose another id"),
        (["submit", "--id", "a b", "--", "true"], "a b"),
        (["status", "-o", "xml"], "xml"),
        (["resolve", "w", "s", "--as", "maybe"], "maybe"),
        (["resolve", "w", "s"], "--as"),
        (["validate"], "no file to validate"),
        (["cancel"], "which workload?"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_refused_with_2(headbay, arguments, said):
    ran = headbay(*arguments)
    assert ran.returncode == 2, ran.stderr
    assert ran.stdout == ""
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        ("--help >&-", 0, ""),
        ("validate - <&-", 2, "the document is empty"),
        ("validate - <&- 2>&-", 2, ""),
        ("--help >/dev/full", 125, "No space left on device"),
        ("dev status >&-", 3, ""),
    ],
)
def test_streams_that_are_closed_or_full_are_no_fault(headbay, closed, code, said):
    (headbay.folder / "run.sh").write_text(f"exec {sys.executable} -m headbay.client.cli {closed}")
    ran = subprocess.run(
        ["sh", "run.sh"],
        cwd=headbay.folder,
        env=os.environ | {"HEADBAY_STATE": str(headbay.folder / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "fault in Headbay" in ran.stderr) == (code, False), ran.stderr
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_last_that_cannot_be_kept_is_a_warning(tmp_path, monkeypatch, capsys):
    from headbay.client.cli.session import remember

    (tmp_path / "state").write_text("in the way")
    monkeypatch.setenv("HEADBAY_STATE", str(tmp_path / "state"))
    remember("w")
    assert "`last` will not mean this workload" in capsys.readouterr().err


def test_a_directory_that_is_gone_is_named(headbay):
    command = f"{sys.executable} -m headbay.client.cli run -- true"
    script = f"mkdir gone; cd gone; rmdir ../gone; exec {command}"
    ran = subprocess.run(
        ["sh", "-c", script], cwd=headbay.folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "does not exist any more" in ran.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(headbay, shell):
    script = headbay("completion", shell)
    assert script.returncode == 0
    assert "headbay" in script.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script.stdout, text=True, check=True)


def test_bash_completes_commands(headbay):
    script = headbay("completion", "bash").stdout
    probe = (
        f"{script}\nCOMP_WORDS=(headbay va); COMP_CWORD=1; COMP_LINE='headbay va'; COMP_POINT=10\n"
        "$(complete -p headbay | sed 's/.*-F \\([^ ]*\\).*/\\1/') headbay va headbay\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    ran = subprocess.run(
        ["bash", "-c", probe], capture_output=True, text=True, check=False, timeout=20
    )
    assert "validate" in ran.stdout, ran.stderr


def test_init_writes_once_and_never_overwrites(headbay):
    file = headbay.folder / "headbay.yaml"
    assert headbay("init").returncode == 0
    first = file.read_text()
    assert "steps:" in first
    again = headbay("init")
    assert again.returncode == 1
    assert "left alone" in again.stderr
    assert file.read_text() == first


def test_init_says_where_it_cannot_write(headbay):
    ran = headbay("init", "no/such/folder/x.yaml")
    assert ran.returncode == 1
    assert "cannot be written" in ran.stderr


def test_last_without_a_submission_says_so(headbay):
    ran = headbay("status")
    assert ran.returncode == 1
    assert "there is none yet" in ran.stderr


def test_without_a_server_looking_says_how_to_get_one(headbay):
    ran = headbay("list")
    assert ran.returncode == 125
    assert "headbay dev start" in ran.stderr
    assert "TEMPORAL_ADDRESS" in ran.stderr


def test_a_configured_server_that_is_away_is_named_and_no_cluster_is_started(headbay):
    ran = headbay("run", "--", "true", TEMPORAL_ADDRESS="127.0.0.1:1")
    assert ran.returncode == 125
    assert "127.0.0.1:1" in ran.stderr
    assert not (headbay.folder / "state" / "dev" / "dev.json").exists()


def test_doctor_without_a_server_names_the_next_step(headbay):
    ran = headbay("doctor", "-o", "json")
    found = json.loads(ran.stdout)
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert states["python"] == "ok"
    assert states["temporal"] == "warning"
    assert ran.returncode == (0 if found["healthy"] else 1)
    table = headbay("doctor")
    assert "headbay dev start" in table.stdout


def test_a_broken_profile_is_named(headbay):
    bad = headbay.folder / "bad.toml"
    bad.write_text("not = [toml")
    ran = headbay("list", TEMPORAL_CONFIG_FILE=str(bad))
    assert ran.returncode == 125
    assert "cannot be read" in ran.stderr


def test_no_colour_without_a_terminal(headbay):
    assert "\x1b" not in headbay("--help").stdout
    assert "\x1b" not in headbay("nope").stderr
