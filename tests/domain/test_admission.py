"""Placement, grouping by shape, and reasons."""

from hypothesis import given
from hypothesis import strategies as st

from headbay.domain.admission import (
    Backlog,
    NodeView,
    Pending,
    Shape,
    best_fit,
    reasons_to_wait,
    schedule,
    unsatisfiable,
)
from headbay.domain.exchange import StepRequest
from headbay.domain.explain import ReasonCode


def view(name="n1", cpu=4000, free=None, **more) -> NodeView:
    return NodeView(name, {"cpu": cpu}, {"cpu": cpu if free is None else free}, **more)


def shape(cpu=1000, node=None, selector=(), require=None) -> Shape:
    return Shape((("cpu", cpu),), node, tuple(selector), require)


def pending(workload: str, cpu: int, priority: int, arrival: int) -> Pending:
    request = StepRequest(
        step="s", attempt=1, resources={"cpu": cpu}, priority=priority, submitted_ms=arrival // 3
    )
    return Pending(workload, "r", 1, request, (arrival // 3, workload, arrival), 0)


def test_the_tightest_node_wins_so_that_big_holes_stay():
    nodes = [view("big", 8000), view("small", 2000), view("full", 2000, free=500)]
    assert best_fit(shape(1500), nodes).name == "small"


def test_equal_fits_are_decided_by_name():
    assert best_fit(shape(), [view("b"), view("a")]).name == "a"


def test_closed_unlabelled_and_weaker_nodes_are_passed_over():
    nodes = [
        view("closed", closed="cordoned"),
        view("plain"),
        view("labelled", labels={"disk": "ssd"}),
        view("strong", labels={"disk": "ssd"}, isolation="enforced"),
    ]
    assert best_fit(shape(selector=[("disk", "ssd")]), nodes).name == "labelled"
    assert best_fit(shape(require="enforced"), nodes).name == "strong"
    assert best_fit(shape(node="closed"), nodes) is None


def test_every_reason_has_a_message_and_the_nearest_node_is_named():
    (reason,) = reasons_to_wait(shape(3000), [view("a", free=500), view("b", free=2500)])
    assert reason.code is ReasonCode.INSUFFICIENT_FREE
    assert reason.message == "nearest node 'b' lacks 0.5 cpu"
    assert reason.numbers == {"lacks_cpu": 500}


def test_closed_nodes_are_named_with_what_was_said_of_them():
    nodes = [
        view("a", closed="cordoned", note="disk swap"),
        view("b", closed="lost"),
        *(view(f"c{n}", closed="awaited") for n in range(5)),
        view("other", labels={"gpu": "yes"}, closed="cordoned"),
    ]
    wanted = shape(selector=[])
    cordoned, lost, awaited = reasons_to_wait(wanted, [n for n in nodes if not n.labels])
    assert cordoned.message == "cordoned: 'a' (disk swap), of 7 nodes"
    assert cordoned.fix == "`headbay node uncordon a`"
    assert lost.message == "lost: 'b', of 7 nodes"
    assert (
        awaited.message == "yet to say what they still run: 'c0', 'c1', 'c2' and 2 more, of 7 nodes"
    )
    assert awaited.numbers == {"awaited": 5}
    (only,) = reasons_to_wait(shape(selector=[("gpu", "yes")]), nodes)
    assert only.message == "cordoned: 'other'", "nodes that it cannot run on do not matter"


def test_what_never_fits_says_by_how_much():
    reason = unsatisfiable(shape(64_000), [view("a"), view("b", 8000)])
    assert reason.code is ReasonCode.EXCEEDS_EVERY_NODE
    assert reason.numbers["lacks_cpu"] in (56_000, 60_000)
    assert unsatisfiable(shape(64_000), []) is None, "without nodes one may still come"


requests = st.lists(st.tuples(st.sampled_from([500, 1000, 3000]), st.integers(0, 2)), max_size=12)


@given(requests, st.lists(st.sampled_from([1000, 2000, 4000]), min_size=1, max_size=3))
def test_grouping_by_shape_decides_as_a_plain_walk_in_order_does(asked, capacities):
    rows = [pending(f"w{i}", cpu, prio, i) for i, (cpu, prio) in enumerate(asked)]
    nodes = [view(f"n{i}", cpu) for i, cpu in enumerate(capacities)]
    expected = []
    for row in sorted(rows, key=lambda p: (-p.request.priority, p.rank)):
        node = best_fit(row.class_key().shape, nodes)
        if node is not None:
            node.take(row.class_key().shape.resources)
            expected.append((row.workload, node.name))
    backlog = Backlog()
    for row in rows:
        backlog.add(row)
    fresh = [view(f"n{i}", cpu) for i, cpu in enumerate(capacities)]
    result = schedule(backlog, fresh, 0, limit=1_000)
    assert [(p.pending.workload, p.node) for p in result.placements] == expected
    assert len(backlog) == len(rows) - len(expected)


@given(requests, st.randoms(use_true_random=False))
def test_permuted_input_gives_the_same_decisions(asked, random):
    rows = [pending(f"w{i}", cpu, prio, i) for i, (cpu, prio) in enumerate(asked)]
    outcomes = []
    for _ in range(2):
        random.shuffle(rows)
        backlog = Backlog()
        for row in rows:
            backlog.add(row)
        result = schedule(backlog, [view("a"), view("b", 2000)], 0, limit=1_000)
        outcomes.append([(p.pending.workload, p.node) for p in result.placements])
    assert outcomes[0] == outcomes[1]


@given(requests)
def test_a_capped_pass_goes_on_where_it_stopped(asked):
    rows = [pending(f"w{i}", cpu, prio, i) for i, (cpu, prio) in enumerate(asked)]
    whole, parts = Backlog(), Backlog()
    for row in rows:
        whole.add(row)
        parts.add(row)
    expected = schedule(whole, [view("a", 8000)], 0, limit=1_000).placements
    nodes = [view("a", 8000)]
    found = []
    while True:
        result = schedule(parts, nodes, 0, limit=2)
        found += result.placements
        if not result.capped:
            break
    assert [(p.pending.key, p.node) for p in found] == [(p.pending.key, p.node) for p in expected]
