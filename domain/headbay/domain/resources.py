"""Resource vectors: plain ``dict[str, int]`` from a resource's name to a whole amount.

Units: ``cpu`` in milli-CPU, ``memory`` in bytes, ``tasks`` in processes and threads; every other
name is a custom counted resource in units of its own. A missing name means zero. Vectors are
never mutated: every function returns a new one.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from headbay.domain.quantity import MAX_INTEGER

__all__ = ["Claim", "Resources", "add", "fits", "missing", "subtract", "total"]

Resources = dict[str, int]

Claim = dict[str, Annotated[int, Field(ge=0, le=MAX_INTEGER)]]
"""A vector as others send it."""


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Sum of two vectors; names whose sum is zero are left out."""
    names = left.keys() | right.keys()
    return {n: v for n in sorted(names) if (v := left.get(n, 0) + right.get(n, 0))}


def subtract(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Difference of two vectors, negative where ``right`` is larger; zeros are left out."""
    names = left.keys() | right.keys()
    return {n: v for n in sorted(names) if (v := left.get(n, 0) - right.get(n, 0))}


def total(vectors: Iterable[Mapping[str, int]]) -> Resources:
    """Sum of any number of vectors."""
    result: Resources = {}
    for vector in vectors:
        for name, value in vector.items():
            result[name] = result.get(name, 0) + value
    return {n: result[n] for n in sorted(result) if result[n]}


def fits(request: Mapping[str, int], free: Mapping[str, int]) -> bool:
    """Whether every amount of ``request`` is at most that of ``free``."""
    return all(amount <= free.get(name, 0) for name, amount in request.items())


def missing(request: Mapping[str, int], free: Mapping[str, int]) -> Resources:
    """What ``free`` lacks for ``request``: only names with a shortfall, as positive amounts."""
    return {
        name: amount - free.get(name, 0)
        for name, amount in sorted(request.items())
        if amount > free.get(name, 0)
    }
