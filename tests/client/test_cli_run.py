"""The command on a real cluster: run, submit, wait, follow, and what they end with."""

import json
import os
import re
import signal
import subprocess
import time

import jsonschema
import pytest

from headbay.client.models import schemas

pytestmark = pytest.mark.cluster

ID = re.compile(r"headbay: (\S+)")


def wait_for(holds, seconds=30.0):
    """Poll until ``holds`` returns something true; its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")


def status(command, workload):
    ran = command("status", workload, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)["workload"]


def test_a_command_runs_here_and_its_output_is_ours(command):
    (command.folder / "input.txt").write_text("from the caller's folder\n")
    ran = command("run", "--", "sh", "-c", "cat input.txt; echo made > output.txt; echo $PWD")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"from the caller's folder\n{command.folder}\n"
    assert (command.folder / "output.txt").read_text() == "made\n"
    # Success needs no words but the id.
    assert ID.fullmatch(ran.stderr.strip())


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_a_single_commands_end_is_ours(command, script, code):
    ran = command("run", "--", "sh", "-c", script)
    assert ran.returncode == code, ran.stderr
    assert "FAILED" in ran.stderr


def test_a_command_that_does_not_exist_is_127_and_named(command):
    ran = command("run", "--", "no-such-program-anywhere")
    assert ran.returncode == 127, ran.stderr
    assert "no-such-program-anywhere" in ran.stderr


def test_options_reach_the_command(command):
    ran = command(
        *("run", "-e", "GREETING=hello world", "--name", "greet", "-l", "team=web", "--cpu", "2"),
        *("--memory", "512Mi", "--priority", "5", "--", "sh", "-c", 'echo "$GREETING"'),
    )
    assert (ran.returncode, ran.stdout) == (0, "hello world\n"), ran.stderr
    found = status(command, "last")
    assert found["name"] == "greet"
    assert found["labels"] == {"team": "web"}
    assert found["priority"] == 5


def test_the_callers_environment_stays_with_the_caller(command):
    ran = command("run", "--", "env", PRIVATE_THING="do not keep")
    assert ran.returncode == 0
    assert "PRIVATE_THING" not in ran.stdout
    assert f"PATH={command.env['PATH']}" in ran.stdout.splitlines()


def test_a_timeout_ends_the_command(command):
    ran = command("run", "--timeout", "1s", "--", "sleep", "60")
    assert ran.returncode == 124, ran.stderr
    assert "TIMED_OUT" in ran.stderr


def test_what_no_node_can_run_is_refused_with_the_reason(command):
    ran = command("run", "--cpu", "64", "--", "true")
    assert ran.returncode == 2, ran.stderr
    assert "EXCEEDS_EVERY_NODE" in ran.stderr


DIAMOND = """\
name: diamond
steps:
- {name: top, run: echo top}
- {name: left, run: echo left; exit 4, dependsOn: top}
- {name: right, run: echo right, dependsOn: top}
- {name: bottom, run: echo bottom, dependsOn: [left, right]}
"""


def test_several_steps_that_fail_are_1_and_the_failed_one_is_shown_with_its_log(command):
    ran = command("run", command.write("diamond.yaml", DIAMOND))
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout == ""
    assert re.search(r"left +FAILED", ran.stderr)
    assert "left: FAILED (exit 4) on n1" in ran.stderr
    assert "    | left" in ran.stderr
    assert "headbay logs" in ran.stderr
    assert re.search(r"bottom +SKIPPED", ran.stderr)
    assert "isolation on node n1 is unenforced" in ran.stderr


def test_json_is_one_document_that_follows_its_schema(command):
    ran = command("run", "-o", "json", command.write("d.yaml", DIAMOND.replace("exit 4", "true")))
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    jsonschema.validate(found, schemas()["Reading"])
    assert found["workload"]["status"] == "SUCCEEDED"
    assert found["source"] == "result"


def test_jsonl_is_one_reading_a_line(command):
    ran = command("run", "-o", "jsonl", command.write("d.yaml", DIAMOND.replace("exit 4", "true")))
    readings = [json.loads(line) for line in ran.stdout.splitlines()]
    for reading in readings:
        jsonschema.validate(reading, schemas()["Reading"])
    assert readings[-1]["workload"]["status"] == "SUCCEEDED"


def test_a_commands_output_and_json_do_not_mix(command):
    ran = command("run", "-o", "json", "--", "echo", "hi")
    assert json.loads(ran.stdout)["kind"] == "Reading"
    assert "hi\n" in ran.stderr


def test_quiet_says_nothing_but_the_output(command):
    ran = command("run", "-o", "quiet", "--", "true")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_submit_prints_the_id_and_wait_ends_as_the_workload_does(command):
    submitted = command("submit", "-o", "quiet", "--", "sh", "-c", "sleep 1; exit 9")
    assert submitted.returncode == 0, submitted.stderr
    workload = submitted.stdout.strip()
    assert (command.cluster.root / "state" / "last").read_text().strip() == workload
    waited = command("wait", "last")
    assert waited.returncode == 9
    assert "FAILED" in waited.stdout


def test_submitting_twice_with_an_id_is_one_workload(command):
    file = command.write("twice.yaml", "steps: [{name: a, run: 'true'}]\n")
    first = command("submit", "--id", "twice-1", "-o", "json", file)
    again = command("submit", "--id", "twice-1", "-o", "json", file)
    for ran in (first, again):
        jsonschema.validate(json.loads(ran.stdout), schemas()["Submitted"])
    assert [json.loads(ran.stdout)["created"] for ran in (first, again)] == [True, False]
    other = command.write("twice.yaml", "steps: [{name: a, run: 'false'}]\n")
    conflict = command("submit", "--id", "twice-1", other)
    assert conflict.returncode == 1
    assert "already exists with another document" in conflict.stderr


def test_waiting_too_long_is_124_and_changes_nothing(command):
    command("submit", "--id", "long-1", "--", "sleep", "300")
    ran = command("wait", "long-1", "--timeout", "500ms")
    assert ran.returncode == 124
    assert "headbay cancel long-1" in ran.stderr
    assert status(command, "long-1")["status"] == "RUNNING"
    assert command("cancel", "long-1").returncode == 0


def running(command, process):
    """The id of what a started `run` runs, once it does."""
    first = process.stderr.readline()
    workload = ID.match(first).group(1)
    wait_for(lambda: status(command, workload)["counts"].get("RUNNING"))
    return workload


def test_ctrl_c_cancels_and_waits_for_the_end(command):
    with command.started("run", "--", "sh", "-c", "echo begun; sleep 300") as process:
        workload = running(command, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=40)
    assert "begun" in out
    assert "cancelling" in err
    assert process.returncode == 130
    assert status(command, workload)["status"] == "CANCELLED"


def test_a_second_ctrl_c_detaches(command):
    # TERM is ignored: the cancel takes the whole grace, and the caller will not wait for it.
    script = "trap '' TERM; echo begun; sleep 300"
    with command.started("run", "--", "sh", "-c", script) as process:
        workload = running(command, process)
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        wait_for(lambda: status(command, workload)["cancel"])
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert f"headbay follow {workload}" in err
    assert status(command, workload)["status"] == "RUNNING"
    assert command("wait", workload).returncode in (130, 137, 143)


def test_a_waiting_run_says_what_it_waits_for(command):
    command("submit", "--id", "hog-1", "--cpu", "4", "--", "sleep", "300")
    with command.started("run", "--cpu", "3", "--", "true") as process:
        process.stderr.readline()
        assert "waits: " in process.stderr.readline()
        command("cancel", "hog-1")
        process.communicate(timeout=40)
        assert process.returncode == 0


def test_an_unresolved_step_asks_and_the_operators_word_ends_it(command):
    file = command.write(
        "never.yaml",
        "steps: [{name: publish, repeat: never, run: 'echo $PPID; sleep 300'}]\n",
    )
    with command.started("run", file) as process:
        workload = running(command, process)

        def printed():
            return command("logs", workload).stdout.strip()

        shim = wait_for(printed)
        os.kill(int(shim), signal.SIGKILL)
        while "headbay resolve" not in (line := process.stderr.readline()):
            assert line
        assert f"headbay resolve {workload} publish --as" in line
        assert status(command, workload)["counts"] == {"UNRESOLVED": 1}
        resolved = command("resolve", workload, "publish", "--as", "success", "--reason", "seen")
        assert resolved.returncode == 0, resolved.stderr
        process.communicate(timeout=40)
    assert process.returncode == 0
    assert status(command, workload)["steps"][0]["state"] == "SUCCEEDED"


def test_following_can_be_left_without_harm(command):
    command("submit", "--id", "left-1", "--", "sleep", "300")
    with command.started("follow", "left-1") as process:
        while "RUNNING" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "detached; it goes on" in err
    assert status(command, "left-1")["status"] == "RUNNING"
    command("cancel", "left-1")


def test_a_reader_that_leaves_is_no_error(command):
    ran = subprocess.run(
        [
            "bash",
            "-c",
            f"{' '.join(command.words('list', '-n', '1000'))} | true; echo ${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        text=True,
        env=command.env,
        check=True,
    )
    assert ran.stdout.strip() in ("0", "141")
    assert "Traceback" not in ran.stderr
    assert "Exception" not in ran.stderr


def test_a_file_with_a_workdir_runs_in_its_folder(command):
    folder = command.folder / "project"
    folder.mkdir()
    (folder / "w.yaml").write_text("steps: [{name: a, workdir: ., run: echo here > made.txt}]\n")
    ran = command("run", "project/w.yaml")
    assert ran.returncode == 0, ran.stderr
    assert (folder / "made.txt").read_text() == "here\n"


def test_without_a_node_here_a_command_is_refused_with_what_to_do(command, tmp_path):
    ran = command("run", "--", "true", HEADBAY_STATE=str(tmp_path / "other"))
    assert ran.returncode == 2
    assert "no node of the cluster at" in ran.stderr
    assert "headbay worker node" in ran.stderr


def test_progress_is_drawn_on_a_terminal(command):
    import pty

    master, slave = pty.openpty()
    file = command.write("d.yaml", DIAMOND.replace("exit 4", "sleep 1"))
    process = subprocess.Popen(
        command.words("run", file),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=command.folder,
        env=command.env | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait(60) == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "left" in text
    assert "RUNNING" in text
    assert text.rstrip().splitlines()[-1].startswith("isolation") or "SUCCEEDED" in text
