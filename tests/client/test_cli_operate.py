"""The command on a real cluster: look, explain, log, cancel, cordon."""

import json
import re

import jsonschema
import pytest
from support.command import Command

from headbay.client.models import schemas

pytestmark = pytest.mark.cluster

MATRIX = """\
name: shards
labels: {kind: shards}
steps:
- name: shard
  matrix: {N: ["1", "2"]}
  run: echo "part $N"; [ "$N" = 1 ]
"""


@pytest.fixture(scope="module")
def shards(cluster, tmp_path_factory):
    """Id of a finished workload of two tasks, the second of which failed."""
    command = Command(cluster, tmp_path_factory.mktemp("shards"))
    ran = command("submit", "-o", "quiet", command.write("shards.yaml", MATRIX))
    assert ran.returncode == 0, ran.stderr
    workload = ran.stdout.strip()
    assert command("wait", workload, "-o", "quiet").returncode == 1
    return workload


def loaded(ran, kind):
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    jsonschema.validate(found, schemas()[kind])
    return found


def test_status_shows_steps_attempts_and_isolation(command, shards):
    ran = command("status", shards)
    assert re.search(r"^status +FAILED", ran.stdout, re.MULTILINE)
    assert re.search(r"shard-2 +FAILED.*FAILED \(exit 1\)", ran.stdout)
    assert re.search(r"shard-1 +SUCCEEDED", ran.stdout)
    assert "unenforced" in ran.stderr
    found = loaded(command("status", shards, "-o", "json"), "Reading")
    assert found["workload"]["counts"] == {"SUCCEEDED": 1, "FAILED": 1}
    assert command("status", shards, "-o", "quiet").stdout == "FAILED\n"


def test_list_filters_by_label_and_failure(command, shards):
    found = loaded(command("list", "-l", "kind=shards", "--failed", "-o", "json"), "WorkloadList")
    assert shards in [row["id"] for row in found["workloads"]]
    assert (
        loaded(command("list", "-l", "kind=other", "-o", "json"), "WorkloadList")["workloads"] == []
    )
    lines = command("list", "-l", "kind=shards", "-o", "jsonl").stdout.splitlines()
    assert json.loads(lines[0])["labels"] == {"kind": "shards"}
    assert shards in command("list", "-o", "quiet").stdout.split()
    assert re.search(rf"{shards} +FAILED", command("list").stdout)


def test_logs_name_their_step_where_there_are_several(command, shards):
    ran = command("logs", shards)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["shard-1 | part 1", "shard-2 | part 2"]
    assert command("logs", shards, "shard-2").stdout == "part 2\n"
    line = json.loads(command("logs", shards, "shard-2", "-o", "jsonl").stdout)
    jsonschema.validate(line, schemas()["LogLine"])
    assert line == {"step": "shard-2", "attempt": 1, "text": "part 2\n"}
    nope = command("logs", shards, "nope")
    assert nope.returncode == 1
    assert "it has: shard-1, shard-2" in nope.stderr


def test_history_is_told_in_order(command, shards):
    found = loaded(command("history", shards, "-o", "json"), "History")
    kinds = [event["kind"] for event in found["events"]]
    assert kinds[0] == "WorkloadSubmitted"
    assert kinds.count("AttemptEnded") == 2
    assert "AttemptEnded" in command("history", shards).stdout


def test_explain_of_an_ended_step_says_how_it_ended(command, shards):
    found = loaded(command("explain", shards, "shard-2", "-o", "json"), "Explanation")
    assert [step["state"] for step in found["steps"]] == ["FAILED"]
    assert "every step has ended" in command("explain", shards).stdout


def test_explain_says_what_a_waiting_step_needs(command):
    command("node", "cordon", "n1", "--reason", "test")
    try:
        command("submit", "--id", "held-1", "--", "true")
        shown = command("explain", "held-1").stdout
        assert "policy: " in shown
        found = loaded(command("explain", "held-1", "-o", "json"), "Explanation")
        assert found["steps"][0]["reasons"][0]["code"] == "NODES_CORDONED"
        queues = loaded(command("queue", "list", "-o", "json"), "QueueList")
        waiting = [w["workload"] for q in queues["queues"] for w in q["next"]]
        assert "held-1" in waiting
        assert "held-1" in command("queue", "list").stdout
        nodes = command("node", "list").stdout
        assert re.search(r"n1 +cordoned", nodes)
    finally:
        command("node", "uncordon", "n1")
    assert command("wait", "held-1", "--timeout", "30s").returncode == 0


def test_node_list_shows_capacity_and_isolation(command):
    found = loaded(command("node", "list", "-o", "json"), "NodeList")
    (row,) = found["nodes"]
    assert (row["name"], row["state"], row["isolation"]) == ("n1", "up", "unenforced")
    assert row["capacity"]["cpu"] == 4000
    assert "/4" in command("node", "list").stdout


def test_orders_to_nobody_fail_with_what_there_is(command):
    for arguments in (["cancel", "nobody"], ["node", "cordon", "nobody"], ["logs", "nobody"]):
        ran = command(*arguments)
        assert ran.returncode == 1, ran.stderr
        assert "there is no" in ran.stderr
        assert " list`" in ran.stderr


def test_an_unknown_id_spares_none_of_the_others(command):
    command("submit", "--id", "unspared-1", "--", "sleep", "300")
    ran = command("cancel", "nobody", "unspared-1")
    assert ran.returncode == 1
    assert "nobody" in ran.stderr
    assert "unspared-1: cancel requested" in ran.stdout
    assert command("wait", "unspared-1").returncode == 130


def test_cancelling_what_has_ended_changes_nothing_and_says_so(command, shards):
    ran = command("cancel", shards)
    assert ran.returncode == 0
    assert "has already ended" in ran.stderr
    answer = loaded(command("cancel", shards, "-o", "json"), "Answer")
    assert (answer["accepted"], answer["code"]) == (False, "ALREADY_FINISHED")


def test_resolving_what_is_not_unresolved_is_refused(command):
    command("submit", "--id", "sure-1", "--", "sleep", "300")
    ran = command("resolve", "sure-1", "sleep", "--as", "success")
    assert ran.returncode == 1
    assert ran.stderr
    command("cancel", "sure-1")


def test_doctor_finds_a_healthy_cluster_healthy(command):
    found = loaded(command("doctor", "-o", "json"), "Diagnosis")
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert found["healthy"] is True
    for name in ("temporal", "search attributes", "control worker", "pool and nodes", "ledger"):
        assert states[name] == "ok", found


def test_the_ui_address_is_printed_where_it_is_known(command):
    command("submit", "--id", "some-id", "--", "true")
    ran = command("ui", "some-id", HEADBAY_UI="https://temporal.example.com/")
    assert ran.stdout == (
        "https://temporal.example.com/namespaces/default/workflows/headbay%2Fw%2Fsome-id\n"
    )
    absent = command("ui", "nosuch", HEADBAY_UI="https://temporal.example.com/")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "nosuch" in absent.stderr
    unknown = command("ui")
    assert unknown.returncode == 125
    assert "HEADBAY_UI" in unknown.stderr
