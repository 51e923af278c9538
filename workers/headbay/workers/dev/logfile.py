"""A log file that its writer keeps open while it is rotated.

Children write straight into the file (append mode), not through a pipe of the supervisor: so
nothing is lost, and nobody gets EPIPE, when the supervisor is killed.
"""

import os
import shutil
from pathlib import Path

__all__ = ["LogFile"]

ROTATE_BYTES = 8 * 1024 * 1024
KEPT = 2
"""Older files beside the current one: NAME.log.1 is the newest of them."""

READ_BYTES = 256 * 1024


class LogFile:
    """One child's log.

    Args:
        path: The current file; its folder exists.
        rotate_bytes: Size above which it is rotated.
    """

    def __init__(self, path: Path, *, rotate_bytes: int = ROTATE_BYTES) -> None:
        self.path = path
        self._rotate_bytes = rotate_bytes
        self._offset = path.stat().st_size if path.exists() else 0
        self._begin = self._offset

    def open(self) -> int:
        """A descriptor for a child to write to; the caller closes it."""
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def new_lines(self) -> list[str]:
        """Complete lines since the last call; at most 256 KiB at a time."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) == READ_BYTES:
            end = len(data)
        self._offset += end
        return data[:end].decode(errors="replace").splitlines()

    def tail(self, lines: int) -> list[str]:
        """The last lines of this start of the cluster."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._begin, size - READ_BYTES))
                return file.read().decode(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []

    def rotate(self) -> bool:
        """Copy and truncate if the file has grown too large; whether it was.

        Lines written between the copy and the truncation are lost: the writer keeps its
        descriptor, so the file cannot be exchanged under it.
        """
        if not self.path.exists() or self.path.stat().st_size <= self._rotate_bytes:
            return False
        for number in range(KEPT, 1, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        shutil.copyfile(self.path, self._numbered(1))
        os.truncate(self.path, 0)
        self._offset = self._begin = 0
        return True

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
