"""Documents at the command line: refused before anything starts, with file, line, path and fix."""

import json

import jsonschema
import pytest

from headbay.client.cli import run_cli
from headbay.client.models import schemas

GOOD = "steps:\n- name: one\n  run: echo hi\n"


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty directory, and a configured server that does not exist."""
    monkeypatch.chdir(tmp_path)
    for name in ("TEMPORAL_PROFILE", "TEMPORAL_CONFIG_FILE", "HEADBAY_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("HEADBAY_STATE", str(tmp_path / "state"))
    return tmp_path


REFUSED = {
    "unknown field": ("steps:\n- name: a\n  run: x\n  bogus: 1\n", "bad.yaml:4: steps[0].bogus: "),
    "duplicate key": ("name: a\nname: b\nsteps: []\n", "bad.yaml:2: name: "),
    "cycle": (
        "steps:\n- {name: a, run: x, dependsOn: b}\n- {name: b, run: x, dependsOn: a}\n",
        "bad.yaml:",
    ),
    "self dependency": ("steps:\n- {name: a, run: x, dependsOn: a}\n", "bad.yaml:2: "),
    "unknown dependency": ("steps:\n- {name: a, run: x, dependsOn: z}\n", "unknown step"),
    "impossible resources": (
        "steps:\n- {name: a, run: x, resources: {cpu: 1000000}}\n",
        "steps[0].resources.cpu",
    ),
    "unquoted number in env": ("steps:\n- {name: a, run: x, env: {V: 3.10}}\n", "quote it"),
    "tab": ("steps:\n\t- name: a\n", "bad.yaml:2: "),
    "empty": ("", "bad.yaml:1: "),
    "not yet": ("steps:\n- {name: a, run: x, approval: true}\n", "steps[0].approval"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("command", ["run", "submit", "validate"])
def test_a_refused_document_prints_where_and_why_and_exits_2(nowhere, capsys, command, case):
    text, said = REFUSED[case]
    (nowhere / "bad.yaml").write_text(text)
    assert run_cli([command, "bad.yaml"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.startswith("bad.yaml")
    # Refused before anything starts: the server that does not exist was never asked.
    assert "127.0.0.1:1" not in told.err


def test_a_file_that_is_not_there_is_refused_with_its_name(nowhere, capsys):
    assert run_cli(["run", "nope.yaml"]) == 2
    assert "nope.yaml: cannot be read" in capsys.readouterr().err


def test_a_command_with_impossible_resources_is_refused(nowhere, capsys):
    assert run_cli(["run", "--memory", "4gb", "--", "true"]) == 2
    assert "did you mean 4G" in capsys.readouterr().err


def test_validate_counts_expanded_steps_and_goes_on_after_a_bad_file(nowhere, capsys):
    (nowhere / "good.yaml").write_text(
        'steps:\n- {name: a, run: x, matrix: {K: ["1", "2", "3"]}}\n'
    )
    (nowhere / "bad.yaml").write_text("steps: 3\n")
    assert run_cli(["validate", "bad.yaml", "good.yaml"]) == 2
    told = capsys.readouterr()
    assert "good.yaml: valid, good, 3 steps" in told.out
    assert told.err.startswith("bad.yaml:1: steps: ")


def test_validate_reads_standard_input(nowhere, capsys, monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert run_cli(["validate", "-"]) == 0
    assert "valid" in capsys.readouterr().out


def test_validate_json_follows_its_schema(nowhere, capsys):
    (nowhere / "good.yaml").write_text(GOOD)
    (nowhere / "bad.yaml").write_text("steps: 3\n")
    assert run_cli(["validate", "-o", "json", "bad.yaml", "good.yaml"]) == 2
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schemas()["Validated"])
    bad, good = found["files"]
    assert bad["problems"][0]["line"] == 1
    assert good["valid"] is True
    assert len(good["digest"]) == 64


def test_validate_warns_of_what_is_probably_not_meant(nowhere, capsys):
    (nowhere / "w.yaml").write_text(
        "steps:\n- {name: publish, run: x, env: {TOKEN: {secret: pypi}}}\n"
    )
    assert run_cli(["validate", "w.yaml"]) == 0
    assert "warning: w.yaml:2: steps[0]: " in capsys.readouterr().err


def test_what_init_writes_is_valid_in_every_folder(nowhere, capsys, monkeypatch):
    for name in ("web", "Ünïcode & blanks", "-", "123"):
        folder = nowhere / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert run_cli(["init"]) == 0
        assert run_cli(["validate", "headbay.yaml"]) == 0
        assert "4 steps" in capsys.readouterr().out


def test_every_schema_is_a_valid_one_with_a_version():
    for name, schema in schemas().items():
        jsonschema.Draft202012Validator.check_schema(schema)
        if name != "LogLine":
            assert schema["properties"]["schema_version"]["const"] == 1, name
            assert schema["properties"]["kind"]["const"] == name
