"""What is live on a node: attempts whose processes are not proven gone, and what they take."""

from headbay.domain.attempt import LaunchSpec
from headbay.domain.resources import Resources, add, subtract

__all__ = ["Room"]


class Room:
    """A node's resources; asking costs the same however many attempts are live.

    Args:
        capacity: What the node may carry at once.
    """

    def __init__(self, capacity: Resources) -> None:
        self._capacity = capacity
        self._taken: Resources = {}
        self._live: dict[str, LaunchSpec] = {}
        self._steps: dict[tuple[str, str], list[LaunchSpec]] = {}

    def take(self, unit: str, spec: LaunchSpec) -> None:
        """An attempt counts from now on; twice is as once."""
        if unit in self._live:
            return
        self._live[unit] = spec
        self._steps.setdefault((spec.workload, spec.step), []).append(spec)
        self._taken = add(self._taken, spec.resources)

    def leave(self, unit: str) -> None:
        """An attempt is proven gone; twice is as once."""
        spec = self._live.pop(unit, None)
        if spec is None:
            return
        siblings = self._steps[spec.workload, spec.step]
        siblings.remove(spec)
        if not siblings:
            del self._steps[spec.workload, spec.step]
        self._taken = subtract(self._taken, spec.resources)

    def free(self) -> Resources:
        """What no live attempt takes; negative where what was adopted is more than there is."""
        return subtract(self._capacity, self._taken)

    def attempt_of(self, workload: str, step: str) -> LaunchSpec | None:
        """The live attempt of a step, the latest if there are several."""
        live = self._steps.get((workload, step))
        return live[-1] if live else None
