"""Names and dependencies of a document's steps, checked on the raw data.

Works on whatever part of a document has the right shape, so that a misspelt dependency is
reported together with a misspelt field elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from headbay.domain.document.cycles import find_cycles
from headbay.domain.document.expansion import matrix_size, task_names
from headbay.domain.document.near import near_name
from headbay.domain.document.problem import Fault, Path
from headbay.domain.document.step import MAX_STEPS
from headbay.domain.wording import shown

__all__ = ["MAX_EDGES", "check_graph"]

MAX_EDGES: Final = 32_768
"""Dependencies between tasks, matrices expanded: two large matrices need a step between them."""

_MOST_GUESSES: Final = 20
_MOST_LISTED: Final = 8
_MOST_IN_CYCLE: Final = 20


@dataclass(frozen=True, slots=True)
class _Node:
    """One step as far as it could be read."""

    index: int
    name: str
    size: int
    expanded: bool
    upstreams: list[tuple[Path, str]]


def check_graph(data: dict[str, Any]) -> Iterator[Fault]:
    """Faults of names, dependencies and of the size after expansion."""
    nodes = list(_read(data))
    if len(nodes) > MAX_STEPS:
        return
    by_name: dict[str, _Node] = {}
    for node in nodes:
        first = by_name.setdefault(node.name, node)
        if first is not node:
            yield Fault(
                ("steps", node.index, "name"),
                "DUPLICATE_NAME",
                f"{shown(node.name)} is already the name of steps[{first.index}]",
                "give it another name",
            )
    yield from _check_size(nodes, by_name)
    yield from _check_dependencies(nodes, by_name)


def _read(data: dict[str, Any]) -> Iterator[_Node]:
    steps = data.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        if not isinstance(step, dict) or not isinstance(step.get("name"), str):
            continue
        path = ("steps", index, "dependsOn")
        given = step.get("dependsOn")
        if isinstance(given, str):
            upstreams: list[tuple[Path, str]] = [(path, given)]
        else:
            listed = given if isinstance(given, list) else []
            upstreams = [((*path, i), u) for i, u in enumerate(listed) if isinstance(u, str)]
        matrix = step.get("matrix")
        size = matrix_size(matrix)
        yield _Node(index, step["name"], size, isinstance(matrix, dict), upstreams)


def _check_size(nodes: list[_Node], by_name: dict[str, _Node]) -> Iterator[Fault]:
    total = sum(node.size for node in nodes)
    if total > MAX_STEPS:
        yield Fault(
            ("steps",),
            "TOO_MANY_STEPS",
            f"{total} steps after expanding matrices, at most {MAX_STEPS} are allowed",
            "split the workload or shorten a matrix",
        )
        return
    taken = {name: f"steps[{node.index}]" for name, node in by_name.items()}
    for node in by_name.values():
        if not node.expanded:
            continue
        names = task_names(node.name, node.size, expanded=True)
        place = ("steps", node.index, "name")
        if len(names[-1]) > 64:
            yield Fault(
                place,
                "BAD_VALUE",
                f"the name '{names[-1]}' of a matrix task is longer than 64 characters",
                "shorten the step's name",
            )
        for name in names:
            if name in taken:
                yield Fault(
                    place,
                    "DUPLICATE_NAME",
                    f"the matrix makes a task '{name}', which is already the name of {taken[name]}",
                    "rename one of the two",
                )
            else:
                taken[name] = f"a matrix task of steps[{node.index}]"


def _check_dependencies(nodes: list[_Node], by_name: dict[str, _Node]) -> Iterator[Fault]:
    guesses = edges = 0
    graph: dict[str, list[str]] = {name: [] for name in by_name}
    for node in nodes:
        seen: set[str] = set()
        for path, upstream in node.upstreams:
            if upstream in seen:
                yield Fault(
                    path, "DUPLICATE_DEPENDENCY", f"{shown(upstream)} is listed twice", "remove one"
                )
            elif upstream == node.name:
                yield Fault(
                    path, "SELF_DEPENDENCY", f"{shown(upstream)} depends on itself", "remove it"
                )
            elif upstream in by_name:
                edges += node.size * by_name[upstream].size
                if by_name[node.name] is node:
                    graph[node.name].append(upstream)
            elif not upstream.startswith("spawn:"):
                guesses += 1
                yield _unknown(path, upstream, node, by_name, guess=guesses <= _MOST_GUESSES)
            seen.add(upstream)
    if edges > MAX_EDGES:
        yield Fault(
            ("steps",),
            "TOO_MANY_DEPENDENCIES",
            f"{edges} dependencies between tasks, at most {MAX_EDGES} are allowed",
            "put a step between large matrices",
        )
    for cycle in find_cycles(graph):
        spelt = cycle if len(cycle) <= _MOST_IN_CYCLE else [*cycle[:_MOST_IN_CYCLE], "…"]
        yield Fault(
            ("steps", by_name[cycle[0]].index, "dependsOn"),
            "CYCLE",
            f"steps wait for each other: {' -> '.join([*spelt, cycle[0]])}",
            "remove one of these dependencies",
        )


def _unknown(
    path: Path, upstream: str, node: _Node, by_name: dict[str, _Node], *, guess: bool
) -> Fault:
    base, _, number = upstream.rpartition("-")
    if number.isascii() and number.isdecimal() and base in by_name and by_name[base].expanded:
        message = f"{shown(upstream)} is one task of the matrix step '{base}'"
        return Fault(path, "UNKNOWN_STEP", message, f"depend on '{base}', which means all of them")
    near = None
    if guess:
        near = near_name(upstream[:80], [name for name in by_name if name != node.name])
    others = [name for name in islice(by_name, _MOST_LISTED + 2) if name != node.name]
    if near:
        fix = f"did you mean '{near}'?"
    elif others:
        fix = f"the other steps are {', '.join(map(shown, others[:_MOST_LISTED]))}"
        fix += " …" if len(others) > _MOST_LISTED else ""
    else:
        fix = "there is no other step"
    return Fault(path, "UNKNOWN_STEP", f"unknown step {shown(upstream)}", fix)
