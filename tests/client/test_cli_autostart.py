"""Without a configured server the first command brings its own cluster, and says so."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.cluster


@pytest.fixture
def newcomer(tmp_path):
    """Somebody who has just installed Headbay: no settings, no state."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HEADBAY_"))}
    env = keep | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*arguments, module="headbay.client.cli"):
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env,
            timeout=110,
            check=False,
        )

    yield run
    run("stop", "--kill", module="headbay.workers.dev")


def test_a_newcomers_first_command_just_runs(newcomer):
    first = newcomer("run", "--", "sh", "-c", "echo hello; exit 5")
    assert first.returncode == 5, first.stderr
    assert first.stdout == "hello\n"
    assert "starting the embedded cluster" in first.stderr
    assert "headbay dev stop" in first.stderr
    again = newcomer("run", "--", "echo", "again")
    assert (again.returncode, again.stdout) == (0, "again\n")
    assert "embedded cluster" not in again.stderr
    page = newcomer("ui", "last")
    assert page.returncode == 0
    assert page.stdout.startswith("http://127.0.0.1:")
    healthy = newcomer("doctor")
    assert healthy.returncode == 0, healthy.stdout
    status = newcomer("dev", "status")
    assert status.returncode == 0, status.stderr
