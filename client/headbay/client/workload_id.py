"""Workload ids: checked ones of callers, and generated ones.

A generated id is ``<name>-<14 characters>``: milliseconds, then random bits, in an alphabet
without look-alikes, so that ids of one name sort by time and can be read out.
"""

import re
from typing import Final

from headbay.client.errors import BadWorkloadIdError
from headbay.domain.ids import WORKLOAD_ID, WorkloadId

__all__ = ["RANDOM_BITS", "check_id", "generate_id"]

ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Source: Crockford's base 32."""

TIME_CHARS: Final = 8
"""2^40 ms from 2024 on: until 2058."""
EPOCH_MS: Final = 1_704_067_200_000

RANDOM_CHARS: Final = 6
RANDOM_BITS: Final = 5 * RANDOM_CHARS
NAME_CHARS: Final = 80


def check_id(workload: str) -> WorkloadId:
    """The id itself.

    Raises:
        BadWorkloadIdError: It has other characters, or is too long.
    """
    if WORKLOAD_ID.fullmatch(workload) is None:
        raise BadWorkloadIdError(workload)
    return WorkloadId(workload)


def generate_id(name: str, now_ms: int, random: int) -> WorkloadId:
    """A new id.

    Args:
        name: The workload's; what an id cannot hold becomes a hyphen.
        now_ms: Unix milliseconds.
        random: RANDOM_BITS random bits.
    """
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:NAME_CHARS] or "workload"
    time = _base32(max(0, now_ms - EPOCH_MS), TIME_CHARS)
    return check_id(f"{readable}-{time}{_base32(random, RANDOM_CHARS)}")


def _base32(value: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        value, digit = divmod(value, 32)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
