"""Fences: integers that only grow, so that whoever holds a lower one has lost.

Source: Kleppmann, "How to do distributed locking" (fencing tokens).
"""

from headbay.domain.ids import Fence

__all__ = ["next_fence"]


def next_fence(last: int, now_ms: int) -> Fence:
    """The fence after ``last``.

    Taking the wall clock where it is ahead makes even a pool that was re-created or reset, and so
    forgot what it granted, mint higher fences than before.

    Args:
        last: Highest fence known, 0 if none.
        now_ms: Unix milliseconds of the pool's workflow task.
    """
    return Fence(max(last + 1, now_ms))
