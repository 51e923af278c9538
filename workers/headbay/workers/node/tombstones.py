"""What a node remembers of attempts that are over: the highest fence of each step.

One line an attempt, appended; not synced, since after a power loss a new epoch refuses whatever was
ordered before. Of the latest steps alone: for others the highest forgotten fence stands, which no
fence of theirs exceeds.
"""

import os
import re
import threading
from pathlib import Path

from headbay.activities.places import private

__all__ = ["REMEMBERED_STEPS", "Tombstones"]

REMEMBERED_STEPS = 100_000
LINE = re.compile(r"([0-9a-f]{12}|-) (\d+)")
FORGOTTEN = "-"


class Tombstones:
    """The file, and what it says; for threads too.

    Args:
        file: One line each: digest of the step (``-``: any that is forgotten) and fence.
        remembered: How many steps are remembered.
    """

    def __init__(self, file: Path, *, remembered: int = REMEMBERED_STEPS) -> None:
        self._file = file
        self._remembered = remembered
        self._fences: dict[str, int] = {}
        self._forgotten = 0
        self._lines = 0
        self._fd: int | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Read the file; a line that a crash tore off is skipped."""
        private(self._file.parent)
        try:
            text = self._file.read_text(errors="replace")
        except FileNotFoundError:
            text = ""
        lines = text.splitlines()
        for line in lines:
            found = LINE.fullmatch(line)
            if found is None:
                continue
            if found[1] == FORGOTTEN:
                self._forgotten = max(self._forgotten, int(found[2]))
            else:
                self.see(found[1], int(found[2]))
        self._lines = len(lines)
        self._append_to_file()
        if not text.endswith("\n"):
            self._put("\n")
        self.compact()

    def highest(self, step: str) -> int:
        """The highest fence that may have been seen of a step; 0 if none was."""
        return self._fences.get(step, self._forgotten)

    def see(self, step: str, fence: int) -> None:
        """A step's attempt is here; not written: its entry tells as much."""
        with self._lock:
            self._fences[step] = max(fence, self._fences.pop(step, 0))
            if len(self._fences) > self._remembered:
                oldest = next(iter(self._fences))
                self._forgotten = max(self._forgotten, self._fences.pop(oldest))

    def write(self, step: str, fence: int) -> None:
        """A step's attempt is over."""
        self.see(step, fence)
        with self._lock:
            self._put(f"{step} {fence}\n")

    def compact(self) -> None:
        """Write the file anew once most of its lines say nothing any more."""
        with self._lock:
            if self._lines <= 2 * self._remembered:
                return
            fences = self._fences.items()
            lines = [f"{FORGOTTEN} {self._forgotten}", *(f"{s} {f}" for s, f in fences)]
            draft = self._file.with_suffix(".new")
            draft.write_text("\n".join(lines) + "\n")
            draft.replace(self._file)
            self._lines = len(lines)
            self._append_to_file()

    def _put(self, line: str) -> None:
        if self._fd is None:
            raise RuntimeError("the tombstones are not open")
        text = line.encode()
        if os.write(self._fd, text) < len(text):
            os.write(self._fd, b"\n")  # A full disk tore it: the next one is to be read.
        self._lines += 1

    def _append_to_file(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._file, flags, 0o600)
