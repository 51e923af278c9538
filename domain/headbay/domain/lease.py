"""Lease arithmetic: when a node must have killed a step, and when it may be given away.

The two must never overlap on clocks that run (invariants 4 and 5). Let a renewal be sent at s, be
acknowledged, and the activity close at c. The server cannot acknowledge after it closed the
activity, so s <= c. The node kills by ``s + ttl - margin`` plus `KILL_BOUND_MS`; nobody gives the
step away before ``c + ttl + max(grace, KILL_BOUND)``.
"""

from typing import Final

__all__ = [
    "KILL_BOUND_MS",
    "MIN_TTL_MS",
    "deadline_ns",
    "heartbeat_interval_ms",
    "margin_ms",
    "reassign_after_ms",
]

MIN_TTL_MS: Final = 1_000
"""Shorter leases could not be renewed in time across a network."""

KILL_BOUND_MS: Final = 2_000
"""Within this time a shim notices the deadline (it polls every 250 ms) and has killed everything:
the kill of a lost lease waits for no grace."""

_NS_PER_MS = 1_000_000


def margin_ms(ttl_ms: int) -> int:
    """How much earlier than the TTL the node kills.

    A sixth of the TTL, at most 5 s: time for the kill. And a thousandth of it: clocks that run
    at slightly different rates (NTP slews by at most 500 ppm; Source: adjtimex(2)).
    """
    return min(ttl_ms // 6, 5_000) + ttl_ms // 1_000


def heartbeat_interval_ms(ttl_ms: int) -> int:
    """How often the keeper renews: three renewals may be lost without losing the lease."""
    return max(ttl_ms // 4, 1)


def deadline_ns(sent_ns: int, ttl_ms: int, margin_ms: int) -> int:
    """When the node kills, unless a later renewal is acknowledged.

    Args:
        sent_ns: CLOCK_BOOTTIME when the last acknowledged heartbeat was *sent*; never when its
            acknowledgement came, which may be much later.
        ttl_ms: The lease's TTL.
        margin_ms: What `margin_ms` says for it.
    """
    return sent_ns + (ttl_ms - margin_ms) * _NS_PER_MS


def reassign_after_ms(closed_at_ms: int, ttl_ms: int, grace_ms: int) -> int:
    """When a step whose activity closed unproven may be given away without any proof.

    Args:
        closed_at_ms: When the closure was *recorded*, by the clock that the timer runs on; never
            the time of the last heartbeat, which is not known for certain.
        ttl_ms: TTL of the lease it held.
        grace_ms: The step's grace; a shorter one than the kill itself takes does not count.
    """
    return closed_at_ms + ttl_ms + max(grace_ms, KILL_BOUND_MS)
