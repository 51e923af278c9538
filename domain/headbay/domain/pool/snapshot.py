"""A pool's state as bytes, for continue-as-new: compressed JSON with a version.

Source: measured, 10,000 pending requests are 1.9 MB plain against Temporal's 2 MB payload limit.
"""

import json
import zlib
from dataclasses import asdict
from typing import Any

from headbay.domain.admission import Pending
from headbay.domain.exchange import Delivery, Grant, NodeFacts, Refusal, StepRequest
from headbay.domain.pool.machine import PoolMachine
from headbay.domain.pool.state import Allocation, NodeEntry, WorkloadEntry

__all__ = ["SNAPSHOT_VERSION", "dump", "load"]

SNAPSHOT_VERSION = 1


def dump(machine: PoolMachine) -> bytes:
    """Everything that the next run needs; deterministic."""
    state = {
        "version": SNAPSHOT_VERSION,
        "name": machine.name,
        "fence": machine.fence,
        "arrivals": machine.arrivals,
        "reserved": machine.reserved,
        "call_ins": machine.call_ins,
        "nodes": [
            {
                "facts": node.facts.model_dump(mode="json"),
                "epoch": node.epoch,
                "state": node.state,
                "cordoned": node.cordoned,
                "draining": node.draining,
                "awaited": node.awaited,
                "lost_ms": node.lost_ms,
                "reason": node.reason,
            }
            for node in machine.books.nodes.values()
        ],
        "allocations": [
            {
                "grant": held.grant.model_dump(mode="json"),
                "seq": held.seq,
                "delivery": held.delivery,
                "granted_ms": held.granted_ms,
                "named_ms": held.named_ms,
                "void": held.void,
                "free_at_ms": held.free_at_ms,
            }
            for held in machine.books.allocations.values()
        ],
        "workloads": {
            name: asdict(entry) | {"refusals": [r.model_dump(mode="json") for r in entry.refusals]}
            for name, entry in machine.books.workloads.items()
        },
        "pending": [
            [p.workload, p.run, p.seq, p.request.model_dump(mode="json"), p.rank[2], p.since_ms]
            for p in machine.backlog
        ],
        "notices": [notice.model_dump(mode="json") for notice in machine.outbox.notices],
    }
    return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 6)


def load(packed: bytes) -> PoolMachine:
    """The machine that `dump` described.

    Raises:
        ValueError: The bytes are of a version that this code does not know.
    """
    state: dict[str, Any] = json.loads(zlib.decompress(packed))
    if state["version"] != SNAPSHOT_VERSION:
        raise ValueError(f"pool snapshot of version {state['version']}, not {SNAPSHOT_VERSION}")
    machine = PoolMachine(state["name"])
    machine.fence = state["fence"]
    machine.arrivals = state["arrivals"]
    machine.reserved = state["reserved"]
    machine.call_ins = state["call_ins"]
    for row in state["nodes"]:
        facts = NodeFacts.model_validate(row.pop("facts"))
        machine.books.nodes[facts.name] = NodeEntry(facts, **row)
    for row in state["allocations"]:
        machine.restore(Allocation(Grant.model_validate(row.pop("grant")), **row))
    for name, row in state["workloads"].items():
        refusals = [Refusal.model_validate(r) for r in row.pop("refusals")]
        machine.books.workloads[name] = WorkloadEntry(**row, refusals=refusals)
    for workload, run, seq, request, arrival, since_ms in state["pending"]:
        asked = StepRequest.model_validate(request)
        rank = (asked.submitted_ms, workload, arrival)
        machine.backlog.add(Pending(workload, run, seq, asked, rank, since_ms))
    machine.outbox.notices = [Delivery.model_validate(row) for row in state["notices"]]
    return machine
