"""Whose rights count when a payload's files are collected: the payload's, not the collector's.

A node worker that is root could read what the step never could, such as ``/etc/shadow`` from a
step with ``workdir: /etc``. By owner, groups and mode alone: an ACL that allows more is not seen,
and the file is refused.
"""

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Reader"]


@dataclass(frozen=True, slots=True)
class Reader:
    """A user.

    Attributes:
        uid: Its number; 0 may read everything. groups: Numbers of all its groups.
    """

    uid: int
    groups: Collection[int]

    def may_read(self, status: os.stat_result) -> bool:
        """Whether it may read a file, or both list and enter a folder."""
        wanted = 0o5 if stat.S_ISDIR(status.st_mode) else 0o4
        if self.uid == 0:
            return True
        if status.st_uid == self.uid:
            shift = 6
        elif status.st_gid in self.groups:
            shift = 3
        else:
            shift = 0
        return status.st_mode >> shift & wanted == wanted
