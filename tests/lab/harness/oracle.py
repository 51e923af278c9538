"""Whether any step ever ran twice at once: traces of payloads, merged by the host's time."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from .machine import Machine

__all__ = ["RECORDS", "Trace", "check", "command", "traces"]

RECORDS = "/records"
DOUBT_NS = 20_000_000
"""Clocks of machines are read to within this."""


@dataclass(frozen=True, slots=True, order=True)
class Trace:
    """One payload's life; instants in nanoseconds of the host's clock.

    Attributes:
        start: Its first line. last: Its last one. ended: Whether that says that it was done.
    """

    step: str
    start: int
    last: int
    ended: bool
    attempt: int
    fence: int
    node: str


def command(step: str, seconds: float) -> list[str]:
    """The argument list of a payload that leaves a trace."""
    return ["/usr/bin/python3", "-I", "-S", "/lab/ticker.py", step, str(seconds)]


def traces(machines: list[Machine]) -> list[Trace]:
    """Every payload's, as far as its node's kernel wrote it to the host.

    Args:
        machines: All that ran payloads; those that answer are asked for their clocks.
    """
    found = []
    for machine in machines:
        offset = machine.clock_offset_ns()
        for file in machine.records.iterdir():
            # A machine that lost its power may leave half a line.
            lines = [
                (kind, int(at))
                for kind, _, at in (
                    line.partition(" ") for line in file.read_text().split("\n")[:-1]
                )
            ]
            if not lines:
                continue
            step, attempt, fence, _ = file.name.rsplit(".", 3)
            found.append(
                Trace(
                    step,
                    lines[0][1] - offset,
                    lines[-1][1] - offset,
                    lines[-1][0] == "end",
                    int(attempt[1:]),
                    int(fence[1:]),
                    machine.name,
                )
            )
    return sorted(found)


def check(found: list[Trace]) -> dict[str, list[Trace]]:
    """The traces by step; no two of one step overlap, and fences rise with time.

    Raises:
        AssertionError: They do, with both.
    """
    steps = defaultdict(list)
    for trace in sorted(found):
        steps[trace.step].append(trace)
    for former, later in (pair for runs in steps.values() for pair in pairwise(runs)):
        assert later.start > former.last - DOUBT_NS, f"ran twice at once:\n{former}\n{later}"
        assert later.fence > former.fence, f"a lower fence ran later:\n{former}\n{later}"
    return dict(steps)
