"""Grows one value from a parser's events, and remembers where its parts are written.

Works without recursion and stops at the document's bounds, so that neither deep nesting nor
exploding anchors reach anything else.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from headbay.domain.document import MAX_DEPTH, MAX_NODES, Problem, child_text
from headbay.domain.wording import shown

__all__ = ["Builder", "StopReadingError"]

_MOST_DUPLICATES: Final = 100


class StopReadingError(Exception):
    """Nothing after this problem is worth reading."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(slots=True)
class _Frame:
    """A collection under construction."""

    value: dict[str, Any] | list[Any]
    path: str
    anchor: str | None
    nodes_before: int
    key: str | None = None
    first_lines: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Builder:
    """Events in, one value out.

    Attributes:
        root: The finished value.
        lines: Path text -> line, from 1, of the key or list item.
        spelling: Path text -> how a scalar was written where that differs from its value.
        problems: Duplicate keys; reading goes on after them.
    """

    root: Any = None
    lines: dict[str, int] = field(default_factory=dict)
    spelling: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    nodes: int = 0
    _open: list[_Frame] = field(default_factory=list)
    _anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)

    @property
    def wants_key(self) -> bool:
        """Whether the next event is the key of a mapping."""
        return bool(self._open) and self._open[-1].key is None and self._in_mapping

    @property
    def path(self) -> str:
        """Path of the next value, or of the mapping whose next key is awaited."""
        if not self._open:
            return ""
        frame = self._open[-1]
        if isinstance(frame.value, list):
            return child_text(frame.path, len(frame.value))
        return frame.path if frame.key is None else child_text(frame.path, frame.key)

    @property
    def _in_mapping(self) -> bool:
        return isinstance(self._open[-1].value, dict)

    def key(self, text: str, line: int) -> None:
        """The key of the next value."""
        frame = self._open[-1]
        frame.key = text
        first = frame.first_lines.setdefault(text, line)
        if text not in frame.value:
            self.lines[self.path] = line
        elif len(self.problems) < _MOST_DUPLICATES:
            self.problems.append(
                Problem(
                    path=self.path,
                    code="DUPLICATE_KEY",
                    message=f"{shown(text)} is already written on line {first}",
                    fix="remove one of the two",
                    line=line,
                )
            )

    def scalar(
        self, value: object, line: int, *, spelt: str | None = None, anchor: str | None = None
    ) -> None:
        """A finished value without parts."""
        path = self._place(value, line)
        if spelt is not None:
            self.spelling[path] = spelt
        if anchor is not None:
            self._anchors[anchor] = (value, 1)

    def begin(
        self, value: dict[str, Any] | list[Any], line: int, anchor: str | None = None
    ) -> None:
        """The beginning of a collection; ``value`` is still empty."""
        before = self.nodes
        path = self._place(value, line)
        if len(self._open) >= MAX_DEPTH:
            message = f"nested deeper than {MAX_DEPTH} levels"
            self._open.clear()
            self.stop(line, "TOO_LARGE", message, "flatten it")
        if anchor is not None:
            self._anchors.pop(anchor, None)
        self._open.append(_Frame(value, path, anchor, before))

    def end(self) -> None:
        """The end of the innermost collection."""
        frame = self._open.pop()
        if frame.anchor is not None:
            self._anchors[frame.anchor] = (frame.value, self.nodes - frame.nodes_before)

    def alias(self, anchor: str, line: int) -> None:
        """What an anchor stands for, once more; counts as if it were written out."""
        if anchor not in self._anchors:
            self.stop(
                line,
                "BAD_SYNTAX",
                f"the alias *{anchor[:60]} stands for nothing that is finished before it",
                "write the value out",
            )
        value, nodes = self._anchors[anchor]
        self.nodes += nodes - 1
        self._place(value, line)

    def stop(self, line: int, code: str, message: str, fix: str) -> NoReturn:
        """Give up at once.

        Raises:
            StopReadingError: Always.
        """
        raise StopReadingError(
            Problem(path=self.path, code=code, message=message, fix=fix, line=line)
        )

    def _place(self, value: Any, line: int) -> str:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.stop(
                line,
                "TOO_LARGE",
                f"more than {MAX_NODES} values, what aliases stand for counted",
                "split the workload",
            )
        path = self.path
        if not self._open:
            self.root = value
            self.lines[""] = line
            return path
        frame = self._open[-1]
        if isinstance(frame.value, list):
            self.lines[path] = line
            frame.value.append(value)
        elif frame.key is not None:
            frame.value[frame.key] = value
            frame.key = None
        return path
