"""Steps of a cluster that no server can be asked about: what their shims left in the spools."""

import time
from collections.abc import Iterator

from headbay.activities.places import Places
from headbay.workers.node.adoption import alive, recorded_shim
from headbay.workers.node.spool import Entry, Spool

__all__ = ["end_steps", "running_steps"]

POLL_S = 0.05


def running_steps(places: Places) -> list[Entry]:
    """Attempts whose shim runs on this machine, under whatever lease it still has."""
    return [entry for entry in _entries(places) if _shim_runs(entry)]


def end_steps(places: Places, *, wait_s: float) -> list[Entry]:
    """Order every running shim to kill its payload at once, and wait; those that still run.

    The order is the one that the node's own worker gives when a lease was lost.
    """
    for entry in running_steps(places):
        entry.set_stop(entry.spec.fence, "lease_lost")
    deadline = time.monotonic() + wait_s
    while (left := running_steps(places)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


def _entries(places: Places) -> Iterator[Entry]:
    nodes = places.root / "nodes"
    for folder in sorted(nodes.iterdir()) if nodes.is_dir() else []:
        spool = Spool(places.node(folder.name))
        if spool.places.spool.is_dir():
            yield from spool.entries()


def _shim_runs(entry: Entry) -> bool:
    shim = recorded_shim(entry)
    return shim is not None and alive(shim)
