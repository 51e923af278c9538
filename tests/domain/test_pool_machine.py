"""The pool's books under every sequence of messages."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headbay.domain.attempt import AttemptResult
from headbay.domain.exchange import (
    Exchange,
    Grant,
    Inventory,
    NodeFacts,
    NodeReport,
    StepRequest,
)
from headbay.domain.outcome import Outcome
from headbay.domain.pool import (
    AttemptsGone,
    DeliveryOutcome,
    ExchangeArrived,
    HolderState,
    NodeReported,
    PoolMachine,
    snapshot,
    views,
)
from headbay.domain.resources import fits, total

GI = 1 << 30


def report(name="n1", epoch=1, boot="b1", cpu=4000, state="up", live=(), **more) -> NodeReport:
    facts = NodeFacts(
        name=name, machine_id=name, boot_id=boot, capacity={"cpu": cpu, "memory": 8 * GI}
    )
    inventory = (
        Inventory(node=name, epoch=epoch, boot_id=boot, live=list(live))
        if state == "up" and live is not None
        else None
    )
    return NodeReport(facts=facts, epoch=epoch, state=state, inventory=inventory, **more)


def ask(workload="w", run="r1", seq=1, steps=("a",), cpu=1000, priority=0, **more) -> Exchange:
    requests = [
        StepRequest(step=s, attempt=1, resources={"cpu": cpu}, submitted_ms=1, priority=priority)
        for s in steps
    ]
    return Exchange(workload=workload, run=run, seq=seq, requests=requests, **more)


def pool(*reports: NodeReport) -> PoolMachine:
    machine = PoolMachine("p")
    machine.turn([NodeReported(r) for r in reports], 0)
    return machine


def say(machine: PoolMachine, exchange: Exchange, now: int = 1):
    answer = machine.turn([ExchangeArrived(exchange, 1)], now).answers[1]
    machine.sanity_check()
    return answer


def gone(grant: Grant) -> AttemptsGone:
    fields = ("workload", "step", "attempt", "fence", "allocation", "node")
    return AttemptsGone(
        [AttemptResult(**{f: getattr(grant, f) for f in fields}, outcome=Outcome.SUCCEEDED)]
    )


def test_a_request_that_fits_is_granted_in_the_answer():
    machine = pool(report())
    answer = say(machine, ask(steps=("a", "b")))
    assert [g.step for g in answer.grants] == ["a", "b"]
    assert answer.grants[0].fence < answer.grants[1].fence
    assert machine.books.nodes["n1"].used == {"cpu": 2000}


def test_an_equal_seq_is_answered_with_the_stored_answer_and_a_lower_one_with_nothing():
    machine = pool(report())
    first = say(machine, ask())
    assert say(machine, ask()) == first
    assert len(machine.books.allocations) == 1
    say(machine, ask(seq=2, steps=()))
    assert say(machine, ask()).grants == []


def test_an_equal_seq_that_tells_another_story_is_heard_too():
    """A workflow task that was lost after the pool heard from it is taken anew with more in it."""
    machine = pool(report(cpu=2000))
    a, b = say(machine, ask(steps=("a", "b"))).grants
    say(machine, ask(seq=2, steps=("c",), releases=[a.allocation]))
    answer = say(machine, ask(seq=2, steps=("c", "d"), releases=[a.allocation, b.allocation]))
    assert sorted(g.step for g in answer.grants) == ["c", "d"]
    assert machine.books.nodes["n1"].used == {"cpu": 2000}


def test_the_last_word_frees_what_was_granted_to_a_telling_that_was_lost():
    machine = pool(report())
    (a,) = say(machine, ask()).grants
    say(machine, ask(seq=2, steps=("lost",), releases=[a.allocation]))
    assert machine.books.allocations
    say(machine, ask(seq=2, steps=(), releases=[a.allocation], done=True))
    assert not machine.books.allocations
    assert not machine.books.workloads


def test_an_answer_carries_what_the_same_message_made_room_for():
    """Not by a signal besides: it would cost a delivery and a workflow task for every message."""
    machine = pool(report(cpu=1000))
    answer = say(machine, ask(steps=("a", "b")))
    (first,) = answer.grants
    after = say(machine, ask(seq=2, steps=(), releases=[first.allocation]))
    assert [g.step for g in after.grants] == ["b"]
    assert len(machine.outbox) == 0
    again = say(machine, ask(seq=2, steps=(), releases=[first.allocation]))
    assert again.grants == after.grants, "a lost answer is given again"
    last = say(machine, ask(seq=3, steps=(), releases=[after.grants[0].allocation]))
    assert last.grants == []
    assert not machine.books.allocations


def test_the_refusal_of_an_older_request_is_signalled_since_a_lost_answer_would_lose_it():
    machine = pool(report(cpu=2000))
    (first,) = say(machine, ask(steps=("a",), cpu=2000)).grants
    say(machine, ask(seq=2, steps=("b",), cpu=2000))
    shrunk = NodeReported(report(cpu=1000, epoch=2, boot="b2"))
    told = ExchangeArrived(ask(seq=3, steps=(), releases=[first.allocation]), 1)
    assert machine.turn([shrunk, told], 2).answers[1].refusals == []
    assert [r.step for d in machine.outbox.take(10) for r in d.refusals] == ["b"]


def test_a_pool_of_before_that_patch_signals_what_was_asked_for_earlier():
    machine = pool(report(cpu=1000))
    machine.answers_all = False
    (first,) = say(machine, ask(steps=("a", "b"))).grants
    after = say(machine, ask(seq=2, steps=(), releases=[first.allocation]))
    assert after.grants == []
    assert len(machine.outbox) == 1


def test_what_does_not_fit_waits_and_is_delivered_when_capacity_is_released():
    machine = pool(report(cpu=1000))
    (first,) = say(machine, ask("w1")).grants
    assert say(machine, ask("w2")).grants == []
    say(machine, ask("w1", seq=2, steps=(), releases=[first.allocation]))
    (delivery,) = machine.outbox.take(200)
    assert [g.workload for g in delivery.grants] == ["w2"]
    machine.delivered(delivery, DeliveryOutcome.UNKNOWN)
    assert machine.outbox.take(200) == [delivery]
    machine.delivered(delivery, DeliveryOutcome.DELIVERED)
    assert not machine.outbox


def test_a_holder_that_is_gone_frees_its_grant_at_once():
    machine = pool(report(cpu=1000))
    (first,) = say(machine, ask("w1")).grants
    say(machine, ask("w2"))
    machine.turn([gone(first)], 2)
    (delivery,) = machine.outbox.take(200)
    machine.delivered(delivery, DeliveryOutcome.HOLDER_GONE)
    assert not machine.books.allocations
    machine.sanity_check()


def test_a_new_run_voids_what_the_former_held_until_proof_or_lease_end():
    machine = pool(report(cpu=1000))
    (old,) = say(machine, ask(run="r1"), now=1).grants
    assert say(machine, ask(run="r2"), now=2).grants == [], "capacity must not be freed early"
    assert say(machine, ask(run="r1", seq=2, steps=("z",)), now=3).grants == []
    free_at = machine.books.wake_at_ms()
    assert free_at == 2 + old.lease_ms + old.grace_ms
    machine.turn([], free_at - 1)
    assert old.allocation in machine.books.allocations
    machine.turn([], free_at)
    assert old.allocation not in machine.books.allocations
    (delivery,) = machine.outbox.take(200)
    assert [(g.run, g.step) for g in delivery.grants] == [("r2", "a")]
    assert delivery.grants[0].fence > old.fence


def test_a_release_by_the_new_run_does_not_free_what_the_former_run_holds():
    machine = pool(report())
    (old,) = say(machine, ask(run="r1")).grants
    say(machine, ask(run="r2", steps=(), releases=[old.allocation]))
    assert old.allocation in machine.books.allocations
    machine.turn([gone(old)], 2)
    assert not machine.books.allocations


def test_proof_with_another_fence_changes_nothing():
    machine = pool(report())
    (grant,) = say(machine, ask()).grants
    machine.turn([gone(grant.model_copy(update={"fence": grant.fence - 1}))], 2)
    assert grant.allocation in machine.books.allocations


def test_withdrawing_frees_the_request_or_the_allocation_it_became():
    machine = pool(report(cpu=1000))
    say(machine, ask(steps=("a", "b")))
    say(machine, ask(seq=2, steps=(), withdraws=[("a", 1), ("b", 1)]))
    assert not machine.books.allocations
    assert not len(machine.backlog)


def test_asking_again_keeps_the_place_in_the_line_and_the_grant_it_became():
    machine = pool(report(cpu=1000))
    (running,) = say(machine, ask("w0")).grants
    for workload in ("w1", "w2"):
        say(machine, ask(workload))
    for seq in (2, 3):
        assert say(machine, ask("w1", seq=seq)).grants == []
    assert say(machine, ask("w0", seq=2)).grants == [running], "it is told again, not granted twice"
    machine.turn([gone(running)], 9)
    (delivery,) = machine.outbox.take(200)
    assert [g.workload for g in delivery.grants] == ["w1"]


def test_another_boot_frees_and_tells_the_holder_the_same_boot_does_not():
    machine = pool(report())
    (grant,) = say(machine, ask()).grants
    machine.turn([NodeReported(report(epoch=2, boot="b1"))], 2)
    assert grant.allocation in machine.books.allocations
    machine.turn([NodeReported(report(epoch=3, boot="b2"))], 3)
    assert not machine.books.allocations
    (delivery,) = machine.outbox.take(200)
    assert delivery.gone[0].outcome is Outcome.NODE_LOST
    assert delivery.gone[0].fence == grant.fence


def test_a_lost_node_gets_no_work_and_keeps_what_it_runs_in_the_books():
    machine = pool(report())
    (grant,) = say(machine, ask()).grants
    machine.turn([NodeReported(report(state="lost", live=None))], 2)
    assert say(machine, ask("w2")).grants == []
    assert grant.allocation in machine.books.allocations


def test_a_pool_that_was_reset_grants_nothing_until_inventories_arrive():
    machine = pool(report(cpu=4000))
    (grant,) = say(machine, ask()).grants
    machine.reset()
    assert say(machine, ask("w2", cpu=100)).grants == [], "there is room, but who knows"
    machine.turn([NodeReported(report(cpu=4000, live=[grant]))], 3)
    (delivery,) = machine.outbox.take(200)
    assert [g.workload for g in delivery.grants] == ["w2"]
    assert machine.books.nodes["n1"].used == {"cpu": 1100}


def test_what_a_node_still_runs_for_a_former_run_is_void_until_it_is_gone():
    old = pool(report())
    (grant,) = say(old, ask(run="r1")).grants
    fresh = PoolMachine("p")
    say(fresh, ask(run="r2", steps=()), now=9)
    fresh.turn([NodeReported(report(live=[grant]))], 10)
    assert fresh.books.allocations[grant.allocation].void
    assert fresh.books.wake_at_ms() == 10 + grant.lease_ms + grant.grace_ms
    fresh.turn([gone(grant)], 11)
    assert not fresh.books.allocations


def test_a_new_pool_learns_its_allocations_from_inventories_and_holds():
    old = pool(report())
    a, b = say(old, ask(steps=("a", "b"))).grants
    fresh = PoolMachine("p")
    fresh.turn([NodeReported(report(live=[a]))], 10)
    say(fresh, ask(steps=(), holds=[a, b]), now=11)
    assert set(fresh.books.allocations) == {a.allocation, b.allocation}
    assert fresh.fence >= b.fence


def test_the_audit_frees_what_no_node_names_only_when_its_holder_is_closed():
    machine = pool(report())
    (grant,) = say(machine, ask(), now=0).grants
    assert machine.audit_nodes(59_999) == []
    assert machine.audit_nodes(60_000) == ["n1"]
    named = Inventory(node="n1", epoch=1, boot_id="b1", live=[grant])
    machine.take_inventory(named, 60_000)
    assert machine.suspects(60_000) == []
    assert machine.suspects(120_000) == [("w", "r1")]
    machine.holder("w", "r1", HolderState.OPEN, 120_000)
    assert machine.outbox.take(200)[0].gone[0].allocation == grant.allocation
    assert grant.allocation in machine.books.allocations
    machine.holder("w", "r1", HolderState.CLOSED, 120_000)
    assert not machine.books.allocations


def test_what_a_node_still_stores_is_no_suspect_and_is_not_taken_in_anew():
    machine = pool(report())
    (grant,) = say(machine, ask(), now=0).grants
    ending = [grant.allocation, "p-unknown"]
    storing = Inventory(node="n1", epoch=1, boot_id="b1", ending=ending)
    machine.take_inventory(storing, 60_000)
    assert machine.suspects(60_000) == []
    assert list(machine.books.allocations) == [grant.allocation]
    assert machine.suspects(120_000) == [("w", "r1")]


def test_a_workload_that_was_terminated_between_steps_is_forgotten():
    machine = pool(report())
    (grant,) = say(machine, ask()).grants
    machine.turn([gone(grant)], 2)
    assert machine.suspects(3) == [("w", "r1")]
    machine.holder("w", "r1", HolderState.OPEN, 3)
    assert "w" in machine.books.workloads, "it may only be waiting for a retry"
    machine.holder("w", "r1", HolderState.CLOSED, 4)
    assert not machine.books.workloads


def test_what_no_node_could_ever_run_is_refused_at_once_with_numbers():
    machine = pool(report(cpu=4000))
    answer = say(machine, ask(cpu=64_000))
    assert answer.refusals[0].code == "EXCEEDS_EVERY_NODE"
    assert "cpu 64 > 4 on 'n1'" in answer.refusals[0].message
    assert say(machine, ask(cpu=64_000)) == answer


def test_without_any_node_requests_wait_and_say_so():
    machine = PoolMachine("p")
    assert say(machine, ask()).refusals == []
    (row,) = views.explain(machine, {"workload": "w"}, 5)
    assert row["reasons"][0]["code"] == "NO_NODES"


def test_higher_priority_goes_first_then_earlier_submission():
    machine = pool(report(cpu=1000))
    (running,) = say(machine, ask("w0")).grants
    for workload, priority in (("w1", 0), ("w2", 5), ("w3", 5)):
        say(machine, ask(workload, priority=priority))
    order = []
    for _ in range(3):
        machine.turn([gone(running)], 2)
        (delivery,) = machine.outbox.take(200)
        machine.delivered(delivery, DeliveryOutcome.DELIVERED)
        (running,) = delivery.grants
        order.append(running.workload)
    assert order == ["w2", "w3", "w1"]


def test_small_requests_cannot_starve_a_large_one():
    machine = pool(report(cpu=4000))
    held = list(say(machine, ask("s0", steps=("a", "b", "c", "d")), now=0).grants)
    say(machine, ask("big", cpu=4000), now=1)
    started = None
    for tick in range(1, 200):
        now = tick * 1_000
        say(machine, ask(f"s{tick}"), now=now)
        machine.turn([gone(held.pop(0))] if held else [], now)
        for delivery in machine.outbox.take(200):
            machine.delivered(delivery, DeliveryOutcome.DELIVERED)
            held.extend(delivery.grants)
            if delivery.workload == "big":
                started = now
        if started:
            break
    assert started is not None, "the stream of small requests starved the large one"
    assert started <= 30_000 + 10_000


class PoolBooks(RuleBasedStateMachine):
    """Random life of a pool; its books must add up after every turn."""

    grants = Bundle("grants")

    def __init__(self):
        super().__init__()
        self.machine = PoolMachine("p")
        self.now = 1_000
        self.seqs: dict[tuple[str, str], int] = {}
        self.epochs = {"n1": 1, "n2": 1}
        self.boots = {"n1": 1, "n2": 1}
        self.fences: set[int] = set()

    def turn(self, *messages):
        self.now += 1
        return self.machine.turn(messages, self.now)

    def learn(self, grants):
        for grant in grants:
            assert grant.fence not in self.fences, "a fence was granted twice"
            assert all(grant.fence > f for f in self.fences)
            self.fences.add(grant.fence)
        return grants

    @rule(node=st.sampled_from(["n1", "n2"]), cpu=st.integers(1, 4), reboot=st.booleans())
    def node_up(self, node, cpu, reboot):
        if reboot:
            self.boots[node] += 1
        self.epochs[node] += 1
        live = (
            []
            if reboot
            else [a.grant for a in self.machine.books.allocations.values() if a.grant.node == node]
        )
        self.turn(
            NodeReported(
                report(
                    node,
                    self.epochs[node],
                    f"b{self.boots[node]}",
                    max(cpu * 1000, self.machine.books.nodes[node].used.get("cpu", 0))
                    if node in self.machine.books.nodes
                    else cpu * 1000,
                    live=live,
                )
            )
        )

    @rule(node=st.sampled_from(["n1", "n2"]))
    def node_lost(self, node):
        if node in self.machine.books.nodes:
            facts = self.machine.books.nodes[node].facts
            self.turn(NodeReported(NodeReport(facts=facts, epoch=self.epochs[node], state="lost")))

    @rule(
        target=grants,
        workload=st.sampled_from("uvw"),
        run=st.sampled_from(["r1", "r2"]),
        steps=st.lists(st.sampled_from("abcdef"), max_size=4, unique=True),
        cpu=st.integers(100, 3_000),
        priority=st.integers(0, 2),
        again=st.booleans(),
        attempt=st.integers(1, 3),
    )
    def exchange(self, workload, run, steps, cpu, priority, again, attempt):
        seq = self.seqs.get((workload, run), 0) + (0 if again else 1)
        self.seqs[workload, run] = seq
        message = Exchange(
            workload=workload,
            run=run,
            seq=seq,
            requests=[
                StepRequest(
                    step=s,
                    attempt=attempt,
                    resources={"cpu": cpu},
                    submitted_ms=1,
                    priority=priority,
                )
                for s in steps
            ],
        )
        answer = self.turn(ExchangeArrived(message, 1)).answers[1]
        new = [g for g in answer.grants if g.fence not in self.fences]
        return self.learn(new)[0] if new else None

    @rule(outcome=st.sampled_from(list(DeliveryOutcome)))
    def deliver(self, outcome):
        for delivery in self.machine.outbox.take(200):
            self.fences.update(g.fence for g in delivery.grants)
            self.machine.delivered(delivery, outcome)

    @rule(grant=consumes(grants))
    def release(self, grant):
        if grant is None:
            return
        key = (grant.workload, grant.run)
        self.seqs[key] = self.seqs.get(key, 0) + 1
        message = Exchange(
            workload=grant.workload,
            run=grant.run,
            seq=self.seqs[key],
            releases=[grant.allocation],
        )
        self.turn(ExchangeArrived(message, 1))

    @rule(grant=grants)
    def prove_gone(self, grant):
        if grant is not None:
            self.turn(gone(grant))

    @rule(seconds=st.integers(1, 100))
    def time_passes(self, seconds):
        self.now += seconds * 1_000
        self.turn()

    @rule()
    def continue_as_new(self):
        before = views.state(self.machine)
        self.machine = snapshot.load(snapshot.dump(self.machine))
        assert views.state(self.machine) == before
        assert snapshot.dump(self.machine) == snapshot.dump(
            snapshot.load(snapshot.dump(self.machine))
        )

    @invariant()
    def books_add_up(self):
        self.machine.sanity_check()

    @invariant()
    def what_is_over_is_forgotten(self):
        for name, entry in self.machine.books.workloads.items():
            assert not entry.done or self.machine.books.of(name)

    @invariant()
    def nothing_is_overcommitted(self):
        for name, node in self.machine.books.nodes.items():
            held = total(
                a.grant.resources
                for a in self.machine.books.allocations.values()
                if a.grant.node == name
            )
            assert fits(held, node.facts.capacity), f"{name}: {held} > {node.facts.capacity}"

    @invariant()
    def a_request_never_waits_while_it_is_granted(self):
        held = {
            (a.grant.workload, a.grant.step, a.grant.attempt)
            for a in self.machine.books.allocations.values()
            if not a.void
        }
        assert not any(p.key in held for p in self.machine.backlog)


TestPoolBooks = PoolBooks.TestCase
TestPoolBooks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
