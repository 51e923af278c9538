"""``-o table|json|jsonl|quiet``: one result, four ways to print it."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headbay.client.cli.console import say

if TYPE_CHECKING:
    from headbay.domain.wire import Wire

__all__ = ["Output", "OutputOption", "emit"]

Output = Literal["table", "json", "jsonl", "quiet"]

OutputOption = Annotated[
    Output,
    Parameter(
        name=["--output", "-o"],
        help="table for eyes; json (one document, with a schema) or jsonl (one row a line) for "
        "programs; quiet for names only.",
    ),
]


def emit(
    document: "Wire",
    output: Output,
    *,
    table: Callable[[], Iterable[str]],
    rows: Sequence["Wire"] | None = None,
    quiet: Iterable[str] = (),
    notes: Iterable[str] = (),
) -> None:
    """Print a result.

    Args:
        document: The whole result, for json.
        output: How.
        table: Lines for eyes.
        rows: What jsonl prints, one a line; None for the document itself.
        quiet: Lines of quiet.
        notes: What a reader must know of the result; json carries them, eyes get them on
            standard error.
    """
    if output == "json":
        _line(document.model_dump_json(indent=2))
    elif output == "jsonl":
        for row in [document] if rows is None else rows:
            _line(row.model_dump_json())
    elif output == "quiet":
        for line in quiet:
            _line(line)
    else:
        for line in table():
            _line(line)
    if output != "json":
        for note in notes:
            say(note, kind="warning")


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")
