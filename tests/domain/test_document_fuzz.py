"""Whatever a document is, validation answers with a Document or with DocumentRefusedError."""

import copy
import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.documents import VALID

from headbay.domain.document import (
    Document,
    DocumentRefusedError,
    canonical,
    compile_document,
    digest,
    validate,
    warnings,
)

EXAMPLES = int(os.environ.get("HEADBAY_FUZZ_EXAMPLES", "100"))

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

WORDS = [
    *("name", "steps", "run", "dependsOn", "matrix", "array", "env", "secret", "resources", "cpu"),
    *("memory", "tasks", "gpu", "exclusive", "retry", "maxAttempts", "backoff", "initial", "when"),
    *("approval", "condition", "output", "schema", "budget", "deadline", "dynamic", "enabled"),
    *("gang", "nodes", "placement", "affinity", "defaults", "timeout", "lease", "process", "agent"),
    *("builtin", "with", "<script>", "[key]", "build", "test", "publish", "test-1", "spawn:build"),
    *("3.10", "on", "", " ", "\0", "\ud800", "4Gi", "-1", "1e9", "30s", "headbay/v1", "HEADBAY_X"),
]  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**300)
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(st.characters(codec=None), max_size=8)
)
not_json = st.tuples() | st.binary(max_size=2) | st.sets(st.integers(), max_size=2) | st.dates()
keys = st.sampled_from(WORDS) | st.text(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)
any_values = st.recursive(
    scalars | not_json,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys | st.integers() | st.none() | st.floats(), inner, max_size=4)
    ),
    max_leaves=12,
)


def places(value, path=()):
    """Paths of all parts of a value."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


@st.composite
def mutated(draw):
    """A valid document with one to four parts replaced, added or removed."""
    data = copy.deepcopy(VALID)
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(list(places(data))))
        if not path:
            continue
        parent = data
        for part in path[:-1]:
            parent = parent[part]
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "remove":
            del parent[path[-1]]
        elif action == "replace":
            parent[path[-1]] = draw(values)
        elif isinstance(parent, dict):
            parent[draw(keys)] = draw(values)
        else:
            parent.append(draw(values))
    return data


def refused(function, data):
    """The result, or the refusal; nothing else may be raised."""
    try:
        return function(data), None
    except DocumentRefusedError as refusal:
        return None, refusal


def judge(data):
    """Validate; what comes out is a document that compiles, or a usable refusal."""
    document, refusal = refused(validate, data)
    if refusal is not None:
        assert refusal.problems
        for problem in refusal.problems:
            assert problem.code
            assert problem.message
            assert "\n" not in problem.text("file.yaml").encode().decode()
            problem.model_dump_json()
        return None
    assert isinstance(document, Document)
    dag = compile_document(document)
    names = [step.name for step in dag.steps]
    assert len(set(names)) == len(names)
    assert {edge.upstream for edge in dag.edges} | {edge.step for edge in dag.edges} <= set(names)
    warnings(document)
    assert len(digest(data)) == 64
    return document


def test_the_document_that_is_mutated_is_valid():
    assert judge(VALID) is not None


@fuzz
@given(mutated())
def test_a_mutated_document_is_refused_or_compiles(data):
    judge(data)


@fuzz
@given(any_values)
def test_any_value_is_refused_or_compiles(data):
    judge(data)


@fuzz
@given(any_values)
def test_the_canonical_form_of_any_value_exists_or_is_refused(data):
    text, refusal = refused(canonical, data)
    assert text or refusal.problems
