"""Which orders a node accepts: the last boundary before a process exists.

Checks, first match (each answers with a result that is already definite):
  1. a spec of a version that this node does not know;
  2. another node's or another epoch's order;
  3. a fence that is not above all that this node has seen for the step: STALE_ORDER, it may have
     run (an attempt that is over, or that was put aside as unreadable, or an older one);
  4. a delivery after the first of an order that this node does not have;
  5. a live attempt of the same step: its process must be gone first;
  6. `require: enforced` where nothing is enforced;
  7. what does not fit beside the live attempts.
"""

from headbay.domain.attempt import LAUNCH_SPEC_VERSION, AttemptResult, LaunchSpec
from headbay.domain.outcome import Isolation, Outcome
from headbay.domain.resources import fits, missing
from headbay.workers.node.results import without_exit
from headbay.workers.node.room import Room

__all__ = ["refuse"]


def refuse(  # noqa: PLR0911 - one return a check, in the order above
    spec: LaunchSpec,
    *,
    node: str,
    epoch: int,
    room: Room,
    isolation: Isolation,
    delivery: int,
    highest_fence: int,
) -> AttemptResult | None:
    """The result that refuses an order for an attempt that is not live here; None to accept it.

    Args:
        spec: What was ordered.
        node: Name of this node.
        epoch: Its current registration.
        room: What is live on it.
        isolation: What its executor promises.
        delivery: Temporal's attempt number of the activity, from 1.
        highest_fence: The highest fence that this node may have seen for the step; 0 for none.
    """

    def not_started(why: str) -> AttemptResult:
        return without_exit(spec, Outcome.NOT_STARTED, why, isolation)

    if spec.version not in {LAUNCH_SPEC_VERSION, LAUNCH_SPEC_VERSION - 1}:
        return not_started(f"launch spec version {spec.version} is not understood here: upgrade")
    if (spec.node, spec.epoch) != (node, epoch):
        return not_started(f"ordered for {spec.node} epoch {spec.epoch}, this is {node} {epoch}")
    if spec.fence <= highest_fence:
        why = f"STALE_ORDER: this step was here before, last under fence {highest_fence}"
        return without_exit(spec, Outcome.UNKNOWN, why, isolation, began=True)
    if delivery > 1:
        return not_started("delivered again after its first delivery was lost")
    sibling = room.attempt_of(spec.workload, spec.step)
    if sibling is not None:
        return not_started(f"attempt {sibling.attempt} of this step is still live here")
    if spec.require == "enforced" and isolation is not Isolation.ENFORCED:
        return not_started(f"requires enforced limits; this node's are {isolation}")
    free = room.free()
    if not fits(spec.resources, free):
        return not_started(
            f"does not fit beside what runs here: lacks {missing(spec.resources, free)}"
        )
    return None
