"""Problems of command lines and documents, and how they are shown."""

from collections.abc import Iterable
from typing import Any, ClassVar

from headbay.client.cli.console import clean
from headbay.domain.errors import HeadbayError

__all__ = [
    "BadCommandLineError",
    "ClusterNotStartedError",
    "NothingSubmittedError",
    "tell_problems",
]


class BadCommandLineError(HeadbayError):
    """Options that do not fit together."""

    code: ClassVar[str] = "BAD_COMMAND_LINE"


class NothingSubmittedError(HeadbayError):
    """``last`` stands for nothing yet."""

    code: ClassVar[str] = "NOT_FOUND"

    def __init__(self) -> None:
        super().__init__(
            "`last` is the workload that you submitted last, and there is none yet; "
            "`headbay list` shows all"
        )


class ClusterNotStartedError(HeadbayError):
    """The embedded cluster did not start.

    Attributes:
        exit_code: Of `headbay dev start`.
    """

    code: ClassVar[str] = "CLUSTER_NOT_STARTED"

    def __init__(self, exit_code: int) -> None:
        super().__init__(
            f"the embedded cluster did not start (`headbay dev start` ended with {exit_code}, "
            "see above); to use a server of your own, set TEMPORAL_ADDRESS"
        )
        self.exit_code = exit_code


def tell_problems(problems: Iterable[Any], file: str) -> None:
    """``file:line: path: message`` for each problem of a refused document."""
    import sys

    for problem in problems:
        sys.stderr.write(clean(problem_line(problem, file)) + "\n")


def problem_line(problem: Any, file: str) -> str:
    """One problem: where, what, and the fix."""
    line = getattr(problem, "line", None)
    path = getattr(problem, "path", "")
    fix = getattr(problem, "fix", "")
    where = f"{file or 'document'}:{line}" if line else (file or "document")
    what = f"{problem.message}; {fix}" if fix else problem.message
    return ": ".join(part for part in (where, path, what) if part)
