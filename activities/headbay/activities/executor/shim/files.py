"""The shim's records: JSON with a checksum. What is durable is so when the function returns.

Source: measured under power loss, a record survives only if the file and its folder are synced.
"""

import json
import os
import zlib

from .kernel import patiently

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` costs milliseconds at every start
    from typing import Any

__all__ = ["EXIT_ROOM_BYTES", "read", "reserve", "write_all", "write_durably"]

EXIT_ROOM_BYTES = 16384
"""More than any exit record takes."""


def write_all(fd: int, data: bytes) -> None:
    """write(2) until all is written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read(directory: str, name: str) -> "dict[str, Any] | None":
    """A record; None if it is not there, or not whole."""
    try:
        with open(os.path.join(directory, name), "rb") as file:
            outer = json.loads(file.read())
        body: dict[str, Any] = outer["body"]
        whole = zlib.crc32(json.dumps(body, separators=(",", ":")).encode()) == outer["crc"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return body if whole else None


def reserve(directory: str, name: str) -> None:
    """Take the disk space of a record before it is needed: a full disk must not lose it.

    Raises:
        OSError: There is none.
    """
    fd = os.open(
        os.path.join(directory, f"{name}.tmp"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        os.posix_fallocate(fd, 0, EXIT_ROOM_BYTES)
    finally:
        os.close(fd)


def write_durably(directory: str, name: str, record: "dict[str, Any]") -> None:
    """Write once, durably: temporary file, fsync, link (never over an existing one), fsync dir.

    Raises:
        FileExistsError: It was written before.
        OSError: The disk is full or broken.
    """
    body = json.dumps(record, separators=(",", ":")).encode()
    text = b'{"crc":%d,"body":%b}' % (zlib.crc32(body), body)
    path = os.path.join(directory, name)
    temporary = f"{path}.tmp"

    def write() -> None:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, text)
            os.ftruncate(fd, len(text))
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync() -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    patiently(write)
    patiently(lambda: os.link(temporary, path))
    patiently(lambda: os.unlink(temporary))
    patiently(sync)
