"""Which nodes are this machine: only they see the submitter's files and keep their logs here."""

from pathlib import Path
from typing import Final

from headbay.activities.places import BadNameError, Places
from headbay.client.errors import NotLocalError
from headbay.client.models import NodeRow

__all__ = ["boot_id", "choose_local", "is_local"]

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Identifies this boot of this kernel."""
    return BOOT_ID.read_text().strip()


def is_local(node: NodeRow, places: Places) -> bool:
    """Whether a node is of this machine and this state directory.

    Both must hold: containers of one host share its boot id, and state directories are copied.
    """
    try:
        kept = places.node(node.name).root.is_dir()
    except BadNameError:
        return False
    return kept and node.boot_id == boot_id()


def choose_local(nodes: list[NodeRow], places: Places, address: str) -> str:
    """The node of this machine that takes a local submission, the least occupied first.

    Raises:
        NotLocalError: There is none.
    """
    here = [node for node in nodes if is_local(node, places) and node.state == "up"]
    if not here:
        raise NotLocalError(
            f"no node of the cluster at {address} is this machine, so nothing can run in a "
            "directory of this machine; write a workload without `workdir` (`headbay init`), run "
            "a node here (`headbay worker node`), or unset TEMPORAL_ADDRESS to use an embedded "
            "cluster"
        )
    return min(here, key=lambda n: (n.cordoned, n.running, n.name)).name
