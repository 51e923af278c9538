"""Matrix steps and the names of their tasks."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

__all__ = ["combinations", "matrix_size", "task_names"]


def matrix_size(matrix: Any) -> int:
    """Tasks of a step with this (raw) matrix; 1 without one, or where it is none at all."""
    if not isinstance(matrix, dict) or not all(isinstance(v, list) for v in matrix.values()):
        return 1
    return max(1, prod(len(values) for values in matrix.values()))


def combinations(matrix: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """The values of every task, row-major in written order: the last key varies fastest."""
    for values in product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def task_names(step: str, size: int, *, expanded: bool) -> list[str]:
    """Names of a step's tasks: its own, or ``<step>-<n>`` from 1 where it has a matrix."""
    return [f"{step}-{n}" for n in range(1, size + 1)] if expanded else [step]
