"""Operations of people and orchestrators: each a signal and an update with the same JSON."""

from typing import Annotated, Final, Literal

from pydantic import Field

from headbay.domain.wire import Wire

__all__ = [
    "LEAST_EVENTS",
    "CancelOrder",
    "DrainOrder",
    "NodeOrder",
    "ResolveOrder",
    "WorkloadContext",
]

LEAST_EVENTS: Final = 50
"""A run that is over before it has done anything would follow another for ever."""

LONGEST_DRAIN_S: Final = 366 * 24 * 3600


class CancelOrder(Wire):
    """Cancel a workload. Monotonic: later ones change nothing."""

    by: str = "unknown"
    reason: str = ""


class ResolveOrder(Wire):
    """An operator's word on an UNRESOLVED step."""

    step: str
    verdict: Literal["retry", "success", "failure"]
    by: str = "unknown"
    reason: str = ""


class NodeOrder(Wire):
    """Cordon or uncordon a node."""

    by: str = "unknown"
    reason: str = ""


class DrainOrder(NodeOrder):
    """Cordon, then end what still runs after ``deadline_s`` seconds (None: wait for it)."""

    deadline_s: Annotated[int | None, Field(ge=0, le=LONGEST_DRAIN_S)] = None


class WorkloadContext(Wire):
    """Second argument of a `Workload` workflow, set by our client; all optional.

    Attributes:
        base_dir: Absolute folder of the submitter that relative ``workdir`` refers to.
        pin_node: Only this node may run it (needed with base_dir).
        submitted_by: Subject, for the journal.
        continue_after_events: History length after which it drains and continues as new; at least
            50.
        previous: Base64 of a predecessor run's packed state (continue-as-new only).
    """

    base_dir: str | None = None
    pin_node: str | None = None
    submitted_by: str = ""
    continue_after_events: Annotated[int, Field(ge=LEAST_EVENTS)] = 20_000
    previous: str | None = None
