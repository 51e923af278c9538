"""What a pool has to say to workloads, until each of them has heard it or is gone."""

from headbay.domain.attempt import AttemptResult
from headbay.domain.exchange import Delivery, Grant, Refusal
from headbay.domain.outcome import Outcome

__all__ = ["Outbox"]


class Outbox:
    """Grants and notices under way.

    Attributes:
        notices: Proofs and refusals, in order.
    """

    def __init__(self) -> None:
        self.notices: list[Delivery] = []
        self._grants: dict[str, Grant] = {}
        self._sent: set[str] = set()

    def __len__(self) -> int:
        return len(self._grants) + len(self.notices)

    def add(self, grant: Grant) -> None:
        """Deliver a grant."""
        self._grants[grant.allocation] = grant

    def drop(self, allocation: str) -> None:
        """A grant needs no delivery any more."""
        self._grants.pop(allocation, None)
        self._sent.discard(allocation)

    def under_way(self, allocation: str) -> bool:
        """Whether a grant may have arrived already."""
        return allocation in self._sent

    def refuse(self, workload: str, run: str, refusal: Refusal) -> None:
        """Tell that a request can never be met."""
        self.notices.append(Delivery(workload=workload, run=run, refusals=[refusal]))

    def tell_gone(self, grant: Grant, outcome: Outcome, why: str) -> None:
        """Tell that an attempt is gone, by another proof than its own completion."""
        result = AttemptResult(
            workload=grant.workload,
            step=grant.step,
            attempt=grant.attempt,
            fence=grant.fence,
            allocation=grant.allocation,
            node=grant.node,
            outcome=outcome,
            message=why,
            began=True,
        )
        self.notices.append(Delivery(workload=grant.workload, run=grant.run, gone=[result]))

    def take(self, limit: int) -> list[Delivery]:
        """What is to be delivered now, batched per run; grants stay until `settle`."""
        batches: dict[tuple[str, str], tuple[list[Grant], list[AttemptResult], list[Refusal]]] = {}
        for allocation, grant in list(self._grants.items())[:limit]:
            batches.setdefault((grant.workload, grant.run), ([], [], []))[0].append(grant)
            self._sent.add(allocation)
        for notice in self.notices[:limit]:
            batch = batches.setdefault((notice.workload, notice.run), ([], [], []))
            batch[1].extend(notice.gone)
            batch[2].extend(notice.refusals)
        self.notices = self.notices[limit:]
        return [
            Delivery(workload=workload, run=run, grants=grants, gone=gone, refusals=refusals)
            for (workload, run), (grants, gone, refusals) in batches.items()
        ]

    def again(self, delivery: Delivery) -> None:
        """Nobody knows whether it arrived: deliver it once more."""
        if delivery.gone or delivery.refusals:
            self.notices.append(delivery.model_copy(update={"grants": []}))
