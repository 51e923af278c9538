"""The DAG's shape by step index: who waits for whom, in document order."""

from dataclasses import dataclass

from headbay.domain.dag import DagDef
from headbay.domain.errors import BrokenInvariantError

__all__ = ["Graph"]


@dataclass(slots=True, frozen=True)
class Graph:
    """Upstreams and downstreams of every step; indexes are positions in ``DagDef.steps``.

    Attributes:
        index: Step name -> index.
        upstreams, downstreams: Per step, ascending, each once.
    """

    index: dict[str, int]
    upstreams: list[list[int]]
    downstreams: list[list[int]]

    @classmethod
    def of(cls, dag: DagDef) -> "Graph":
        """Index a compiled DAG.

        Raises:
            BrokenInvariantError: It has a cycle, an unknown step or a name twice: the compiler
                must have refused it.
        """
        index = {step.name: i for i, step in enumerate(dag.steps)}
        if len(index) != len(dag.steps):
            raise BrokenInvariantError(f"compiled DAG {dag.name!r} names a step twice")
        above: list[set[int]] = [set() for _ in dag.steps]
        below: list[set[int]] = [set() for _ in dag.steps]
        for edge in dag.edges:
            if edge.upstream not in index or edge.step not in index:
                raise BrokenInvariantError(f"compiled DAG {dag.name!r} has a loose edge: {edge}")
            above[index[edge.step]].add(index[edge.upstream])
            below[index[edge.upstream]].add(index[edge.step])
        graph = cls(index, [sorted(s) for s in above], [sorted(s) for s in below])
        graph._refuse_cycle(dag.name)
        return graph

    def _refuse_cycle(self, name: str) -> None:
        unmet = [len(above) for above in self.upstreams]
        free = [i for i, count in enumerate(unmet) if not count]
        for i in free:
            for j in self.downstreams[i]:
                unmet[j] -= 1
                if not unmet[j]:
                    free.append(j)
        if len(free) != len(unmet):
            raise BrokenInvariantError(f"compiled DAG {name!r} has a cycle")
