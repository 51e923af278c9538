"""Prints logs: raw for one step, with names for several."""

import sys
from typing import TYPE_CHECKING, Literal

from headbay.client.cli.console import colour, say, wants_colour
from headbay.client.cli.exits import OK
from headbay.client.cli.session import resolve_id, with_client
from headbay.client.models import LogLine

if TYPE_CHECKING:
    from headbay.client.client import HeadbayClient
    from headbay.client.logs import LogPiece
    from headbay.domain.status import StepStatus

__all__ = ["Prefixer", "print_logs"]


def print_logs(
    workload: str,
    step: str | None,
    *,
    follow: bool,
    attempt: int | None,
    output: Literal["text", "jsonl"],
) -> int:
    """Print what is there; with ``follow`` until the workload has ended."""
    chosen = resolve_id(workload)

    async def work(client: "HeadbayClient") -> int:
        prefixer = Prefixer()
        steps = (await client.status(chosen)).workload.steps
        several = len(steps) > 1 and step is None
        if attempt is None and not follow:
            _mention_earlier(steps, step)
        seen = 0
        async for piece in client.logs(chosen, step, follow=follow, attempt=attempt):
            seen += 1
            if piece.note:
                say(piece.note, kind="warning")
            if output == "jsonl":
                _print_json(piece)
            elif several:
                sys.stdout.write(prefixer.lines(piece))
            else:
                sys.stdout.buffer.write(piece.data)
            sys.stdout.flush()
        sys.stdout.write(prefixer.rest())
        if not seen:
            say("nothing was printed (yet)")
        return OK

    return with_client(work)


def _mention_earlier(steps: "list[StepStatus]", step: str | None) -> None:
    """Whoever reads the last attempt of one step may have come for another."""
    for known in steps:
        if known.name == step and known.attempts_made > 1:
            say(
                f"this is attempt {known.attempts_made} of {known.name}; "
                "`--attempt N` shows an earlier one"
            )


def _print_json(piece: "LogPiece") -> None:
    if piece.data:
        text = piece.data.decode(errors="replace")
        line = LogLine(step=piece.step, attempt=piece.attempt, text=text)
        sys.stdout.write(line.model_dump_json() + "\n")


class Prefixer:
    """Whole lines with their step's name in front; halves wait for their other half."""

    def __init__(self) -> None:
        self._halves: dict[tuple[str, int], bytes] = {}

    def lines(self, piece: "LogPiece") -> str:
        """The lines that are complete now."""
        key = (piece.step, piece.attempt)
        *whole, half = (self._halves.pop(key, b"") + piece.data).split(b"\n")
        if half:
            self._halves[key] = half
        return "".join(self._named(key, line) for line in whole)

    def rest(self) -> str:
        """What never got its newline."""
        found = "".join(self._named(key, half) for key, half in self._halves.items())
        self._halves.clear()
        return found

    def _named(self, key: tuple[str, int], line: bytes) -> str:
        step, attempt = key
        name = step if attempt == 1 else f"{step}#{attempt}"
        on = wants_colour(sys.stdout)
        return f"{colour(name, 'cyan', on=on)} | {line.decode(errors='replace')}\n"
