"""Fields of a document: what each takes, its bounds, and the fix for what it does not take."""

import copy
import time

import pytest
from support.documents import VALID, document, one, only_problem, problems, refusal

from headbay.domain.document import DocumentRefusedError, canonical, validate


def test_the_shortest_document_is_valid():
    found = validate(document())
    assert found.name == "w"
    assert found.steps[0].run == "true"


def test_every_supported_field_at_once_is_valid():
    found = validate(VALID)
    assert found.defaults.timeout == 600_000
    assert found.steps[1].resources.amounts() == {
        "cpu": 500,
        "memory": 4 << 30,
        "tasks": 9,
        "licence": 1,
    }
    assert found.steps[1].lease == 30_000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "the document is empty; write at least `steps:`"),
        ([], "the document must be a mapping; begin with `name:` and `steps:`"),
        ("x", "the document must be a mapping; begin with `name:` and `steps:`"),
        (3, "the document must be a mapping; begin with `name:` and `steps:`"),
    ],
)
def test_a_document_is_a_mapping(data, text):
    assert only_problem(data) == text


def test_what_is_missing_is_named_with_what_to_add():
    assert [problem.text() for problem in refusal({}).problems] == [
        "apiVersion: `apiVersion` is missing; add `apiVersion: headbay/v1`",
        "name: `name` is missing; add `name: my-name`",
        "steps: `steps` is missing; add `steps: [{name: hello, run: echo hello}]`",
    ]
    assert problems(document({})) == [
        ("steps[0].name", "MISSING"),
        ("steps[0].run", "MISSING"),
    ]


def test_all_problems_are_reported_at_once_in_the_document_s_order():
    data = {
        "apiVersion": "headbay/v2",
        "name": "ci",
        "maxParalel": 3,
        "steps": [
            {"name": "a", "run": 5, "env": {"A": 3.1}},
            {"name": "b", "run": "x", "dependsOn": ["c"], "resources": {"memory": "4GB"}},
            {"name": "c", "run": "x", "dependsOn": "b", "approval": True},
        ],
    }
    expected = [
        ("apiVersion", "BAD_VALUE"),
        ("maxParalel", "UNKNOWN_FIELD"),
        ("steps[0].run", "WRONG_TYPE"),
        ("steps[0].env.A", "WRONG_TYPE"),
        ("steps[1].dependsOn", "CYCLE"),
        ("steps[1].resources.memory", "BAD_QUANTITY"),
        ("steps[2].approval", "NOT_YET"),
    ]
    assert problems(data) == expected
    assert problems(copy.deepcopy(data)) == expected


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("depends_on", "dependsOn"),
        ("dependson", "dependsOn"),
        ("needs", "dependsOn"),
        ("command", "run"),
        ("script", "run"),
        ("environment", "env"),
        ("timeOut", "timeout"),
        ("retries", "retry"),
        ("artefacts", "artifacts"),
    ],
)
def test_an_unknown_field_names_what_was_meant(field, meant):
    data = document({"name": "a", "run": "x", field: "x"})
    text = only_problem(data)
    assert text == f"steps[0].{field}: unknown field '{field}'; did you mean `{meant}`?"


def test_an_unknown_field_like_no_other_lists_what_there_is():
    text = only_problem(document(zzzzzz=1))
    assert text.startswith("zzzzzz: unknown field 'zzzzzz'; known here: apiVersion, defaults,")
    text = only_problem(one(env={"A": {"zzzzzz": 1, "secret": "s"}}))
    assert text == "steps[0].env.A.zzzzzz: unknown field 'zzzzzz'; known here: as, secret"


def test_a_field_of_another_level_is_unknown():
    assert problems(document(timeout="5m")) == [("timeout", "UNKNOWN_FIELD")]
    assert problems(one(maxAttempts=3)) == [("steps[0].maxAttempts", "UNKNOWN_FIELD")]
    assert problems(document(defaults={"name": "x"})) == [("defaults.name", "UNKNOWN_FIELD")]


@pytest.mark.parametrize(
    ("value", "spelt"),
    [(3.1, "the number 3.1"), (1, "the number 1"), (True, "the boolean true")],
)
@pytest.mark.parametrize(
    ("field", "path", "wrap"),
    [
        ("env", "steps[0].env.A", lambda value: {"A": value}),
        ("matrix", "steps[0].matrix.A[0]", lambda value: {"A": [value]}),
        ("run", "steps[0].run[1]", lambda value: ["echo", value]),
    ],
)
def test_texts_must_be_quoted(field, path, wrap, value, spelt):
    text = only_problem(one(**{field: wrap(value)}))
    quoted = spelt.rpartition(" ")[2]
    assert text == f'{path}: must be a string, not {spelt}; quote it: "{quoted}"'


