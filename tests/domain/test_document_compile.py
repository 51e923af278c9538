"""Compilation: merge rules, matrices, commands, defaults."""

import time

import pytest
from support.documents import VALID, document, one

from headbay.domain.dag import Backoff, DagDef, RetryPolicy
from headbay.domain.document import compile_document, validate, warnings
from headbay.domain.taint import Toleration


def compiled(data, **options):
    return compile_document(validate(data), **options)


def only(**fields):
    """The one step of a document of one step."""
    (step,) = compiled(one(**fields)).steps
    return step


def under(defaults, **fields):
    """The one step with these fields, under these defaults."""
    (step,) = compiled(one(**fields) | {"defaults": defaults}).steps
    return step


def test_what_nobody_says_has_the_documented_defaults():
    step = only()
    assert step.resources == {"cpu": 1000, "memory": 1 << 30, "tasks": 512}
    assert (step.timeout_ms, step.queue_timeout_ms) == (None, None)
    assert (step.grace_ms, step.lease_ms) == (10_000, 30_000)
    assert (step.repeat, step.trigger) == ("safe", "all_success")
    assert step.retry == RetryPolicy(max_attempts=1, backoff=Backoff(), when=None)
    dag = compiled(document())
    assert (dag.pool, dag.queue, dag.priority) == ("default", "default", 0)
    assert (dag.workspace, dag.on_failure, dag.max_parallel) == ("private", "continue", None)


def test_the_workload_s_own_fields_are_carried_over():
    dag = compiled(VALID, base_dir="/src", pin_node="n1")
    assert (dag.name, dag.queue, dag.priority, dag.labels) == ("ci", "team/ci", 3, {"team": "core"})
    assert (dag.max_parallel, dag.on_failure) == (4, "stop")
    assert (dag.base_dir, dag.pin_node) == ("/src", "n1")
    assert DagDef.model_validate_json(dag.model_dump_json()) == dag


def test_a_string_runs_in_bash_and_a_list_as_it_is():
    step = only(run="\n  make all\nmake test\n")
    assert step.argv == ["bash", "-eo", "pipefail", "-c", "\n  make all\nmake test\n"]
    assert step.display == "make all"
    step = only(run=["echo", "a b", ""])
    assert step.argv == ["echo", "a b", ""]
    assert step.display == "echo 'a b' ''"
    assert len(only(run="x" * 500).display) == 120
    assert len(only(run=["a", "x" * 500]).display) == 120
    assert only(run=["p", "", "x"]).display == "p '' x"
    assert only(run=["a\nb", "x"]).display == "'a"


def test_a_matrix_expands_row_major_in_written_order():
    data = document(
        {"name": "t", "run": "x", "env": {"A": "1"}, "matrix": {"P": ["b", "a"], "D": ["x", "y"]}}
    )
    dag = compiled(data)
    assert [(s.name, s.base, s.matrix) for s in dag.steps] == [
        ("t-1", "t", {"P": "b", "D": "x"}),
        ("t-2", "t", {"P": "b", "D": "y"}),
        ("t-3", "t", {"P": "a", "D": "x"}),
        ("t-4", "t", {"P": "a", "D": "y"}),
    ]
    assert dag.steps[2].env == {"A": "1", "P": "a", "D": "x"}


def test_a_matrix_of_one_value_is_numbered_too():
    assert [s.name for s in compiled(one(matrix={"A": ["x"]})).steps] == ["only-1"]


def test_matrix_values_win_over_default_environment_and_secrets():
    secrets = {"B": {"secret": "s"}, "C": {"secret": "s", "as": "file"}}
    step = under({"env": {"A": "d", **secrets}}, matrix={"A": ["x"], "B": ["y"], "C": ["z"]})
    assert step.env == {"A": "x", "B": "y", "C": "z"}
    assert (step.secrets, step.secret_files) == ({}, {})


def test_depending_on_a_matrix_step_means_on_all_its_tasks():
    data = document(
        {"name": "a", "run": "x", "matrix": {"N": ["1", "2"]}},
        {"name": "b", "run": "x", "dependsOn": "a", "matrix": {"N": ["1", "2"]}},
        {"name": "c", "run": "x", "dependsOn": ["b", "a"]},
    )
    edges = [(edge.upstream, edge.step) for edge in compiled(data).edges]
    assert edges == [
        ("a-1", "b-1"),
        ("a-2", "b-1"),
        ("a-1", "b-2"),
        ("a-2", "b-2"),
        ("b-1", "c"),
        ("b-2", "c"),
        ("a-1", "c"),
        ("a-2", "c"),
    ]


def test_the_order_of_declaration_is_free():
    data = document({"name": "b", "run": "x", "dependsOn": "a"}, {"name": "a", "run": "x"})
    dag = compiled(data)
    assert [step.name for step in dag.steps] == ["b", "a"]
    assert [(edge.upstream, edge.step) for edge in dag.edges] == [("a", "b")]


@pytest.mark.parametrize(
    ("field", "default", "own", "attribute", "expected"),
    [
        ("timeout", "1m", "2m", "timeout_ms", 120_000),
        ("queueTimeout", "1m", 5, "queue_timeout_ms", 5_000),
        ("grace", "1m", 0, "grace_ms", 0),
        ("lease", "1h", "short", "lease_ms", 30_000),
        ("repeat", "never", "safe", "repeat", "safe"),
        ("trigger", "all_done", "all_success", "trigger", "all_success"),
        ("artifacts", ["a"], [], "artifacts", []),
        ("workdir", "a", "b", "workdir", "b"),
    ],
)
def test_the_step_wins_over_defaults(field, default, own, attribute, expected):
    assert getattr(under({field: default}, **{field: own}), attribute) == expected
    assert getattr(under({field: own}), attribute) == expected
    assert getattr(under({field: default}), attribute) != expected


