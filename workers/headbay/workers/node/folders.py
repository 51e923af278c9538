"""Empty folders that are used again: on ext4, making one costs ten times what renaming one does."""

import errno
import os
import shutil
from collections import deque
from pathlib import Path

__all__ = ["FREE_PREFIX", "Folders"]

FREE_PREFIX = "free."
KEPT = 256
PRIVATE = 0o40700
"""Type and mode of a private folder."""
SYSTEM_LABELS = {"security.selinux", "security.SMACK64"}


class Folders:
    """Private folders below one parent; given back by one thread alone.

    Args:
        parent: Where they are; one worker's alone.
        leave: Name of a file that may stay in a discarded folder, and be there in one taken.
    """

    def __init__(self, parent: Path, *, leave: str = "") -> None:
        self._parent = parent
        self._leave = leave
        self._next_free = f"{parent}/{FREE_PREFIX}"
        self._free: deque[str] = deque()
        self._numbers = 0

    def open(self) -> None:
        """Take over the free ones of before; what is in them was given up."""
        for path in self._parent.glob(f"{FREE_PREFIX}*"):
            shutil.rmtree(path)

    def take(self, path: Path) -> None:
        """Make a private folder, empty but for the file to leave.

        Raises:
            OSError: There is something in its place that is not an empty folder.
        """
        try:
            os.rename(self._free.pop(), path)
        except IndexError:
            path.mkdir(mode=0o700)

    def give(self, path: Path) -> bool:
        """Take back an empty folder, which vanishes from its place at once.

        Returns:
            False if it is not as it was made (contents, owner, mode, attributes): it stays.
        """
        status = os.lstat(path)
        if status.st_mode != PRIVATE or status.st_uid != os.geteuid() or _marked(path):
            return False
        with os.scandir(path) as entries:
            if next(entries, None) is not None:
                return False
        self._keep(self._set_aside(path))
        return True

    def discard(self, path: Path) -> None:
        """Take back a folder with all that is in it; it vanishes from its place at once, whole."""
        free = self._set_aside(path)
        with os.scandir(free) as entries:
            for entry in entries:
                if entry.name == self._leave:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
        self._keep(free)

    def _set_aside(self, path: Path) -> str:
        self._numbers += 1
        free = f"{self._next_free}{self._numbers}"
        os.rename(path, free)
        return free

    def _keep(self, free: str) -> None:
        if len(self._free) < KEPT:
            self._free.append(free)
        else:
            os.rmdir(free)


def _marked(path: Path) -> bool:
    """Whether somebody gave it attributes, such as an ACL. The system itself labels all folders."""
    try:
        return not SYSTEM_LABELS.issuperset(os.listxattr(path))
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return False  # No attributes on this file system.
        raise