def test_a_null_text_must_be_quoted():
    text = only_problem(one(env={"A": None}))
    assert text == 'steps[0].env.A: must be a string, not null; quote it: "null", or "" for empty'


def test_the_spelling_of_a_number_is_kept_in_its_fix():
    data = one(env={"PY": 3.1})
    with pytest.raises(DocumentRefusedError) as caught:
        validate(data, spelling={"steps[0].env.PY": "3.10"})
    assert 'not the number 3.10; quote it: "3.10"' in str(caught.value)


def test_a_field_without_a_value_is_refused():
    text = only_problem(one(timeout=None))
    assert text == "steps[0].timeout: has no value; give it one or remove the line"


@pytest.mark.parametrize(
    ("fields", "path", "fix"),
    [
        ({"retry": 3}, "retry", "write `retry: {maxAttempts: 3}`"),
        ({"env": ["A=b"]}, "env", "write `env: {NAME: value}`"),
        ({"artifacts": "dist/*"}, "artifacts", 'write `["dist/*"]`'),
        ({"resources": "2"}, "resources", "write `resources: {cpu: 2, memory: 4Gi}`"),
        ({"matrix": ["3.11"]}, "matrix", "write `matrix: {PY:"),
        ({"dependsOn": {"a": "b"}}, "dependsOn", "write `dependsOn: [build, test]`"),
        ({"run": 5}, "run", "write `run: make test`"),
        ({"run": {}}, "run", "write `run: make test`"),
        ({"run": ""}, "run", "write the commands to run"),
        ({"run": " \n"}, "run", "write the commands to run"),
        ({"run": []}, "run", "write at least 1"),
        ({"repeat": "nevr"}, "repeat", "did you mean `never`?"),
        ({"repeat": "no"}, "repeat", "write safe or never"),
        ({"trigger": "all-done"}, "trigger", "did you mean `all_done`?"),
        ({"require": "root"}, "require", "write enforced"),
        ({"timeout": 0}, "timeout", "write at least 1ms"),
        ({"timeout": "5 minutes"}, "timeout", "write a duration such as 30s"),
        ({"grace": "2h"}, "grace", "write at most 1h"),
        ({"lease": "4s"}, "lease", "write at least 5s"),
        ({"lease": "25h"}, "lease", "write at most 1d"),
        ({"lease": "long"}, "lease", "write a duration"),
        ({"retry": {"maxAttempts": 0}}, "retry.maxAttempts", "write at least 1"),
        ({"retry": {"maxAttempts": 101}}, "retry.maxAttempts", "write at most 100"),
        ({"retry": {"maxAttempts": "3"}}, "retry.maxAttempts", "write 3 without quotes"),
        ({"retry": {"when": ["FAILD"]}}, "retry.when[0]", "did you mean `FAILED`?"),
        ({"retry": {"when": ["SUCCEEDED"]}}, "retry.when[0]", "write FAILED, SIGNALED"),
        ({"retry": {"when": []}}, "retry.when", "write at least 1"),
        ({"retry": {"backoff": "soon"}}, "retry.backoff", "write a duration"),
        ({"retry": {"backoff": {"factor": 0.5}}}, "retry.backoff.factor", "from 1 to 100"),
        ({"retry": {"backoff": {"jitter": 2}}}, "retry.backoff.jitter", "from 0 to 1"),
        ({"env": {"3.10": "x"}}, "env['3.10']", "use letters, digits and underscores"),
        ({"env": {"HEADBAY_X": "x"}}, "env.HEADBAY_X", "not beginning with HEADBAY_"),
        ({"env": {"A": {"secret": "../x"}}}, "env.A.secret", "use letters, digits"),
        ({"env": {"A": {}}}, "env.A.secret", "add it"),
        ({"env": {"A": {"as": "file"}}}, "env.A.secret", "add it"),
        ({"env": {"A": {"secret": "s", "as": "fd"}}}, "env.A.as", "write env or file"),
        ({"matrix": {"A": []}}, "matrix.A", "write at least 1"),
        ({"matrix": {}}, "matrix", "write at least 1"),
        ({"matrix": {"A": "x"}}, "matrix.A", 'write `["x"]`'),
        ({"matrix": {"A": ["x", "y", "x"]}}, "matrix.A[2]", "remove one"),
        ({"matrix": {"A": ["x"]}, "env": {"A": "y"}}, "env.A", "remove it from one of them"),
        ({"artifacts": ["/etc/*"]}, "artifacts[0]", "write a relative one"),
        ({"artifacts": ["a/../../b"]}, "artifacts[0]", "write a relative one"),
        ({"artifacts": [".."]}, "artifacts[0]", "write a relative one"),
        ({"workdir": ""}, "workdir", "write a path such as src"),
    ],
)
def test_a_step_s_wrong_value_names_its_place_and_its_fix(fields, path, fix):
    text = only_problem(one(**fields))
    assert text.startswith(f"steps[0].{path}: ")
    assert fix in text


