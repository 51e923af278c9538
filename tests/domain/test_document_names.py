"""Names, dependencies, cycles and the size after expansion."""

import pytest
from support.documents import document, only_problem, problems, refusal

from headbay.domain.document import compile_document, validate


def chain(*edges, names=None):
    """Steps from "a>b" (b depends on a)."""
    names = names or sorted({name for edge in edges for name in edge.split(">")})
    upstreams = {name: [] for name in names}
    for edge in edges:
        upstream, step = edge.split(">")
        upstreams[step].append(upstream)
    return document(*({"name": n, "run": "x", "dependsOn": upstreams[n]} for n in names))


def test_a_cycle_is_spelt_out():
    text = only_problem(chain("a>b", "b>c", "c>a"))
    assert text == (
        "steps[0].dependsOn: steps wait for each other: a -> c -> b -> a; "
        "remove one of these dependencies"
    )


def test_every_knot_is_reported_once_by_its_shortest_cycle():
    data = chain("a>b", "b>a", "c>d", "d>e", "e>c", "d>c", "b>c")
    assert problems(data) == [("steps[0].dependsOn", "CYCLE"), ("steps[2].dependsOn", "CYCLE")]
    assert [p.message.partition(": ")[2] for p in refusal(data).problems] == [
        "a -> b -> a",
        "c -> d -> c",
    ]


def test_a_cycle_of_all_steps_is_found_without_recursion():
    names = [f"s{n}" for n in range(1024)]
    edges = [f"{a}>{b}" for a, b in zip(names, [*names[1:], names[0]], strict=True)]
    text = only_problem(chain(*edges, names=names))
    assert "s0 -> s1023 -> s1022" in text
    assert len(text) < 400


def test_a_step_cannot_depend_on_itself():
    text = only_problem(document({"name": "a", "run": "x", "dependsOn": "a"}))
    assert text == "steps[0].dependsOn: 'a' depends on itself; remove it"


@pytest.mark.parametrize(
    ("upstream", "fix"),
    [
        ("biuld", "did you mean 'build'?"),
        ("zzz", "the other steps are 'build', 'shards'"),
        ("shards-2", "depend on 'shards', which means all of them"),
    ],
)
def test_an_unknown_dependency_names_what_was_meant(upstream, fix):
    data = document(
        {"name": "build", "run": "x"},
        {"name": "shards", "run": "x", "matrix": {"N": ["1", "2"]}},
        {"name": "last", "run": "x", "dependsOn": ["build", upstream]},
    )
    text = only_problem(data)
    assert text.startswith("steps[2].dependsOn[1]: ")
    assert upstream in text
    assert fix in text


def test_a_dependency_of_the_only_step_says_so():
    text = only_problem(document({"name": "a", "run": "x", "dependsOn": "b"}))
    assert text == "steps[0].dependsOn: unknown step 'b'; there is no other step"


def test_a_dependency_is_listed_once():
    data = document({"name": "a", "run": "x"}, {"name": "b", "run": "x", "dependsOn": ["a", "a"]})
    assert problems(data) == [("steps[1].dependsOn[1]", "DUPLICATE_DEPENDENCY")]


def test_names_are_unique():
    data = document({"name": "a", "run": "x"}, {"name": "a", "run": "y"})
    text = only_problem(data)
    assert text == "steps[1].name: 'a' is already the name of steps[0]; give it another name"


@pytest.mark.parametrize("other", ["t-2", "t-1"])
def test_a_name_may_not_collide_with_that_of_a_matrix_task(other):
    data = document(
        {"name": "t", "run": "x", "matrix": {"N": ["1", "2"]}}, {"name": other, "run": "x"}
    )
    text = only_problem(data)
    assert f"a task '{other}', which is already the name of steps[1]" in text
    validate(document(data["steps"][0], {"name": "t-3", "run": "x"}))


def test_tasks_of_two_matrices_may_not_collide():
    data = document(
        {"name": "t", "run": "x", "matrix": {"N": ["1", "2"]}},
        {"name": "t-1", "run": "x", "matrix": {"N": ["1"]}},
    )
    assert problems(data) == [("steps[0].name", "DUPLICATE_NAME")]


def test_the_name_of_a_matrix_task_fits():
    fits = {"name": "n" * 62, "run": "x", "matrix": {"N": ["1", "2"]}}
    assert compile_document(validate(document(fits))).steps[1].name == "n" * 62 + "-2"
    text = only_problem(document({**fits, "name": "n" * 63}))
    assert "longer than 64 characters; shorten the step's name" in text


def test_1024_steps_are_allowed_and_1025_refused():
    steps = [{"name": f"s{n}", "run": "x"} for n in range(1025)]
    assert len(validate(document(*steps[:1024])).steps) == 1024
    assert only_problem(document(*steps)) == "steps: has 1025 entries; at most 1024 are allowed"


def test_1024_tasks_are_allowed_and_1025_refused():
    row = [str(n) for n in range(32)]
    matrix = {"name": "m", "run": "x", "matrix": {"A": row, "B": row}}
    assert len(compile_document(validate(document(matrix))).steps) == 1024
    text = only_problem(document(matrix, {"name": "n", "run": "x"}))
    assert text.startswith("steps: 1025 steps after expanding matrices, at most 1024")


def test_an_exploding_matrix_is_refused_without_being_expanded():
    row = [str(n) for n in range(1024)]
    matrix = {f"K{n}": row for n in range(16)}
    assert problems(document({"name": "m", "run": "x", "matrix": matrix})) == [
        ("steps", "TOO_MANY_STEPS")
    ]


def test_32768_dependencies_between_tasks_are_allowed_and_more_refused():
    def joined(size):
        return document(
            {"name": "a", "run": "x", "matrix": {"N": [str(n) for n in range(256)]}},
            {
                "name": "b",
                "run": "x",
                "dependsOn": "a",
                "matrix": {"N": [str(n) for n in range(size)]},
            },
        )

    assert len(compile_document(validate(joined(128))).edges) == 32_768
    assert problems(joined(129)) == [("steps", "TOO_MANY_DEPENDENCIES")]


def test_no_steps_are_refused():
    assert problems(document() | {"steps": []}) == [("steps", "OUT_OF_BOUNDS")]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("Build It", "did you mean 'build-it'?"),
        ("-a", "did you mean 'a'?"),
        ("a-", "did you mean 'a'?"),
        ("a" * 65, "did you mean"),
        ("a\n", "did you mean 'a'?"),
        ("é", "use 1 to 64 lower-case letters"),
    ],
)
def test_step_names_have_a_shape(name, fix):
    text = only_problem(document({"name": name, "run": "x"}))
    assert text.startswith("steps[0].name: ")
    assert fix in text


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a" * 64])
def test_step_names_that_fit(name):
    validate(document({"name": name, "run": "x"}))
