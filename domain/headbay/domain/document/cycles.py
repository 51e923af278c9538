"""Cycles of a directed graph, one for each knot, shortest first found.

Source: Tarjan, "Depth-first search and linear graph algorithms" (1972), with an explicit stack.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from headbay.domain.errors import BrokenInvariantError

__all__ = ["find_cycles"]


def find_cycles(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """One shortest cycle of every strongly connected component of at least two nodes.

    Args:
        graph: What each node points to; every target is a key, none points to itself.

    Returns:
        Cycles without their closing repetition, each beginning with its first node in the order
        of ``graph``; in that order too.
    """
    order = {name: place for place, name in enumerate(graph)}
    knots = [sorted(c, key=order.__getitem__) for c in _components(graph) if len(c) > 1]
    knots.sort(key=lambda knot: order[knot[0]])
    return [_shortest(graph, knot) for knot in knots]


def _components(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    open_nodes: set[str] = set()
    found: list[list[str]] = []
    for root in graph:
        if root in number:
            continue
        work = [(root, 0)]
        while work:
            node, place = work.pop()
            if place == 0:
                number[node] = low[node] = len(number)
                path.append(node)
                open_nodes.add(node)
            targets = graph[node]
            while place < len(targets):
                target = targets[place]
                place += 1
                if target not in number:
                    work += [(node, place), (target, 0)]
                    break
                if target in open_nodes:
                    low[node] = min(low[node], number[target])
            else:
                if low[node] == number[node]:
                    cut = path.index(node)
                    found.append(path[cut:])
                    open_nodes.difference_update(path[cut:])
                    del path[cut:]
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return found


def _shortest(graph: Mapping[str, Sequence[str]], knot: Sequence[str]) -> list[str]:
    """The shortest way from the knot's first node back to it."""
    start, inside = knot[0], set(knot)
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in graph[node]:
            if target == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(came_from[cycle[-1]])
                return cycle[::-1]
            if target in inside and target not in came_from:
                came_from[target] = node
                queue.append(target)
    raise BrokenInvariantError(f"no way from {start!r} back to it inside its own knot")