@pytest.mark.parametrize(
    ("fields", "path", "fix"),
    [
        ({"priority": 2**31}, "priority", "write at most 2147483647"),
        ({"priority": -(2**31) - 1}, "priority", "write at least -2147483648"),
        ({"priority": "1"}, "priority", "write 1 without quotes"),
        ({"priority": True}, "priority", "write a whole number"),
        ({"priority": 1.5}, "priority", "write a whole number"),
        ({"maxParallel": 0}, "maxParallel", "write at least 1"),
        ({"maxParallel": 100_001}, "maxParallel", "write at most 100000"),
        ({"workspace": "Private"}, "workspace", "did you mean `private`?"),
        ({"onFailure": "drain"}, "onFailure", "write continue or stop"),
        ({"labels": {"a": 1}}, "labels.a", 'quote it: "1"'),
        ({"labels": {"a=b": "x"}}, "labels['a=b']", "use letters, digits"),
        ({"queue": "a b"}, "queue", "use letters, digits"),
        ({"pool": "A"}, "pool", "did you mean 'a'?"),
        ({"name": "a b"}, "name", "use 1 to 63 letters"),
        ({"name": "a" * 64}, "name", "use 1 to 63 letters"),
        ({"defaults": {"run": "x"}}, "defaults.run", "known here: "),
        ({"defaults": {"timeout": "x"}}, "defaults.timeout", "write a duration"),
    ],
)
def test_a_workload_s_wrong_value_names_its_place_and_its_fix(fields, path, fix):
    text = only_problem(document() | fields)
    assert text.startswith(f"{path}: ")
    assert fix in text


@pytest.mark.parametrize(
    ("resources", "path", "fix"),
    [
        ({"cpu": 0}, "cpu", 'write at least "1m"'),
        ({"cpu": -1}, "cpu", "write CPUs such as"),
        ({"cpu": 100_001}, "cpu", "write at most 100000"),
        ({"cpu": "0.0001"}, "cpu", "write CPUs such as"),
        ({"memory": 0}, "memory", "the least is 1Mi"),
        ({"memory": "-1Gi"}, "memory", "write memory such as"),
        ({"memory": 4}, "memory", "did you mean 4Gi?"),
        ({"memory": "4GB"}, "memory", "did you mean 4G?"),
        ({"memory": "2Pi"}, "memory", "write at most 1024Ti"),
        ({"memory": 2**53}, "memory", "the most is 9007199254740991"),
        ({"tasks": 0}, "tasks", "write at least 1"),
        ({"tasks": 2**22 + 1}, "tasks", "write at most 4194304"),
        ({"licence": 0}, "licence", "write at least 1"),
        ({"licence": -1}, "licence", "write at least 1"),
        ({"licence": 2**53}, "licence", "the most is 9007199254740991"),
        ({"licence": "2"}, "licence", "write 2 without quotes"),
        ({"licence": 1.5}, "licence", "write a whole number"),
        ({"mem": "4Gi"}, "mem", "did you mean `memory`?"),
        ({"cpus": 2}, "cpus", "did you mean `cpu`?"),
        ({"Memory": "4Gi"}, "Memory", "did you mean `memory`?"),
        ({"My Thing": 1}, "['My Thing']", "use lower-case letters"),
    ],
)
def test_impossible_resources_are_refused(resources, path, fix):
    text = only_problem(one(resources=resources))
    assert text.startswith(f"steps[0].resources{'' if path.startswith('[') else '.'}{path}: ")
    assert fix in text


