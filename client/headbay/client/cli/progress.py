"""Live progress, on standard error: a table that keeps itself up to date, or plain lines."""

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from headbay.client.cli.console import clean, colour, say, state_colour, wants_colour
from headbay.client.cli.tables import duration
from headbay.client.cli.views import ended_with, step_state, took

if TYPE_CHECKING:
    from headbay.client.models import Reading
    from headbay.domain.status import StepStatus

__all__ = ["Lines", "LivePaper", "Progress", "Silent"]

ORDER: Final = ("UNRESOLVED", "FAILED", "RUNNING", "WAITING_APPROVAL", "QUEUED", "PARKED")
"""What one looks for comes first when not all fits; then the order of the document."""


class Progress(Protocol):
    """Shows readings as they come."""

    def update(self, reading: "Reading") -> None:
        """A new reading."""

    def tell(self, text: str) -> None:
        """Something to know besides."""

    def close(self) -> None:
        """No more will come."""


class Silent:
    """Shows only what one must know; for ``-o quiet`` and for commands with their own output."""

    def __init__(self, *, mute: bool = False) -> None:
        self._mute = mute

    def update(self, reading: "Reading") -> None:
        """Nothing."""

    def tell(self, text: str) -> None:
        """A line, unless muted."""
        if not self._mute:
            say(text)

    def close(self) -> None:
        """Nothing."""


class Lines:
    """One line for every change of a step; for files, pipes and dumb terminals."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int]] = {}
        self._width = 0

    def update(self, reading: "Reading") -> None:
        """Print what has changed."""
        on = wants_colour(sys.stderr)
        self._width = max((len(s.name) for s in reading.workload.steps), default=0)
        for step in reading.workload.steps:
            state = step.state.value
            now = (state, step.attempts_made)
            if self._seen.get(step.name, ("PENDING", 0)) == now:
                continue
            self._seen[step.name] = now
            at = time.strftime("%H:%M:%S", time.localtime(reading.read_ms // 1_000))
            shown = colour(step_state(step), state_colour(state), on=on)
            words = clean(_words(step, reading.read_ms, ticking=False))
            line = f"{at} {step.name.ljust(self._width)} {shown} {words}".rstrip()
            print(line, file=sys.stderr, flush=True)

    def tell(self, text: str) -> None:
        """A line."""
        say(text)

    def close(self) -> None:
        """Nothing is left to do."""


class LivePaper:
    """A table of steps that is drawn anew several times a second; for terminals."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._reading: Reading | None = None
        self._final = False
        self._live = Live(console=self._console, refresh_per_second=8, get_renderable=self._render)
        self._live.start()

    def update(self, reading: "Reading") -> None:
        """Show it from the next refresh on."""
        self._reading = reading

    def tell(self, text: str) -> None:
        """A line above the table."""
        from rich.text import Text

        self._console.print(Text(f"headbay: {clean(text)}"))

    def close(self) -> None:
        """Leave the last table on the screen, with every step that fits."""
        self._final = True
        self._live.refresh()
        self._live.stop()

    def _render(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        if self._reading is None:
            return Text("submitted", style="dim")
        status, now_ms = self._reading.workload, time.time_ns() // 1_000_000
        room = max(4, self._console.height - 4)
        shown, hidden = fit(status.steps, room)
        table = Table.grid(padding=(0, 2))
        for step in shown:
            state = step.state.value
            style = state_colour(state) if wants_colour(sys.stderr) else ""
            table.add_row(
                Text(step.name),
                Text(step_state(step), style=style),
                Text(clean(_words(step, now_ms, ticking=True)), overflow="ellipsis", no_wrap=True),
            )
        if hidden:
            counted = ", ".join(f"{number} {state}" for state, number in hidden.items())
            table.add_row(Text("…"), Text(counted, style="dim"), Text(""))
        return table


def fit(steps: "list[StepStatus]", room: int) -> "tuple[list[StepStatus], dict[str, int]]":
    """The steps to show, in the document's order, and how many of which state are left out."""
    if len(steps) <= room:
        return steps, {}
    rank = {state: number for number, state in enumerate(ORDER)}
    by_need = sorted(
        range(len(steps)), key=lambda i: (rank.get(steps[i].state.value, len(rank)), i)
    )
    kept = sorted(by_need[: room - 1])
    left = Counter(steps[i].state.value for i in by_need[room - 1 :])
    return [steps[i] for i in kept], dict(left)


def _words(step: "StepStatus", now_ms: int, *, ticking: bool) -> str:
    """Where and how long, or why not; ``ticking``: also how long so far."""
    last = step.attempts[-1] if step.attempts else None
    if last is None:
        return step.message
    from headbay.domain.status import is_finished

    ran = took(last, now_ms)
    parts = []
    if step.state.value in ("RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "UNRESOLVED"):
        parts.append(f"on {last.node}" if last.node else "")
        parts.append(duration(ran) if ticking or is_finished(step) else "")
    if step.attempts_made > 1:
        parts.append(f"attempt {step.attempts_made}")
    if ticking and step.state.value == "QUEUED" and last.queued_ms is not None:
        parts.append(f"for {duration(now_ms - last.queued_ms)}")
    if last.outcome is not None and last.outcome.value != "SUCCEEDED":
        parts.append(last.message or ended_with(last))
    return ", ".join(part for part in parts if part)
