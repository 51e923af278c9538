"""Workflows replay what earlier releases recorded, or their change was not versioned."""

import gzip
import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from headbay.workers.control.__main__ import sandbox
from headbay.workflows.node import Node
from headbay.workflows.payloads import data_converter
from headbay.workflows.pool import Pool
from headbay.workflows.workload import Workload

HISTORIES = Path(__file__).parent / "histories"
RECORDED = sorted(HISTORIES.rglob("*.json.gz"))


def workflow_id(path: Path) -> str:
    return "headbay/" + path.name.split(".")[0].replace("-", "/", 1)


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: f"{p.parent.name}-{p.name[:-8]}")
async def test_a_recorded_history_replays(path):
    history = WorkflowHistory.from_json(
        workflow_id(path), gzip.decompress(path.read_bytes()).decode()
    )
    replayer = Replayer(
        workflows=[Workload, Pool, Node],
        data_converter=data_converter,
        workflow_runner=sandbox(),
    )
    await replayer.replay_workflow(history)


def test_every_workflow_has_recordings_with_continue_as_new():
    kinds = {path.name.split("-")[0] for path in RECORDED}
    assert kinds == {"w", "pool", "node"}
    continued = [
        path for path in RECORDED if b"CONTINUED_AS_NEW" in gzip.decompress(path.read_bytes())
    ]
    assert {path.name.split("-")[0] for path in continued} == {"w", "pool", "node"}


def test_there_is_a_recording_of_a_pool_that_did_not_answer_in_time():
    """A local activity's timeout is another exception in a replay than when it happened."""
    assert any(b"local_activity" in line and b"timeoutFailureInfo" in line for line in markers())


def markers():
    for path in RECORDED:
        for event in json.loads(gzip.decompress(path.read_bytes()))["events"]:
            if event["eventType"] == "EVENT_TYPE_MARKER_RECORDED":
                yield json.dumps(event).encode()
