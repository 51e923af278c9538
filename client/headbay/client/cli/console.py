"""Where words go: data to standard output, messages to standard error; colour only for eyes."""

import os
import re
import sys
from typing import Final, TextIO

__all__ = ["clean", "colour", "flush", "say", "state_colour", "wants_colour"]

_CODES: Final = {
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
    "dim": "2",
    "bold": "1",
}

_STATES: Final = {
    "SUCCEEDED": "green",
    "up": "green",
    "ok": "green",
    "FAILED": "red",
    "failed": "red",
    "lost": "red",
    "UNRESOLVED": "red",
    "CANCELLED": "yellow",
    "SKIPPED": "dim",
    "PENDING": "dim",
    "skipped": "dim",
    "QUEUED": "yellow",
    "PARKED": "yellow",
    "WAITING_APPROVAL": "yellow",
    "warning": "yellow",
    "cordoned": "yellow",
    "RUNNING": "cyan",
}

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose reader has not declined colour.

    Source: https://no-color.org; a set and non-empty NO_COLOR declines.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def colour(text: str, name: str, *, on: bool) -> str:
    """The text in a colour, or as it is."""
    return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if on and name else text


def state_colour(state: str) -> str:
    """The colour's name for a state, "" for none."""
    return _STATES.get(state, "")


def clean(text: str) -> str:
    """Text without control characters: names and messages must not drive a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def say(text: str, *, kind: str = "") -> None:
    """A message for people, on standard error.

    Args:
        text: One or more lines.
        kind: "error", "warning" or "" (plain).
    """
    on = wants_colour(sys.stderr)
    prefix = "headbay: "
    if kind:
        prefix += colour(kind, "red" if kind == "error" else "yellow", on=on) + ": "
    print(prefix + clean(text), file=sys.stderr, flush=True)


def flush() -> None:
    """Hand over what was written; a reader that has gone is noticed here."""
    sys.stdout.flush()
    sys.stderr.flush()
