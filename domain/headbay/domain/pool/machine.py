"""The pool's state machine.

Invariants: allocated <= capacity at every grant (3); capacity is freed only by proof or after
lease plus grace (4); a lower fence changes nothing (7).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headbay.domain.admission import (
    Backlog,
    Pending,
    Placement,
    Shape,
    reasons_to_wait,
    schedule,
    unsatisfiable,
)
from headbay.domain.attempt import AttemptResult
from headbay.domain.exchange import (
    Delivery,
    Exchange,
    ExchangeAnswer,
    Grant,
    Inventory,
    NodeReport,
    Refusal,
    StepRequest,
)
from headbay.domain.explain import Reason
from headbay.domain.fence import next_fence
from headbay.domain.ids import AllocationId
from headbay.domain.outcome import Outcome
from headbay.domain.pool.books import Books
from headbay.domain.pool.messages import (
    AttemptsGone,
    DeliveryOutcome,
    ExchangeArrived,
    HolderState,
    Message,
    NodeReported,
    canonical_order,
)
from headbay.domain.pool.outbox import Outbox
from headbay.domain.pool.state import Allocation, NodeEntry, WorkloadEntry
from headbay.domain.resources import fits, subtract, total

__all__ = ["AUDIT_AFTER_MS", "CALL_INS", "PASS_LIMIT", "PoolMachine", "Turn"]

AUDIT_AFTER_MS = 60_000
"""An allocation that no node has named for this long is looked into."""

PASS_LIMIT = 1_000
"""Placements of one pass: well below the workflow deadlock detector's two seconds."""

CALL_INS = 2
"""Censuses after a pool began or was reset."""


@dataclass(slots=True, frozen=True)
class Turn:
    """What one turn of the machine decided.

    Attributes:
        answers: Ticket -> answer, for every exchange that was taken.
        more: The pass was cut short: take another turn soon.
    """

    answers: dict[int, ExchangeAnswer]
    more: bool


