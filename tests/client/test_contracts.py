"""The published contracts: they fit the code, and say what validation says."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from support.documents import VALID, document, one

from headbay.domain.attempt import AttemptResult
from headbay.domain.document import compile_document, validate
from headbay.domain.outcome import Outcome

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "contracts" / "schema"


@pytest.fixture(scope="module")
def check():
    schema = json.loads((SCHEMAS / "workload-document.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).is_valid


def contracts(*arguments, root=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "contracts", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_published_fits_the_code():
    done = contracts("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_drift_is_shown_and_writing_ends_it(tmp_path):
    for file in (ROOT / "contracts").glob("*.py"):
        (tmp_path / "contracts").mkdir(exist_ok=True)
        (tmp_path / "contracts" / file.name).write_text(file.read_text())
    assert contracts("--check", root=tmp_path).returncode == 1
    assert contracts(root=tmp_path).returncode == 0
    written = tmp_path / "contracts" / "schema"
    assert {f.name: f.read_text() for f in written.iterdir()} == {
        f.name: f.read_text() for f in SCHEMAS.iterdir()
    }
    (written / "dag-def.json").write_text((written / "dag-def.json").read_text() + "x\n")
    (written / "old.json").write_text("{}\n")
    done = contracts("--check", root=tmp_path)
    assert done.returncode == 1
    assert "--- contracts/schema/dag-def.json" in done.stdout
    assert "-x\n" in done.stdout
    assert "--- contracts/schema/old.json" in done.stdout
    assert done.stderr == "contracts differ from the code: run `python -m contracts`\n"
    assert contracts(root=tmp_path).returncode == 0
    assert contracts("--check", root=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "data",
    [
        VALID,
        document(),
        one(timeout=90, grace="1.5s", lease="24h", queueTimeout="90"),
        one(resources={"cpu": "250m", "memory": 1 << 30, "licence": 2}),
        one(retry={"backoff": "5s", "when": ["FAILED", "OOM_KILLED"]}),
        one(run=["echo"], matrix={"A": [""]}, env={"B": {"secret": "s"}}),
    ],
)
def test_the_schema_takes_what_validation_takes(check, data):
    validate(data)
    assert check(data)


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        document(zzz=1),
        document(priority="1"),
        document(priority=2**31),
        document(labels={"a": 1}),
        document(labels={"a=b": "x"}),
        document() | {"steps": []},
        document() | {"apiVersion": "v2"},
        one(run=5),
        one(run=[1]),
        one(name="Build It"),
        one(depends_on="a"),
        one(env={"A": 3.1}),
        one(env={"3.10": "x"}),
        one(env={"HEADBAY_X": "x"}),
        one(matrix={"A": [True]}),
        one(resources={"cpu": 0}),
        one(resources={"cpu": -1}),
        one(resources={"memory": "4GB"}),
        one(resources={"tasks": 0}),
        one(timeout="5 minutes"),
        one(timeout=None),
        one(retry={"maxAttempts": 101}),
        one(retry={"when": ["SUCCEEDED"]}),
        one(artifacts=["../x"]),
        one(trigger="sometimes"),
    ],
)
def test_the_schema_refuses_what_a_schema_can_refuse(check, data):
    assert not check(data)


def test_the_schema_tells_what_is_not_yet_supported():
    schema = json.loads((SCHEMAS / "workload-document.json").read_text())
    assert "not yet supported" in schema["properties"]["budget"]["description"]
    step = schema["$defs"]["Step"]["properties"]
    told = {name for name, field in step.items() if "not yet" in field.get("description", "")}
    assert told == {"condition", "approval", "output", "disconnect", "array", "gang"}


def test_what_is_sent_fits_its_schema():
    result = AttemptResult(
        workload="w",
        step="a",
        attempt=1,
        fence=5,
        allocation="x",
        node="n",
        outcome=Outcome.FAILED,
        exit_code=3,
    )
    for name, sent in (
        ("attempt-result", result),
        ("dag-def", compile_document(validate(VALID))),
    ):
        schema = json.loads((SCHEMAS / f"{name}.json").read_text())
        jsonschema.validate(sent.model_dump(mode="json"), schema)
