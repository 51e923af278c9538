"""Head and tail of what the payload prints; counts exactly what falls between.

By bytes, not lines. Memory stays flat: the tail is a ring in a file of its own. Nothing here ever
raises for the disk's sake: a log that cannot be written is lost and counted, the payload goes on.
"""

import os

from .files import write_all

__all__ = ["Log"]

CHUNK = 65536
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Log:
    """One payload's combined output.

    Attributes:
        seen: Bytes that the payload wrote. kept: Bytes of them that are in the file.
        failed: errno of the first write that failed, None if none did.
    """

    def __init__(self, path: str, cap: int) -> None:
        self.seen = 0
        self.kept = 0
        self.failed: int | None = None
        self._path = path
        self._head_left = cap // 2
        self._ring_size = cap - cap // 2
        self._ring_seen = 0
        self._ring: int | None = None
        self._fd = os.open(path, _FLAGS, 0o600)

    def write(self, data: bytes) -> None:
        """Take what the payload printed."""
        self.seen += len(data)
        if self.failed is not None:
            return
        try:
            if self._head_left:
                part = data[: self._head_left]
                data = data[len(part) :]
                self._head_left -= len(part)
                self._append(part)
            if data:
                self._write_ring(data)
        except OSError as error:
            self.failed = error.errno

    def _append(self, part: bytes) -> None:
        view = memoryview(part)
        while view:
            written = os.write(self._fd, view)
            self.kept += written
            view = view[written:]

    def _write_ring(self, data: bytes) -> None:
        if self._ring is None:
            self._ring = os.open(f"{self._path}.ring", _FLAGS, 0o600)
        skipped = max(0, len(data) - self._ring_size)
        position = (self._ring_seen + skipped) % self._ring_size
        rest = data[skipped:]
        first = rest[: self._ring_size - position]
        self._put(first, position)
        self._put(rest[len(first) :], 0)
        self._ring_seen += len(data)

    def _put(self, part: bytes, position: int) -> None:
        if self._ring is not None and part:
            view = memoryview(part)
            while view:
                written = os.pwrite(self._ring, view, position)
                position += written
                view = view[written:]

    def close(self) -> None:
        """Join head and tail, durably if the disk lets it."""
        try:
            if self._ring is not None:
                self._join(self._ring)
            os.fdatasync(self._fd)
        except OSError as error:
            self.failed = self.failed or error.errno
        finally:
            os.close(self._fd)

    def _join(self, ring: int) -> None:
        dropped = max(0, self._ring_seen - self._ring_size)
        end = self._ring_seen % self._ring_size
        spans = [(end, self._ring_size), (0, end)] if dropped else [(0, self._ring_seen)]
        try:
            if dropped:
                write_all(self._fd, f"\n[headbay: {dropped} bytes dropped here]\n".encode())
            for start, stop in spans:
                at = start
                while at < stop:
                    part = os.pread(ring, min(CHUNK, stop - at), at)
                    self._append(part)
                    at += len(part)
        finally:
            os.close(ring)
            os.unlink(f"{self._path}.ring")