class PoolMachine:
    """Messages in, answers and deliveries out.

    Attributes:
        answers_all: Whether an answer carries all that its workload is granted in that turn, or
            only what the same message asked for. Refusals it carries of that message alone: they
            are made anew when it is asked again, where an older request's would be lost.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.fence = 0
        self.books = Books()
        self.backlog = Backlog()
        self.outbox = Outbox()
        self.arrivals = 0
        self.call_ins = 0
        self.reserved: dict[str, str] = {}
        self.answers_all = True
        self._listening: dict[tuple[str, str], int] = {}
        """(workload, run) -> seq of the messages that this turn answers."""

    # -- one turn ------------------------------------------------------------------------------

    def turn(self, inbox: Iterable[Message], now_ms: int) -> Turn:
        """Take everything that arrived, then run one scheduling pass.

        1. Messages in canonical order; 2. allocations whose time has run out are freed;
        3. requests that can never fit are refused; 4. one bounded pass; 5. answers.
        """
        asked: dict[int, Exchange] = {}
        for message in sorted(inbox, key=canonical_order):
            match message:
                case NodeReported(report):
                    self._report(report, now_ms)
                case AttemptsGone(results):
                    for result in results:
                        self._gone(result)
                case ExchangeArrived(exchange, ticket):
                    self._take(exchange, now_ms)
                    asked[ticket] = exchange
        self.books.expire(now_ms)
        self._listening = {(e.workload, e.run): e.seq for e in asked.values() if self._is_new(e)}
        self._refuse_impossible()
        more = self._schedule(now_ms)
        answers = {ticket: self._answer(exchange) for ticket, exchange in asked.items()}
        for exchange in asked.values():
            self.books.forget_if_over(exchange.workload)
        return Turn(answers, more)

    def _is_new(self, exchange: Exchange) -> bool:
        entry = self.books.workloads.get(exchange.workload)
        return entry is not None and (entry.run, entry.seq) == (exchange.run, exchange.seq)

    def _answering(self, pending: Pending) -> int | None:
        """The message whose answer can carry the grant of a request; None: by a signal."""
        seq = self._listening.get((pending.workload, pending.run))
        return seq if self.answers_all or seq == pending.seq else None

    def reset(self) -> None:
        """The pool was re-created or reset: trust no node's books until it shows its inventory."""
        for node in self.books.nodes.values():
            node.awaited = True
        self.call_ins = CALL_INS
        self.books.note("reset: inventories awaited")

    def called_in(self, fence: int) -> None:
        """A census is done; ``fence`` is the highest that the ledger remembers."""
        self.fence = max(self.fence, fence)
        self.call_ins -= 1

    # -- workloads -----------------------------------------------------------------------------

    def _take(self, exchange: Exchange, now_ms: int) -> None:
        entry = self.books.workloads.get(exchange.workload)
        if entry is None:
            entry = self.books.workloads[exchange.workload] = WorkloadEntry(exchange.run)
        if exchange.run in entry.voided:
            return
        if exchange.run != entry.run:
            self._void(exchange.workload, now_ms)
            entry.void_run(exchange.run)
        if exchange.seq < entry.seq:
            return
        # An equal one is taken again: a workflow task that was lost after the pool heard from it
        # is taken anew, with more in it, and tells another story under the same number.
        entry.seq = exchange.seq
        entry.refusals = []
        for grant in exchange.holds:
            self._adopt(grant, now_ms, named=False)
        self._give_back(exchange)
        for request in exchange.requests:
            self._queue(exchange, request, now_ms)

    def _queue(self, exchange: Exchange, request: StepRequest, now_ms: int) -> None:
        """Let a request wait; asking again keeps its place, or the grant it already became."""
        key = (exchange.workload, request.step, request.attempt)
        for held in self.books.of(exchange.workload):
            if (held.grant.step, held.grant.attempt) == key[1:] and not held.void:
                held.seq, held.delivery = exchange.seq, "answered"
                self.outbox.drop(held.grant.allocation)
                return
        known = self.backlog.get(key)
        self.arrivals += 1
        rank = (request.submitted_ms, exchange.workload, self.arrivals)
        self.backlog.add(
            Pending(
                exchange.workload,
                exchange.run,
                exchange.seq,
                request,
                known.rank if known else rank,
                known.since_ms if known else now_ms,
            )
        )

    def _give_back(self, exchange: Exchange) -> None:
        """Releases, withdrawals, and the last word of a workload."""
        for allocation in exchange.releases:
            held = self.books.allocations.get(allocation)
            if held is not None and held.grant.run == exchange.run:
                self._free(held, "released")
        for step, attempt in exchange.withdraws:
            self.backlog.remove((exchange.workload, step, attempt))
            for held in self.books.of(exchange.workload):
                if (held.grant.step, held.grant.attempt) == (step, attempt) and not held.void:
                    self._free(held, "withdrawn")
        if exchange.done:
            # A workload is done once each of its attempts is proven over: what is still held was
            # granted to a workflow task that was lost, and with it the orders to start anything.
            self.books.workloads[exchange.workload].done = True
            for held in self.books.of(exchange.workload):
                if not held.void:
                    self._free(held, "never started: granted to a telling that was lost")
            for pending in self.backlog.of(exchange.workload):
                self.backlog.remove(pending.key)

    def _void(self, workload: str, now_ms: int) -> None:
        """A newer run spoke: what the former one held is freed by proof, or when it is dead."""
        for pending in self.backlog.of(workload):
            self.backlog.remove(pending.key)
        for held in self.books.of(workload):
            if held.delivery == "pending" and not self.outbox.under_way(held.grant.allocation):
                self._free(held, "voided before delivery")
            else:
                self.books.doubt(held, now_ms, "run voided")

    def _answer(self, exchange: Exchange) -> ExchangeAnswer:
        """The answer to a message: its stored grants and refusals, nothing for older ones."""
        entry = self.books.workloads.get(exchange.workload)
        grants: list[Grant] = []
        refusals: list[Refusal] = []
        if entry is not None and entry.run == exchange.run and entry.seq == exchange.seq:
            refusals = entry.refusals
            grants = [
                held.grant
                for held in self.books.of(exchange.workload)
                if held.delivery == "answered" and held.seq == exchange.seq and not held.void
            ]
        return ExchangeAnswer(
            workload=exchange.workload,
            run=exchange.run,
            seq=exchange.seq,
            grants=grants,
            refusals=refusals,
        )

    # -- nodes ---------------------------------------------------------------------------------

    def _report(self, report: NodeReport, now_ms: int) -> None:
        name = report.facts.name
        node = self.books.nodes.get(name)
        if node is not None and report.epoch < node.epoch:
            return
        if report.state == "retired":
            self._retire(name, now_ms)
            return
        if node is None:
            node = self.books.nodes[name] = NodeEntry(report.facts, report.epoch)
            node.used = total(held.grant.resources for held in self.books.on(name))
        if node.facts.boot_id != report.facts.boot_id:
            for held in self.books.on(name):
                if held.grant.epoch < report.epoch:
                    self._lose(held, f"node {name} came back with another boot id")
        node.facts = report.facts
        node.epoch = report.epoch
        node.cordoned = report.cordoned or report.draining
        node.draining = report.draining
        node.reason = report.reason
        if report.state == "lost" and node.state == "up":
            node.lost_ms = now_ms
        node.state = report.state
        if report.state == "up":
            node.lost_ms = None
        if report.inventory is not None:
            self.take_inventory(report.inventory, now_ms)
        self.books.note(f"node {name} epoch {report.epoch} {report.state} used {node.used}")

    def _retire(self, name: str, now_ms: int) -> None:
        for held in self.books.on(name):
            self.books.doubt(held, now_ms, "node retired")
        self.books.nodes.pop(name, None)

    def take_inventory(self, inventory: Inventory, now_ms: int) -> None:
        """A node said what it runs; unknown attempts are taken into the books."""
        node = self.books.nodes.get(inventory.node)
        if node is None or inventory.epoch < node.epoch:
            return
        for grant in inventory.live:
            self._adopt(grant, now_ms, named=True)
        for allocation in inventory.ending:
            self.books.name(allocation, now_ms)
        node.awaited = False

    def _adopt(self, grant: Grant, now_ms: int, *, named: bool) -> None:
        self.fence = max(self.fence, grant.fence)
        self.books.adopt(grant, now_ms, named=named)

    def _lose(self, held: Allocation, why: str) -> None:
        grant = held.grant
        if not held.void:
            self.outbox.tell_gone(grant, Outcome.NODE_LOST, why)
        self._free(held, why)

    # -- freeing -------------------------------------------------------------------------------

    def _gone(self, result: AttemptResult) -> None:
        held = self.books.allocations.get(result.allocation)
        if held is not None and held.grant.fence == result.fence:
            self._free(held, f"gone ({result.outcome})")

    def _free(self, held: Allocation, why: str) -> None:
        self.outbox.drop(held.grant.allocation)
        self.books.free(held, why)

    def restore(self, held: Allocation) -> None:
        """Put back an allocation of a snapshot."""
        self.books.charge(held)
        if held.delivery == "pending":
            self.outbox.add(held.grant)

    # -- granting ------------------------------------------------------------------------------

    def _refuse_impossible(self) -> None:
        if any(node.awaited for node in self.books.nodes.values()):
            return
        views = self.books.views()
        verdicts: dict[Shape, Reason | None] = {}
        for key in self.backlog.class_keys():
            if key.shape not in verdicts:
                verdicts[key.shape] = unsatisfiable(key.shape, views)
            reason = verdicts[key.shape]
            while reason is not None and (head := self.backlog.head(key)) is not None:
                self.backlog.remove(head.key)
                self._refuse(head, reason)

    def _refuse(self, pending: Pending, reason: Reason) -> None:
        refusal = Refusal(
            step=pending.request.step,
            attempt=pending.request.attempt,
            code=reason.code,
            message=f"{reason.message}; {reason.fix}",
        )
        self.books.note(f"refused {pending.key}: {reason.code}")
        if self._listening.get((pending.workload, pending.run)) == pending.seq:
            self.books.workloads[pending.workload].refusals.append(refusal)
        else:
            self.outbox.refuse(pending.workload, pending.run, refusal)

    def _schedule(self, now_ms: int) -> bool:
        if not len(self.backlog):
            self.reserved = {}
            return False
        result = schedule(self.backlog, self.books.views(), now_ms, limit=PASS_LIMIT)
        for placement in result.placements:
            self._grant(placement, now_ms)
        self.reserved = (
            {result.reserved[0]: "/".join(map(str, result.reserved[1].key))}
            if result.reserved
            else {}
        )
        return result.capped

    def _grant(self, placement: Placement, now_ms: int) -> None:
        pending, node = placement.pending, self.books.nodes[placement.node]
        request = pending.request
        if not fits(request.resources, subtract(node.facts.capacity, node.used)):
            raise self.books.broken(
                f"grant of {pending.key} would overcommit {placement.node}: "
                f"{node.used} of {node.facts.capacity} used"
            )
        self.fence = next_fence(self.fence, now_ms)
        grant = Grant(
            allocation=AllocationId(f"{self.name}-{self.fence}"),
            workload=pending.workload,
            run=pending.run,
            step=request.step,
            attempt=request.attempt,
            node=placement.node,
            epoch=node.epoch,
            fence=self.fence,
            resources=request.resources,
            queue=request.queue,
            lease_ms=request.lease_ms,
            grace_ms=request.grace_ms,
        )
        seq = self._answering(pending)
        if seq is None:
            self.books.charge(Allocation(grant, pending.seq, "pending", now_ms, now_ms))
            self.outbox.add(grant)
        else:
            self.books.charge(Allocation(grant, seq, "answered", now_ms, now_ms))
        self.books.note(
            f"granted {grant.allocation} to {grant.workload}/{grant.step} on {grant.node}"
        )

    # -- delivering ----------------------------------------------------------------------------

    def delivered(self, delivery: Delivery, outcome: DeliveryOutcome) -> None:
        """Take note of what became of a delivery; unknown ones are delivered again."""
        if outcome is DeliveryOutcome.UNKNOWN:
            self.outbox.again(delivery)
            return
        for grant in delivery.grants:
            held = self.books.allocations.get(grant.allocation)
            if held is None:
                continue
            if outcome is DeliveryOutcome.DELIVERED:
                self.outbox.drop(grant.allocation)
                held.delivery = "delivered"
            else:
                self._free(held, "holder gone before delivery")
        if outcome is DeliveryOutcome.HOLDER_GONE:
            self.holder(delivery.workload, delivery.run, HolderState.CLOSED, None)

    # -- audit ---------------------------------------------------------------------------------

    def audit_nodes(self, now_ms: int) -> list[str]:
        """Nodes to ask for their inventory: those with allocations unnamed for too long."""
        return sorted(
            {
                held.grant.node
                for held in self.books.allocations.values()
                if now_ms - held.named_ms >= AUDIT_AFTER_MS
                and (node := self.books.nodes.get(held.grant.node)) is not None
                and node.state == "up"
            }
        )

    def unanswered(self, name: str) -> None:
        """A node did not answer for its inventory: what it runs stays as it is."""
        self.books.note(f"node {name} did not show its inventory")

    def suspects(self, now_ms: int) -> list[tuple[str, str]]:
        """Runs to look up after the inventories: (workload, run), each once.

        1. Holders of allocations that are still unnamed; 2. workloads that hold nothing and wait
        for nothing: one that was terminated never says its last word.
        """
        unnamed = [
            (held.grant.workload, held.grant.run)
            for held in self.books.allocations.values()
            if now_ms - held.named_ms >= AUDIT_AFTER_MS
        ]
        idle = [
            (name, entry.run)
            for name, entry in self.books.workloads.items()
            if not self.books.of(name) and not self.backlog.of(name)
        ]
        return list(dict.fromkeys(unnamed + idle))

    def holder(self, workload: str, run: str, state: HolderState, now_ms: int | None) -> None:
        """Take note of a holder's state.

        A closed holder's pending requests vanish, and its unnamed allocations are free if their
        node is up (it just did not name them), else in doubt. An open holder is told that its
        attempt is gone: a paused activity would wait for ever.

        Args:
            workload: Whose run it is.
            run: Temporal run id.
            state: What the lookup answered.
            now_ms: Time of an audit; None outside of one (nothing is freed then).
        """
        if state is HolderState.UNKNOWN:
            return
        if state is HolderState.CLOSED:
            for pending in self.backlog.of(workload):
                if pending.run == run:
                    self.backlog.remove(pending.key)
            entry = self.books.workloads.get(workload)
            if entry is not None and entry.run == run:
                entry.done = True
        if now_ms is not None:
            for held in self.books.of(workload):
                if held.grant.run == run and now_ms - held.named_ms >= AUDIT_AFTER_MS:
                    self._audit(held, state, now_ms)
        self.books.forget_if_over(workload)

    def _audit(self, held: Allocation, state: HolderState, now_ms: int) -> None:
        node = self.books.nodes.get(held.grant.node)
        up = node is not None and node.state == "up" and not node.awaited
        lost_ms = held.named_ms if node is None else node.lost_ms
        if state is HolderState.CLOSED and up:
            self._free(held, "audit: holder closed, node does not run it")
        elif state is HolderState.CLOSED:
            self.books.doubt(held, now_ms, "audit: holder closed, node away")
        elif up:
            self.outbox.tell_gone(held.grant, Outcome.LEASE_LOST, "its node no longer runs it")
        elif lost_ms is not None and held.expires_ms(lost_ms) <= now_ms:
            why = "its node is lost, its lease ran out"
            self.outbox.tell_gone(held.grant, Outcome.NODE_LOST, why)

    # -- views ---------------------------------------------------------------------------------

    def explain(self, workload: str, step: str | None) -> list[tuple[Pending, list[Reason]]]:
        """Every reason why the workload's requests wait."""
        views = self.books.views()
        return [
            (pending, reasons_to_wait(pending.class_key().shape, views))
            for pending in self.backlog.of(workload)
            if step is None or pending.request.step == step
        ]

    def sanity_check(self) -> None:
        """Raise if the books do not add up."""
        self.books.sanity_check()
