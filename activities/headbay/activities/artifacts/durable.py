"""Writes files so that a crash leaves either nothing or all of them.

Write under another name, fsync, give it its name, fsync the folder: after the last step the file
survives a power failure, and nobody ever sees half of it.

Source: Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014).
"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["draft", "ensure_folder", "fsync_folder", "sweep"]


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ensure_folder(folder: Path, top: Path) -> None:
    """Make a folder below ``top``, 0700, and every new name on the way durable."""
    if folder.is_dir():
        return
    if folder != top:
        ensure_folder(folder.parent, top)
        folder.mkdir(mode=0o700, exist_ok=True)
    else:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fsync_folder(folder.parent)


@contextmanager
def draft(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file in ``folder`` to write to; removed at the end unless it was renamed.

    Whoever renames it must have flushed it, and fsynced it if it is to be durable.
    """
    path = folder / f"{os.getpid()}-{uuid.uuid4().hex}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, path
    finally:
        path.unlink(missing_ok=True)


def sweep(folder: Path, older_than_s: float) -> int:
    """Remove what killed writers left; how many files."""
    horizon = time.time() - older_than_s
    removed = 0
    for path in folder.iterdir():
        try:
            if path.stat().st_mtime < horizon:
                path.unlink()
                removed += 1
        except FileNotFoundError:
            continue  # its writer was quicker
    return removed
