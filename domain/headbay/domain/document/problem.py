"""What is wrong with a document: where, why, and what to write instead."""

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from headbay.domain.errors import HeadbayError
from headbay.domain.wire import Wire
from headbay.domain.wording import shown

__all__ = [
    "MAX_PROBLEMS",
    "DocumentRefusedError",
    "Fault",
    "MisfitError",
    "Path",
    "Problem",
    "child_text",
    "path_text",
]

Path = tuple[str | int, ...]
"""Where in a document: mapping keys and list indices from the root."""

MAX_PROBLEMS: Final = 100
"""More than this helps nobody; what is left out is counted in a last problem."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")


class Problem(Wire):
    """One thing that is wrong with a document.

    Attributes:
        path: Where, such as ``steps[2].resources.memory``; "" for the document as a whole.
        code: Stable, upper-case: UNKNOWN_FIELD, MISSING, WRONG_TYPE, BAD_VALUE, NOT_YET, …
        message: What is wrong.
        fix: What to write instead; "" where the message says it all.
        line: Line in the source text, from 1; None where there is no text.
    """

    path: str
    code: str
    message: str
    fix: str = ""
    line: int | None = None

    def text(self, source: str = "") -> str:
        """One line for people: ``file.yaml:12: steps[1].dependsOn: what; fix``."""
        place = source if self.line is None else f"{source or 'line'}:{self.line}"
        what = f"{self.message}; {self.fix}" if self.fix else self.message
        return ": ".join(part for part in (place, self.path, what) if part)


class DocumentRefusedError(HeadbayError):
    """A document that must be corrected before anything starts.

    Attributes:
        problems: All of them, in the document's order; at least one.
        source: Name of the file, "" if the document did not come from one.
    """

    code: ClassVar[str] = "DOCUMENT_REFUSED"

    def __init__(self, problems: list[Problem], source: str = "") -> None:
        super().__init__("\n".join(problem.text(source) for problem in problems))
        self.problems = problems
        self.source = source


class MisfitError(ValueError):
    """Raised inside validators for one value; becomes a `Problem` at its path."""

    def __init__(self, message: str, fix: str, code: str = "BAD_VALUE") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.code = code


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem before it is sorted and spelt; see `Problem`."""

    path: Path
    code: str
    message: str
    fix: str = ""


def path_text(path: Path) -> str:
    """A path as people read it: ``steps[1].env['a b']``."""
    text = ""
    for part in path:
        text = child_text(text, part)
    return text


def child_text(parent: str, part: str | int) -> str:
    """The path of one part below ``parent``."""
    if isinstance(part, int):
        return f"{parent}[{part}]"
    if _PLAIN_KEY.fullmatch(part):
        return f"{parent}.{part}" if parent else part
    return f"{parent}[{shown(part)}]"
