"""Taints keep requests off nodes, tolerations let them pass, `explain` names what is missing."""

import pytest
from support.documents import one, problems

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
from headbay.domain.exchange import Exchange, NodeFacts, NodeReport, StepRequest
from headbay.domain.exchange import Inventory as Held
from headbay.domain.explain import ReasonCode, Tier
from headbay.domain.pool import ExchangeArrived, NodeReported, PoolMachine, snapshot, views
from headbay.domain.taint import BadTaintError, Taint, Toleration, parse_taint, untolerated

GPU = Taint(key="gpu", value="a100")
BARE = Taint(key="maintenance")


def view(name="n1", cpu=4000, free=None, **more) -> NodeView:
    return NodeView(name, {"cpu": cpu}, {"cpu": cpu if free is None else free}, **more)


def shape(*tolerations: Toleration, cpu=1000) -> Shape:
    return Shape((("cpu", cpu),), None, (), None, tolerations)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, [GPU]),
        ({"key": "gpu", "value": "a100"}, [GPU]),
        ({"key": "gpu", "value": "a100", "effect": "NoSchedule"}, [GPU]),
        ({"key": "gpu", "value": "h100"}, []),
        ({"key": "gpu"}, []),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, []),
        ({"key": "maintenance"}, [BARE]),
        ({"key": "maintenance", "operator": "Exists"}, [BARE]),
        ({"key": "maintenance", "value": "x"}, []),
        ({"key": "gpux", "operator": "Exists"}, []),
    ],
)
def test_a_toleration_is_about_these_taints_alone(toleration, tolerated):
    """Equal compares key and value, Exists the key alone; an effect, if given, must be the same."""
    left = untolerated([GPU, BARE], [Toleration(**toleration)])
    assert left == [taint for taint in (GPU, BARE) if taint not in tolerated]


@pytest.mark.parametrize(
    "text", ["gpu=a100:NoSchedule", "maintenance:NoSchedule", "a/b.c=:NoSchedule"]
)
def test_a_taint_reads_as_it_is_written(text):
    """Text and taint are the same thing, an empty value being none."""
    assert parse_taint(text).text == text.replace("=:", ":")


@pytest.mark.parametrize(
    "text", ["gpu", "gpu=a100", "gpu:NoExecute", "=x:NoSchedule", "a b:NoSchedule", "", "g=:No1"]
)
def test_what_is_no_taint_is_refused_with_how_to_write_one(text):
    """An effect that there is not would keep nothing off: it is refused, too."""
    with pytest.raises(BadTaintError, match="KEY=VALUE:NoSchedule"):
        parse_taint(text)


def test_only_nodes_whose_every_taint_is_tolerated_are_taken():
    """One untolerated taint is enough to keep a request off; tolerating is no preference."""
    nodes = [view("a", taints=[GPU]), view("b", taints=[GPU, BARE]), view("z", cpu=8000)]
    gpu, bare = Toleration(key="gpu", operator="Exists"), Toleration(key="maintenance")
    assert best_fit(shape(), nodes).name == "z"
    assert best_fit(shape(gpu), nodes).name == "a"
    assert best_fit(shape(gpu), nodes[1:]).name == "z"
    assert best_fit(shape(gpu, bare), nodes[1:]).name == "b"
    assert best_fit(shape(), nodes[:2]) is None


def test_what_only_tainted_nodes_could_run_waits_and_is_told_which_taints():
    """It is never refused: another node, or the same without its taint, may come."""
    nodes = [view("a", taints=[GPU]), view("b", taints=[GPU, BARE], free=0), view("c", cpu=500)]
    wanted = shape(Toleration(key="gpu", operator="Exists"))
    assert unsatisfiable(wanted, nodes[1:]) is None
    (reason,) = reasons_to_wait(wanted, nodes[1:])
    assert (reason.tier, reason.code) == (Tier.POLICY, ReasonCode.NODES_TAINTED)
    assert "'b' (maintenance:NoSchedule), of 2 nodes" in reason.message
    assert "gpu" not in reason.message, "what is tolerated is not in the way"
    assert "placement.tolerations" in reason.fix
    assert reason.numbers == {"tainted": 1}
    tainted, lacking = reasons_to_wait(wanted, [*nodes[1:], view("d", free=400)])
    assert tainted.code is ReasonCode.NODES_TAINTED
    assert lacking.message == "nearest node 'd' lacks 0.6 cpu"
    (only,) = reasons_to_wait(wanted, [view("e", free=0, taints=[GPU])])
    assert only.code is ReasonCode.INSUFFICIENT_FREE