def test_resources_merge_one_level():
    step = under({"resources": {"cpu": 2, "licence": 1}}, resources={"cpu": 3, "memory": "2Gi"})
    assert step.resources == {"cpu": 3000, "memory": 2 << 30, "tasks": 512, "licence": 1}


def test_environments_merge_one_level():
    step = under(
        {"env": {"A": "d", "B": "d", "C": {"secret": "d"}, "D": {"secret": "d"}}},
        env={"B": "s", "C": "s", "A": {"secret": "s"}},
    )
    assert step.env == {"B": "s", "C": "s"}
    assert step.secrets == {"A": "s", "D": "d"}


def test_how_a_secret_is_handed_over_is_the_steps_word_before_that_of_defaults():
    """A variable is never delivered in both ways, whoever asked for which."""
    file, value = {"secret": "s", "as": "file"}, {"secret": "s", "as": "env"}
    step = under({"env": {"A": file, "B": value, "C": file}}, env={"A": value, "B": file})
    assert (step.secrets, step.secret_files) == ({"A": "s"}, {"B": "s", "C": "s"})


def test_retry_merges_one_level():
    step = under(
        {"retry": {"maxAttempts": 5, "backoff": {"initial": "2s", "jitter": 0.1}}},
        retry={"maxAttempts": 2, "when": ["OOM_KILLED"]},
    )
    assert step.retry == RetryPolicy(
        max_attempts=2,
        backoff=Backoff(initial_ms=2000, jitter_permille=100),
        when=["OOM_KILLED"],
    )
    step = under({"retry": {"backoff": {"initial": "2s"}}}, retry={"backoff": {"factor": 3}})
    assert step.retry.backoff == Backoff(factor_permille=3000)


def test_placement_merges_one_level():
    step = under({"placement": {"nodeSelector": {"a": "b", "c": "d"}}}, placement={})
    assert step.node_selector == {"a": "b", "c": "d"}
    step = under(
        {"placement": {"nodeSelector": {"a": "b"}}}, placement={"nodeSelector": {"c": "d"}}
    )
    assert step.node_selector == {"c": "d"}


def test_tolerations_are_the_step_s_own_or_the_default_ones_and_equal_unless_said():
    """A list is one setting: the step's replaces that of `defaults`, an empty one too."""
    default = {"placement": {"tolerations": [{"key": "gpu", "value": "a100"}]}}
    assert under(default).tolerations == [Toleration(key="gpu", value="a100")]
    own = {"tolerations": [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}]}
    assert under(default, placement=own).tolerations == [
        Toleration(key="x", operator="Exists", effect="NoSchedule")
    ]
    assert under(default, placement={"tolerations": []}).tolerations == []
    assert only().tolerations == []


def test_a_plain_backoff_is_its_first_delay():
    assert only(retry={"backoff": "5s"}).retry.backoff == Backoff(initial_ms=5_000)
    assert only(retry={"backoff": 90}).retry.backoff == Backoff(initial_ms=90_000, max_ms=90_000)
    assert only(retry={"backoff": {"max": "10s"}}).retry.backoff == Backoff(max_ms=10_000)


def test_requirements_reach_the_step():
    step = only(require="enforced", workdir=".", artifacts=["a/*"])
    assert (step.require, step.workdir, step.artifacts) == ("enforced", ".", ["a/*"])


def test_the_same_document_compiles_to_the_same_dag():
    assert compiled(VALID) == compiled(VALID)


@pytest.mark.parametrize("shape", ["chain", "layers"])
def test_1024_steps_validate_and_compile_within_a_workflow_task(shape):
    def upstreams(n):
        if shape == "chain":
            return [f"s{n - 1}"] if n else []
        layer = n // 32 * 32
        return [f"s{m}" for m in range(layer - 32, layer)] if layer else []

    data = document(
        *(
            {"name": f"s{n}", "run": "make", "env": {"A": "b"}, "dependsOn": upstreams(n)}
            for n in range(1024)
        )
    )
    started = time.process_time()
    dag = compiled(data)
    assert time.process_time() - started < 1
    assert len(dag.steps) == 1024
    assert len(dag.edges) == (1023 if shape == "chain" else 31 * 32 * 32)


@pytest.mark.parametrize("way", [{}, {"as": "env"}, {"as": "file"}])
def test_a_repeatable_step_beside_a_secret_is_warned_about(way):
    """However the secret is handed over."""
    secret = {"env": {"T": {"secret": "s", **way}}}
    (warning,) = warnings(validate(one(**secret)))
    assert (warning.path, warning.code) == ("steps[0]", "REPEAT_BESIDE_SECRET")
    assert "repeat: never" in warning.fix
    assert len(warnings(validate(one() | {"defaults": secret}))) == 1
    assert warnings(validate(one(**secret, repeat="never"))) == []
    assert warnings(validate(one(**secret, repeat="safe"))) == []
    assert warnings(validate(one(**secret) | {"defaults": {"repeat": "never"}})) == []
    assert warnings(validate(one())) == []


def test_a_trigger_without_dependencies_is_warned_about():
    (warning,) = warnings(validate(one(trigger="all_done")))
    assert (warning.path, warning.code) == ("steps[0].trigger", "TRIGGER_WITHOUT_DEPENDENCY")
