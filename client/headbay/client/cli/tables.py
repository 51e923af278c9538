"""Tables and quantities for eyes. Plain alignment: columns are never cut, so pipes get all."""

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headbay.client.cli.console import clean, colour, state_colour, wants_colour

__all__ = ["age", "amounts", "duration", "instant", "pairs", "render", "size"]

_STATE: Final = re.compile(r"[A-Za-z_]+")
GAP: Final = "  "


def render(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, states: Sequence[str] = ("STATUS",)
) -> list[str]:
    """Lines of a table; the columns named in ``states`` are coloured by their first word."""
    cells = [[clean(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [head, *cells]) for i in range(len(head))]
    on = wants_colour(sys.stdout)
    coloured = [name in states for name in head]
    lines = [colour(_line(head, widths), "bold", on=on)]
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        for column, cell in enumerate(row):
            found = _STATE.match(cell) if coloured[column] else None
            if found:
                padded[column] = colour(padded[column], state_colour(found.group()), on=on)
        lines.append(GAP.join(padded).rstrip())
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def pairs(rows: Iterable[tuple[str, str]]) -> list[str]:
    """``name  value`` lines; rows without a value are left out."""
    kept = [(name, value) for name, value in rows if value]
    width = max((len(name) for name, _ in kept), default=0)
    on = wants_colour(sys.stdout)
    lines = []
    for name, value in kept:
        shown = clean(value)
        found = _STATE.match(shown) if name == "status" else None
        if found:
            shown = colour(found.group(), state_colour(found.group()), on=on) + shown[found.end() :]
        lines.append(f"{colour(name.ljust(width), 'dim', on=on)}{GAP}{shown}")
    return lines


def duration(milliseconds: int | None) -> str:
    """A span for eyes: 0.4 s, 12 s, 3m05s, 2h07m, 3d04h; "" for None."""
    if milliseconds is None:
        return ""
    if milliseconds < 10_000:
        return f"{max(0, milliseconds) // 100 / 10:.1f} s"
    seconds = milliseconds // 1_000
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"


def age(at_ms: int | None, now_ms: int | None = None) -> str:
    """How long ago, for eyes; "" if unknown."""
    if not at_ms:
        return ""
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return f"{duration(now - at_ms)} ago"


def instant(at_ms: int | None) -> str:
    """Local time with milliseconds; "" if unknown."""
    if at_ms is None:
        return ""
    return time.strftime("%H:%M:%S", time.localtime(at_ms // 1_000)) + f".{at_ms % 1_000:03}"


def size(number: int | None) -> str:
    """Bytes for eyes: 512 B, 4.0 KiB, 1.5 GiB; "" for None."""
    if number is None:
        return ""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes everything")


def amounts(resources: Mapping[str, int], of: Mapping[str, int] | None = None) -> str:
    """Resources for eyes: ``cpu 1.5, memory 4.0 GiB``, or ``cpu 1.5/8, memory 4.0/16.0 GiB``."""
    shown = []
    for name, amount in sorted((of or resources).items()):
        held = resources.get(name, 0) if of is not None else None
        shown.append(f"{name} {_amount(name, amount, held)}")
    return ", ".join(shown)


def _amount(name: str, amount: int, held: int | None) -> str:
    if name == "cpu":
        total = f"{amount / 1_000:g}"
        return total if held is None else f"{held / 1_000:g}/{total}"
    if name == "memory":
        return size(amount) if held is None else f"{size(held)}/{size(amount)}"
    return str(amount) if held is None else f"{held}/{amount}"
