"""Promises of logging and of the way to Temporal."""

import json
import os
import subprocess
import sys
import time

import pytest

from headbay.domain.errors import HeadbayError

LOG = (
    "import logging, structlog; from headbay.workers.logs import configure;"
    "configure(process='p'); secret = 'hunter2'; log = structlog.get_logger('a');\n"
    "log.info('it.happened', n=1); logging.getLogger('x').warning('std %s', 'y');\n"
    "try: raise ValueError('bad')\n"
    "except ValueError: log.exception('it.failed')\n"
)


def logged(code=LOG, **environment):
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == ""
    return ran


def test_logs_are_one_json_object_a_line_off_a_terminal():
    lines = [json.loads(line) for line in logged().stderr.splitlines()]
    assert [line["event"] for line in lines] == ["it.happened", "std y", "it.failed"]
    assert lines[0]["n"] == 1
    assert lines[0]["process"] == "p"
    assert lines[1]["level"] == "warning"
    assert "ValueError: bad" in lines[2]["exception"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_never_shows_local_variables(form):
    text = logged(HEADBAY_LOG_FORMAT=form).stderr
    assert "ValueError: bad" in text
    assert "secret" not in text.replace("secret = 'hunter2'", "")
    assert "hunter2" not in text


def test_the_level_is_the_environments():
    assert "it.happened" not in logged(HEADBAY_LOG_LEVEL="warning").stderr


@pytest.mark.parametrize("name", ["HEADBAY_LOG_LEVEL", "HEADBAY_LOG_FORMAT"])
def test_a_wrong_log_setting_is_named(name):
    ran = logged(**{name: "loud"})
    assert ran.returncode != 0
    assert f"{name}='loud'" in ran.stderr


async def test_without_any_server_the_way_out_is_told(tmp_path, monkeypatch):
    from headbay.workers.connection import NoServerConfiguredError, connect

    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE", "TEMPORAL_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HEADBAY_STATE", str(tmp_path / "state"))
    with pytest.raises(NoServerConfiguredError, match="headbay dev") as caught:
        await connect()
    assert isinstance(caught.value, HeadbayError)


async def test_a_server_that_does_not_answer_is_given_up_in_time(monkeypatch):
    from headbay.workers.connection import ServerUnreachableError, connect

    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    began = time.monotonic()
    with pytest.raises(ServerUnreachableError, match=r"127\.0\.0\.1:1") as caught:
        await connect(wait_s=1.0)
    assert 0.5 < time.monotonic() - began < 3
    assert caught.value.code == "SERVER_UNREACHABLE"


@pytest.mark.parametrize(
    "words",
    [
        ["headbay.workers.control"],
        ["headbay.workers.node", "--name", "n"],
        ["headbay.workers.dev", "start"],
        ["headbay.workers.dev", "status"],
    ],
)
def test_a_state_directory_that_cannot_be_written_to_is_named_without_a_traceback(words):
    env = os.environ | {"HEADBAY_STATE": "/proc/nowhere", "TEMPORAL_ADDRESS": "127.0.0.1:1"}
    ran = subprocess.run(
        [sys.executable, "-m", *words], env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "/proc/nowhere" in ran.stderr + ran.stdout
    assert "Traceback" not in ran.stderr + ran.stdout
