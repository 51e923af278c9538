"""Promise: Temporal's UI alone tells the story of a running workload.

HEADBAY_SCREENSHOT=docs/images/workload-in-temporal-ui.png makes the picture of the docs anew.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.chromium import PROGRAM, Page
from support.cluster import free_port

pytestmark = [
    pytest.mark.browser,
    pytest.mark.cluster,
    pytest.mark.timeout(180),
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium: apt-get install chromium"),
]

DOCUMENT = {
    "name": "nightly",
    "labels": {"team": "web"},
    "steps": [
        {"name": "build", "run": "true"},
        {"name": "lint", "run": "echo 'line 7: too long' >&2; exit 3"},
        {
            "name": "test",
            "dependsOn": "build",
            "matrix": {"PY": ["3.11", "3.12"]},
            "run": "sleep 120",
            "grace": "1s",
        },
        {"name": "publish", "dependsOn": "test", "run": "true"},
    ],
}


@pytest.fixture
def headbay(tmp_path):
    state = tmp_path / "state"
    (state / "dev").mkdir(parents=True)
    (state / "dev" / "ports.json").write_text(json.dumps({"grpc": free_port(), "ui": free_port()}))
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HEADBAY_"))}
    env = keep | {"HEADBAY_STATE": str(state), "HOME": str(tmp_path)}

    def call(*words, **options):
        command = [sys.executable, "-m", "headbay.client.cli", *words]
        ran = subprocess.run(
            command, env=env, text=True, capture_output=True, check=True, timeout=90, **options
        )
        return ran.stdout.strip()

    yield call
    call("dev", "stop", "--kill")


def test_the_ui_shows_a_running_workloads_steps_and_attempts(headbay, tmp_path):
    headbay("submit", "--id", "nightly-1", "-", input=json.dumps(DOCUMENT))
    page = Page(tmp_path / "profile")
    try:
        page.open(headbay("ui", "nightly-1"))
        page.shows("headbay/w/nightly-1", "Running".upper(), "User Metadata")
        page.click("User Metadata")
        text = page.shows("nightly: RUNNING", "test-2", "PENDING", "FAILED (exit 3)")
        current = text[text.index("nightly: RUNNING") :].splitlines()
        rows = {line.split("\t")[0]: line.split("\t") for line in current if "\t" in line}
        assert rows["build"][1:5] == ["SUCCEEDED", "1", "local", "SUCCEEDED"]
        assert rows["lint"][1] == "FAILED (FAILED)"
        assert rows["lint"][4] == "FAILED (exit 3)"
        assert rows["test-1"][1:4] == ["RUNNING", "1", "local"]
        assert rows["publish"][1] == "PENDING"
        picture = page.picture()
        assert picture.startswith(b"\x89PNG")
        if wanted := os.environ.get("HEADBAY_SCREENSHOT"):
            Path(wanted).parent.mkdir(exist_ok=True)
            Path(wanted).write_bytes(picture)
    finally:
        page.close()
