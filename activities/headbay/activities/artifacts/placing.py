"""Writes files below a folder that a hostile payload may have written to before.

Every part of a path is made or opened relative to the descriptor of the one above, never through
a symbolic link: nothing is ever written outside the folder.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["place_file"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def place_file(root: Path, path: str, mode: int, write: Callable[[BinaryIO], object]) -> None:
    """Write one file, all or nothing; one that is there already is replaced.

    Args:
        root: Existing folder; not a symbolic link.
        path: Relative, '/' between its parts, without '.' and '..'.
        mode: Its permission bits.
        write: Writes the contents.

    Raises:
        OSError: Also if a part of the path is a symbolic link or no folder.
    """
    *folders, name = path.split("/")
    with _open_folders(root, folders) as folder:
        new = f".headbay-{uuid.uuid4().hex}"
        descriptor = os.open(new, _NEW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
                file.flush()
                os.fchmod(file.fileno(), mode)
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(new, dir_fd=folder)
            raise


@contextmanager
def _open_folders(root: Path, names: list[str]) -> Iterator[int]:
    descriptor = os.open(root, _FOLDER)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=descriptor)
            inner = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
