"""Records of the spool: JSON with a checksum, new, replaced whole, or written over in place.

Source: measured under power loss, a record survives only if the file and its folder are synced.
"""

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any, ClassVar

from headbay.domain.errors import HeadbayError

__all__ = [
    "CorruptRecordError",
    "overwrite",
    "read_record",
    "replace",
    "sync_folder",
    "write_new",
]


OVERWRITTEN_BYTES = 192
"""Size of a record that is written over: less than a block, so that it stays where it is."""

RECORD = re.compile(rb'\{"crc":(\d+),"body":(.*)\} *', re.DOTALL)


class CorruptRecordError(HeadbayError):
    """A record cannot be read: its entry is quarantined alone."""

    code: ClassVar[str] = "CORRUPT_RECORD"


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _encode(record: Any) -> bytes:
    body = json.dumps(record, separators=(",", ":")).encode()
    return b'{"crc":%d,"body":%b}' % (zlib.crc32(body), body)


def write_new(path: Path | str, record: Any) -> int:
    """Write a record where nobody reads yet: no temporary file is needed.

    Returns:
        An open descriptor, for the caller to sync, together with the folder, and to close.
    """
    text = _encode(record)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.close(fd)
        raise
    return fd


def replace(path: Path, record: Any, *, durable: bool) -> None:
    """Replace a record whole; a reader sees the old one or the new one."""
    temporary = path.with_name(f"{path.name}.tmp")
    fd = write_new(temporary, record)
    try:
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    if durable:
        sync_folder(path.parent)


def overwrite(path: Path | str, record: Any) -> None:
    """Write a short record over the former one, in place: needs no room on a full disk.

    A reader may see a mixture, which the checksum shows; it must keep to what it read before.
    """
    text = _encode(record)
    if len(text) > OVERWRITTEN_BYTES:
        raise ValueError(f"{len(text)} bytes do not fit into {OVERWRITTEN_BYTES}")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, text.ljust(OVERWRITTEN_BYTES), 0)
    finally:
        os.close(fd)


def _read(path: Path | str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def read_record(path: Path | str) -> Any:
    """The record's content.

    Raises:
        FileNotFoundError: There is none.
        CorruptRecordError: It is torn or altered.
    """
    found = RECORD.fullmatch(_read(path))
    if found is None:
        raise CorruptRecordError(f"{path}: it is no record, or a torn one")
    crc, body = found.groups()
    if zlib.crc32(body) != int(crc):
        raise CorruptRecordError(f"{path}: checksum does not match")
    try:
        return json.loads(body)
    except ValueError as error:
        raise CorruptRecordError(f"{path}: {error}") from error