@pytest.mark.parametrize(
    ("fields", "longer"),
    [
        ({"run": "x" * 65_536}, {"run": "x" * 65_537}),
        ({"run": "é" * 32_768}, {"run": "é" * 32_769}),
        ({"run": ["x"] * 1024}, {"run": ["x"] * 1025}),
        ({"env": {"A": "x" * 65_536}}, {"env": {"A": "x" * 65_537}}),
        ({"env": {f"A{n}": "" for n in range(256)}}, {"env": {f"A{n}": "" for n in range(257)}}),
        ({"artifacts": ["*"] * 256}, {"artifacts": ["*"] * 257}),
        ({"artifacts": ["x" * 1024]}, {"artifacts": ["x" * 1025]}),
        ({"retry": {"maxAttempts": 100}}, {"retry": {"maxAttempts": 101}}),
        ({"lease": "24h"}, {"lease": 86_401}),
        ({"lease": 5}, {"lease": "4999ms"}),
        ({"grace": "1h"}, {"grace": 3601}),
        ({"timeout": "366d"}, {"timeout": "366d1ms"}),
        ({"timeout": "1ms"}, {"timeout": 0}),
        (
            {"matrix": {f"K{n}": ["x"] for n in range(16)}},
            {"matrix": {f"K{n}": ["x"] for n in range(17)}},
        ),
        ({"resources": {"tasks": 2**22}}, {"resources": {"tasks": 2**22 + 1}}),
        ({"resources": {"x": 2**53 - 1}}, {"resources": {"x": 2**53}}),
        ({"resources": {"memory": 1 << 50}}, {"resources": {"memory": (1 << 50) + 1}}),
        ({"resources": {"memory": 1 << 20}}, {"resources": {"memory": (1 << 20) - 1}}),
        ({"resources": {"cpu": 100_000}}, {"resources": {"cpu": "100000.001"}}),
        ({"workdir": "x" * 4095}, {"workdir": "x" * 4096}),
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_bounds_hold_exactly(fields, longer):
    validate(one(**fields))
    assert len(refusal(one(**longer)).problems) == 1


@pytest.mark.parametrize(
    ("text", "fix"),
    [("a\0b", "contains a NUL character; remove it"), ("\ud800", "contains half a surrogate pair")],
)
def test_texts_hold_no_nul_and_no_half_characters(text, fix):
    assert fix in only_problem(one(run=text))
    assert fix in only_problem(one(env={"A": text}))
    assert fix in refusal(one(env={text: "a"})).problems[0].text()
    assert fix in refusal(document() | {text: 1}).problems[0].text()


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 10**5000, -(10**400), 2**53, b"x", (1,), {1}, object()],
    ids=["nan", "inf", "huge", "low", "above", "bytes", "tuple", "set", "object"],
)
@pytest.mark.parametrize("field", ["priority", "labels", "steps", "zzz"])
def test_what_is_no_json_value_is_refused_where_it_is(field, value):
    assert problems(document() | {field: value})[0][0] == field
    assert problems(document() | {field: {"a": [value]}})[0][0].startswith(field)


def test_keys_are_strings():
    text = only_problem(one(env={3.1: "x"}))
    assert text == 'steps[0].env: the key 3.1 is not a string; quote it: "3.1"'


def test_deep_nesting_is_refused_without_recursion():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert only_problem(document() | {"labels": deep}) == "nested deeper than 64 levels; flatten it"
    endless = {}
    endless["labels"] = endless
    assert only_problem(endless) == "nested deeper than 64 levels; flatten it"


def test_shared_parts_that_explode_are_refused():
    part = ["x"] * 10
    for _ in range(12):
        part = [part] * 10
    started = time.monotonic()
    assert only_problem(document() | {"labels": part}).startswith("more than 200000 values")
    assert time.monotonic() - started < 5


def test_a_document_above_1_mib_is_refused():
    def sized(size):
        labels = {"a": "x"}
        data = document(*({"name": f"s{n}", "run": "x" * 65_000} for n in range(16)), labels=labels)
        fill = size - len(canonical(data))
        data["steps"].append({"name": "z", "run": "x" * (fill - len(',{"name":"z","run":""}'))})
        return data

    validate(sized(1 << 20))
    text = only_problem(sized((1 << 20) + 1))
    assert text.startswith("the document has 1048577 bytes, at most 1048576 are allowed")


def test_hundreds_of_problems_are_cut_off_and_counted():
    data = document(*({"name": f"s{n}", "run": 1} for n in range(300)))
    found = refusal(data).problems
    assert len(found) == 101
    assert found[0].path == "steps[0].run"
    assert found[-1].code == "MORE"
    assert found[-1].message == "at least 200 more"


def test_a_fault_of_shape_hides_what_is_not_yet_supported_there():
    assert problems(one(condition={"step": "X"})) == [
        ("steps[0].condition", "CONFLICT"),
        ("steps[0].condition.step", "BAD_VALUE"),
    ]


def test_forms_of_a_run_exclude_each_other():
    text = only_problem(one(run={"agent": {"ref": "a"}, "builtin": "x"}))
    assert text.startswith("steps[0].run.")
    assert "is not possible beside what stands there; leave one of them out" in text


def test_an_empty_program_is_refused():
    assert problems(one(run=["", "x"])) == [("steps[0].run[0]", "BAD_VALUE")]


@pytest.mark.parametrize("place", [{"env": {"<<": {"A": "1"}, "B": "2"}}, {"<<": {"env": {}}}])
def test_a_merge_key_is_named_alone(place):
    assert "YAML 1.2 has no merge keys" in only_problem(one(**place))


def test_a_field_that_means_something_not_yet_supported_says_so():
    text = only_problem(one(**{"if": "x"}))
    assert text == (
        "steps[0].if: unknown field 'if'; "
        "`condition`, if that is meant, is not yet supported: remove it"
    )
