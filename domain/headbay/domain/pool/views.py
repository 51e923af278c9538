"""What a pool shows: rows as plain JSON, for queries."""

from typing import Any

from headbay.domain.pool.machine import PoolMachine
from headbay.domain.resources import add, total

__all__ = ["allocations", "explain", "nodes", "queues", "state"]

SHOWN_PENDING = 100


def state(machine: PoolMachine) -> dict[str, Any]:
    """Summary of the pool."""
    return {
        "pool": machine.name,
        "fence": machine.fence,
        "pending": len(machine.backlog),
        "allocations": len(machine.books.allocations),
        "workloads": len(machine.books.workloads),
        "allocated": total(a.grant.resources for a in machine.books.allocations.values()),
        "capacity": total(
            n.facts.capacity for n in machine.books.nodes.values() if n.state == "up"
        ),
        "nodes": nodes(machine),
    }


def nodes(machine: PoolMachine) -> list[dict[str, Any]]:
    """One row a node, in name order."""
    return [
        {
            "name": name,
            "state": node.state,
            "epoch": node.epoch,
            "cordoned": node.cordoned,
            "draining": node.draining,
            "awaited": node.awaited,
            "reason": node.reason,
            "isolation": node.facts.isolation,
            "executor": node.facts.executor,
            "labels": node.facts.labels,
            "taints": [taint.model_dump() for taint in node.facts.taints],
            "capacity": node.facts.capacity,
            "used": node.used,
            "running": sum(a.grant.node == name for a in machine.books.allocations.values()),
            "reserved_for": machine.reserved.get(name),
        }
        for name, node in sorted(machine.books.nodes.items())
    ]


def queues(machine: PoolMachine, now_ms: int) -> list[dict[str, Any]]:
    """One row a queue that has pending or running attempts, in name order."""
    rows: dict[str, dict[str, Any]] = {}

    def row(name: str) -> dict[str, Any]:
        return rows.setdefault(
            name,
            {"name": name, "pending": 0, "running": 0, "used": {}, "oldest_wait_ms": 0, "next": []},
        )

    row("default")
    for pending in machine.backlog:
        entry = row(pending.request.queue)
        entry["pending"] += 1
        entry["oldest_wait_ms"] = max(entry["oldest_wait_ms"], now_ms - pending.since_ms)
        if len(entry["next"]) < SHOWN_PENDING:
            entry["next"].append(
                {
                    "position": entry["pending"],
                    "workload": pending.workload,
                    "step": pending.request.step,
                    "attempt": pending.request.attempt,
                    "priority": pending.request.priority,
                    "resources": pending.request.resources,
                    "waited_ms": now_ms - pending.since_ms,
                }
            )
    for held in machine.books.allocations.values():
        entry = row(held.grant.queue)
        entry["running"] += 1
        entry["used"] = add(entry["used"], held.grant.resources)
    return [rows[name] for name in sorted(rows)]


def allocations(machine: PoolMachine) -> list[dict[str, Any]]:
    """One row an allocation, oldest first."""
    return [
        held.grant.model_dump(mode="json")
        | {
            "granted_ms": held.granted_ms,
            "delivery": held.delivery,
            "void": held.void,
            "free_at_ms": held.free_at_ms,
        }
        for held in machine.books.allocations.values()
    ]


def explain(machine: PoolMachine, raw: object, now_ms: int) -> list[dict[str, Any]]:
    """Every reason why a workload's requests wait.

    Args:
        machine: The pool.
        raw: {"workload": id, "step": name or absent}; anything else answers with an empty list.
        now_ms: For how long each has waited.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("workload"), str):
        return []
    step = raw.get("step")
    positions: dict[str, int] = {}
    place: dict[tuple[str, str, int], int] = {}
    for pending in machine.backlog:
        queue = pending.request.queue
        positions[queue] = place[pending.key] = positions.get(queue, 0) + 1
    return [
        {
            "workload": pending.workload,
            "step": pending.request.step,
            "attempt": pending.request.attempt,
            "queue": pending.request.queue,
            "position": place[pending.key],
            "waited_ms": now_ms - pending.since_ms,
            "reasons": [reason.model_dump(mode="json") for reason in reasons],
        }
        for pending, reasons in machine.explain(
            raw["workload"], step if isinstance(step, str) else None
        )
    ]