def test_no_node_is_kept_for_what_does_not_tolerate_it():
    """A request that waits for a long time reserves none of the nodes that it cannot run on."""
    backlog = Backlog()
    request = StepRequest(step="s", attempt=1, resources={"cpu": 3_000}, submitted_ms=0)
    backlog.add(Pending("w", "r", 1, request, (0, "w", 0), 0))
    result = schedule(backlog, [view("a", free=2_000, taints=[GPU])], 10**9, limit=10)
    assert result.reserved is None
    result = schedule(backlog, [view("a", free=2_000)], 10**9, limit=10)
    assert result.reserved is not None


def facts(*taints: Taint) -> NodeFacts:
    return NodeFacts(
        name="n1", machine_id="m", boot_id="b", capacity={"cpu": 4_000}, taints=list(taints)
    )


def reported(*taints: Taint) -> NodeReported:
    inventory = Held(node="n1", epoch=1, boot_id="b")
    return NodeReported(NodeReport(facts=facts(*taints), epoch=1, state="up", inventory=inventory))


def test_a_pool_holds_a_request_until_the_taint_is_gone_and_remembers_taints():
    """Through a snapshot, as at continue-as-new: the request waits with its reason, then starts."""
    machine = PoolMachine("p")
    machine.turn([reported(GPU)], 0)
    request = StepRequest(step="a", attempt=1, resources={"cpu": 1_000}, submitted_ms=1)
    exchange = Exchange(workload="w", run="r", seq=1, requests=[request])
    answer = machine.turn([ExchangeArrived(exchange, 1)], 1).answers[1]
    assert (answer.grants, answer.refusals) == ([], [])
    machine = snapshot.load(snapshot.dump(machine))
    (row,) = views.nodes(machine)
    assert row["taints"] == [{"key": "gpu", "value": "a100", "effect": "NoSchedule"}]
    (waiting,) = views.explain(machine, {"workload": "w"}, 2)
    assert [reason["code"] for reason in waiting["reasons"]] == ["NODES_TAINTED"]
    machine.turn([reported()], 3)
    assert [held.grant.step for held in machine.books.allocations.values()] == ["a"]
    assert views.explain(machine, {"workload": "w"}, 4) == []


def test_what_was_written_before_there_were_taints_is_read():
    """Facts and requests of an older node or workload have neither, and mean none."""
    old = facts().model_dump(exclude={"taints"})
    assert NodeFacts.model_validate(old) == facts()
    asked = StepRequest(step="a", attempt=1, resources={}, submitted_ms=1)
    assert StepRequest.model_validate(asked.model_dump(exclude={"tolerations"})) == asked
    newer = facts().model_dump() | {"taints": [{"key": "a", "effect": "NoExecute", "more": 1}]}
    (taint,) = NodeFacts.model_validate(newer).taints
    assert untolerated([taint], [Toleration(key="a", effect="NoSchedule")]) == [taint]


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        ({}, "key", "MISSING"),
        ({"key": "a b"}, "key", "BAD_VALUE"),
        ({"key": "a", "operator": "Exists", "value": "x"}, "value", "CONFLICT"),
        ({"key": "a", "operator": "In"}, "operator", "BAD_VALUE"),
        ({"key": "a", "effect": "NoExecute"}, "effect", "BAD_VALUE"),
        ({"key": "a", "value": True}, "value", "WRONG_TYPE"),
        ({"key": "a", "values": "x"}, "values", "UNKNOWN_FIELD"),
    ],
)
def test_a_toleration_that_cannot_be_meant_is_refused_at_its_place(rule, path, code):
    """Each names the field of the rule that is wrong."""
    found = problems(one(placement={"tolerations": [rule]}))
    assert found == [(f"steps[0].placement.tolerations[0].{path}", code)]
