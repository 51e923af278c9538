"""Registration, loss and cordon of a node."""

import pytest

from headbay.domain import node as rules
from headbay.domain.exchange import Inventory, NodeFacts, NodeRegistration
from headbay.domain.node import NodeState, NodeStatus
from headbay.domain.operation import DrainOrder, NodeOrder


def registration(machine="m1", boot="b1") -> NodeRegistration:
    facts = NodeFacts(name="n1", machine_id=machine, boot_id=boot, capacity={"cpu": 1000})
    return NodeRegistration(facts=facts, inventory=Inventory(node="n1", epoch=0, boot_id=boot))


def registered(state=None, now=1_000, **who):
    return rules.register(state or NodeState(name="n1"), registration(**who), now)


def test_the_first_registration_begins_an_epoch():
    state, answer = registered()
    assert answer.accepted
    assert answer.epoch == state.epoch == 1_000
    assert state.state == "up"


def test_a_worker_restarted_in_the_same_boot_keeps_its_epoch():
    state, first = registered()
    _, again = registered(state, now=2_000)
    assert again.epoch == first.epoch


@pytest.mark.parametrize("change", ["boot", "loss"])
def test_a_boot_or_a_loss_begins_a_new_epoch(change):
    state, first = registered()
    if change == "loss":
        state = rules.lose(state, 1_500)
    _, again = registered(state, now=2_000, boot="b2" if change == "boot" else "b1")
    assert again.accepted
    assert again.epoch > first.epoch


def test_a_second_machine_under_a_live_nodes_name_is_refused_by_its_machine_id():
    state, _ = registered()
    unchanged, answer = registered(state, machine="m2")
    assert not answer.accepted
    assert answer.code == "NODE_NAME_TAKEN"
    assert "--name" in answer.message
    assert unchanged == state


def test_another_machine_may_take_the_name_once_the_node_is_lost():
    state, _ = registered()
    _, answer = registered(rules.lose(state, 1_500), machine="m2", now=2_000)
    assert answer.accepted


def test_a_forgotten_node_gets_a_higher_epoch_by_the_clock():
    _, before = registered(now=5_000)
    _, after = registered(NodeState(name="n1"), now=6_000)
    assert after.epoch > before.epoch


def test_nothing_is_reported_before_the_first_registration():
    assert NodeState(name="n1").report() is None


def test_uncordoning_ends_a_drain():
    state, _ = registered()
    state = rules.drain(state, DrainOrder(by="ann", deadline_s=60), 10_000)
    assert (state.cordoned, state.draining, state.drain_until_ms) == (True, True, 70_000)
    state = rules.cordon(state, NodeOrder(by="ann"), cordoned=False)
    assert (state.cordoned, state.draining, state.drain_until_ms) == (False, False, None)


def test_status_shows_the_nodes_own_state_over_its_facts():
    state, _ = registered()
    status = NodeStatus.of(state)
    assert (status.name, status.state, status.machine_id) == ("n1", "up", "m1")
