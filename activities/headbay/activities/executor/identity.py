"""Whom a payload runs as."""

import grp
import os
import pwd
from typing import Any, ClassVar

from headbay.domain.errors import HeadbayError

__all__ = ["BadUserError", "identity_of"]


class BadUserError(HeadbayError):
    """A payload may not, or cannot, run as that user on this node."""

    code: ClassVar[str] = "BAD_USER"


def identity_of(user: str, *, allow_root: bool) -> dict[str, Any]:
    """Name, ids, groups and home of a user, by name or number.

    Raises:
        BadUserError: There is none, or it is root and the node's operator does not allow that.
    """
    try:
        record = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise BadUserError(
            f"user {user!r} is not known on this node: create it there, or name another"
        ) from error
    if record.pw_uid == 0 and not allow_root:
        raise BadUserError(
            f"user {user!r} is root, and this node runs no step as root; its operator may allow "
            "it with --allow-root-user"
        )
    groups = {record.pw_gid, *os.getgrouplist(record.pw_name, record.pw_gid)}
    if not allow_root and 0 in groups:
        raise BadUserError(f"user {user!r} is in group {grp.getgrgid(0).gr_name!r}")
    return {
        "name": record.pw_name,
        "uid": record.pw_uid,
        "gid": record.pw_gid,
        "groups": sorted(groups),
        "home": record.pw_dir,
        "shell": record.pw_shell,
    }
