"""What a document may say and is not supported yet: typed, and refused by name."""

import pytest
from support.documents import document, one, only_problem, problems

STEP = [
    ("run", {"process": ["agent"]}),
    ("run", {"builtin": "copy", "with": {"a": None, "b": [1, 2.5]}}),
    ("run", {"agent": {"ref": "x@1", "driver": "acp", "goal": "g", "childAgents": ["*"]}}),
    ("condition", {"step": "only", "outputEquals": "x"}),
    ("condition", {"step": "only", "jsonPointer": "", "equals": None}),
    ("approval", True),
    ("approval", "Publish?"),
    ("approval", {"message": "m", "timeout": "1h", "default": "reject", "onReject": "fail"}),
    ("output", {"schema": {"type": ["object", "null"]}, "schemaVersion": "1"}),
    ("array", {"count": 10, "maxParallel": 2, "chunk": 5}),
    ("array", {"items": ["a", "b"]}),
    ("gang", {"nodes": 4, "minNodes": 2}),
    ("disconnect", {"lostAfter": "5m", "replace": False}),
    ("resources.gpu", 1),
    ("resources.exclusive", True),
    ("placement.affinity", {"preferred": {"zone": "a"}}),
    ("placement.strategy", "spread"),
    ("trigger", "all_failed"),
    ("trigger", "one_success"),
    ("trigger", "one_failed"),
    ("trigger", "none_failed"),
    ("trigger", "none_skipped"),
]


def nested(field, value):
    outer, _, inner = field.partition(".")
    return {outer: {inner: value}} if inner else {outer: value}


@pytest.mark.parametrize(("field", "value"), STEP)
def test_a_step_s_field_is_not_yet_supported(field, value):
    text = only_problem(one(**nested(field, value)))
    assert text.startswith(f"steps[0].{field}: `{field}")
    assert "is not yet supported; " in text


@pytest.mark.parametrize(
    ("field", "value"), [row for row in STEP if row[0] not in ("run", "array", "gang")]
)
def test_a_default_is_not_yet_supported(field, value):
    found = problems(document(defaults=nested(field, value)))
    assert found == [(f"defaults.{field}", "NOT_YET")]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("deadline", "2030-01-31T18:00:00Z"),
        ("maxDuration", "2h"),
        ("budget", {"maxAttempts": 3, "maxTokens": 5, "maxCostUsd": "2.50", "maxCpuSeconds": 9}),
        ("dynamic", {"enabled": True, "maxDynamicSteps": 3, "maxSpawnCostUsd": "1"}),
    ],
)
def test_a_workload_s_field_is_not_yet_supported(field, value):
    text = only_problem(document() | {field: value})
    assert text == f"{field}: `{field}` is not yet supported; remove it"


def test_a_join_on_spawned_steps_is_not_yet_supported():
    data = document({"name": "a", "run": "x"}, {"name": "b", "run": "x", "dependsOn": "spawn:a"})
    assert problems(data) == [("steps[1].dependsOn", "NOT_YET")]
    data["steps"][1]["dependsOn"] = ["a", "spawn:a"]
    assert problems(data) == [("steps[1].dependsOn[1]", "NOT_YET")]


@pytest.mark.parametrize(
    ("fields", "path", "code"),
    [
        ({"condition": {"step": "only"}}, "condition", "CONFLICT"),
        (
            {"condition": {"step": "a", "outputEquals": "x", "outputContains": "y"}},
            "condition",
            "CONFLICT",
        ),
        ({"condition": {"step": "a", "jsonPointer": "/a"}}, "condition", "CONFLICT"),
        ({"approval": False}, "approval", "WRONG_TYPE"),
        ({"approval": {"onReject": "explode"}}, "approval.onReject", "BAD_VALUE"),
        ({"array": {"count": 0}}, "array.count", "OUT_OF_BOUNDS"),
        ({"gang": {}}, "gang.nodes", "MISSING"),
        ({"resources": {"exclusive": True, "tasks": 2}}, "resources.exclusive", "CONFLICT"),
        ({"run": {"process": []}}, "run.process", "OUT_OF_BOUNDS"),
        ({"run": {"process": ["x"], "y": 1}}, "run.y", "UNKNOWN_FIELD"),
        ({"run": {"agent": {"ref": "x", "goall": "y"}}}, "run.agent.goall", "UNKNOWN_FIELD"),
        ({"output": {"contentType": "text/html"}}, "output.contentType", "BAD_VALUE"),
    ],
)
def test_what_is_not_well_formed_is_refused_for_that(fields, path, code):
    assert problems(one(**fields)) == [(f"steps[0].{path}", code)]


@pytest.mark.parametrize(
    ("fields", "path", "code"),
    [
        ({"deadline": "tomorrow"}, "deadline", "BAD_QUANTITY"),
        ({"budget": {"maxCostUsd": 2.5}}, "budget.maxCostUsd", "BAD_QUANTITY"),
        ({"budget": {"maxTokens": 2**53}}, "budget.maxTokens", "OUT_OF_BOUNDS"),
        ({"dynamic": {}}, "dynamic.enabled", "MISSING"),
        (
            {"dynamic": {"enabled": True, "maxSpawnDepth": 17}},
            "dynamic.maxSpawnDepth",
            "OUT_OF_BOUNDS",
        ),
    ],
)
def test_a_workload_s_field_is_checked_all_the_same(fields, path, code):
    assert problems(document() | fields) == [(path, code)]


def test_two_ways_to_say_one_thing_conflict():
    data = document() | {"deadline": "2030-01-31T18:00:00Z", "maxDuration": "1h"}
    assert ("maxDuration", "CONFLICT") in problems(data)
    data = one(matrix={"A": ["x"]}, array={"count": 2})
    assert ("steps[0].array", "CONFLICT") in problems(data)
