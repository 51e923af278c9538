"""Invariant 14: Headbay writes a secret nowhere; what it gives to a payload, only that one has."""

import asyncio
import os
from pathlib import Path

import pytest
from support.canary import Canary, below
from support.cluster import until
from temporalio.client import WorkflowFailureError

from headbay.activities.executor.records import read_record
from headbay.domain.ids import node_workflow_id, pool_workflow_id, workload_workflow_id

USE = """
has() { sha256sum | cut -c1-64; }
printf '{"env": "%s", "file": "%s", "path": "%s", "credentials": "%s"}' \
  "$(printf %s "$TOKEN" | has)" "$(has < "$KEY")" "$KEY" "${CREDENTIALS_DIRECTORY-none}" \
  > "$HEADBAY_OUTPUT"
: > "$READY"
cat "$GO"
"""


@pytest.fixture
def canary(monkeypatch, tmp_path, tmp_path_factory):
    """One value: as a credential of the unit of the node worker, and in its folder of secrets."""
    made = Canary()
    credentials = tmp_path_factory.mktemp("credentials")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    (credentials / "pypi").write_text(made.value)
    folder = tmp_path / "state" / "secrets"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "key").write_text(made.value)
    (folder / "key").chmod(0o600)
    return made


async def histories(cluster, workload):
    """Everything that Temporal keeps of it, as bytes and as JSON."""
    found = b""
    for workflow in (
        workload_workflow_id(workload),
        pool_workflow_id("default"),
        node_workflow_id("n1"),
    ):
        history = await cluster.client.get_workflow_handle(workflow).fetch_history()
        found += history.to_json().encode()
        found += b"".join(event.SerializeToString() for event in history.events)
    return found


def shown_by(pid):
    """What anybody may see of a process, and what those may who may look at its environment."""
    shown = b""
    for name in ("cmdline", "environ", "comm"):
        try:
            shown += (Path(f"/proc/{pid}") / name).read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return b""  # It has left.
    return shown


async def test_a_secret_is_with_its_payload_and_nowhere_else(canary, cluster, tmp_path):
    """Given by environment and by file; looked for while it runs and after it ended.

    In all histories, in every process of Headbay, and in every file of its state, spool, logs,
    ledger and of the server's database, but for the folder of secrets itself.
    """
    secrets = cluster.root / "state" / "secrets"
    go, ready = tmp_path / "go", tmp_path / "ready"
    os.mkfifo(go)
    step = {
        "name": "use",
        "run": USE,
        "env": {
            "TOKEN": {"secret": "pypi"},
            "KEY": {"secret": "key", "as": "file"},
            "GO": str(go),
            "READY": str(ready),
        },
    }
    handle = await cluster.submit("w", {"steps": [step]})

    async def is_ready():
        return ready.exists()

    await until(is_ready, what="the payload has read its secrets")

    # 1. While it runs: the processes, and the files.
    (entry,) = (cluster.root / "state" / "nodes" / "n1" / "spool").glob("hb.*")
    begin = read_record(entry / "begin.json")
    main, shim = begin["main"][0], begin["shim"][0]
    assert canary.within(shown_by(main)), "the search finds what is there"
    ours = [pid for part in cluster.parts.values() for pid in below(part.pid, main)]
    assert shim in ours
    assert len(ours) >= len(cluster.parts) + 2, "launcher and shim are among them"
    assert [pid for pid in ours if canary.within(shown_by(pid))] == []
    assert canary.files(cluster.root, spared=tmp_path / "none") == [str(secrets / "key")]

    # 2. It had both, by two ways.
    await asyncio.to_thread(go.write_text, "go")
    result = await handle.result()
    status = await cluster.step("w", "use")
    assert status["state"] == "SUCCEEDED", result
    output = status["output"]["value"]
    assert (output["env"], output["file"]) == (canary.sha256, canary.sha256)
    assert output["credentials"] == "none", "it need not know where the others are"
    assert output["path"].startswith(f"/proc/{main}/fd/")
    assert not await asyncio.to_thread(os.path.lexists, output["path"])

    # 3. What is left of it.
    kept = await histories(cluster, "w")
    assert b'"TOKEN"' in kept
    assert not canary.within(kept)
    assert canary.files(cluster.root, spared=secrets) == []
    ours = [pid for part in cluster.parts.values() for pid in below(part.pid, 0)]
    assert [pid for pid in ours if canary.within(shown_by(pid))] == []


async def test_a_secret_that_is_open_to_others_fails_its_step_with_what_to_do(canary, cluster):
    """Nothing was executed, and nothing that is told of it shows the value."""
    key = cluster.root / "state" / "secrets" / "key"
    key.chmod(0o644)
    step = {"name": "use", "run": "true", "env": {"KEY": {"secret": "key", "as": "file"}}}
    handle = await cluster.submit("w", {"steps": [step]})
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    status = await cluster.step("w", "use")
    assert status["state"] == "FAILED"
    kept = await histories(cluster, "w")
    assert b"EXEC_FAILED" in kept
    assert f"run `chmod 600 {key}`".encode() in kept
    assert not canary.within(kept)
    assert canary.files(cluster.root, spared=key.parent) == []
