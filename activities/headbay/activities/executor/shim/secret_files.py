"""Hands secrets to a payload as files that are in memory alone, and gone when it is.

Two ways. In a mount namespace of the payload's own: a small file system, read-only once it is
filled. Where there can be none: a sealed memory file for each, which the main process holds open.
Both count as the payload's memory. Never here: a value on a disk.

Source: mount_namespaces(7), tmpfs(5), memfd_create(2), proc_pid_fd(5); docs/adr/013.
"""

import errno
import fcntl
import os

from .kernel import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REMOUNT, mount

__all__ = ["FIRST_FD", "hold", "mount_files"]

FIRST_FD = 64
"""Above what scripts number themselves."""
PAGE = 4096
SPARE = 4
FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC


def mount_files(folder: str, values: "dict[str, bytes]", uid: int, gid: int) -> "dict[str, str]":
    """Mount a file system with these files; needs root, and a namespace that is the payload's.

    Args:
        folder: Where; made if it is not there, and always empty for everybody else.
        values: Content by name.
        uid: Whose they are, and nobody else's.
        gid: Their group.

    Returns:
        Paths by name.

    Raises:
        OSError: The kernel refused.
        ValueError: A name is not fit for a file's.
    """
    for name in values:
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot name a file")
    if not os.path.isdir(folder):
        os.makedirs(folder, 0o700, exist_ok=True)
    pages = sum(-(-len(value) // PAGE) for value in values.values()) + SPARE
    options = f"size={pages * PAGE},nr_inodes={len(values) + SPARE},mode=0700,uid={uid},gid={gid}"
    try:
        mount("tmpfs", folder, "tmpfs", FLAGS, f"{options},noswap")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        mount("tmpfs", folder, "tmpfs", FLAGS, options)  # Before 6.4 there is no `noswap`.
    paths = {}
    for name, value in values.items():
        paths[name] = os.path.join(folder, name)
        fd = os.open(paths[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400)
        _write(fd, value)
        os.fchown(fd, uid, gid)
        os.close(fd)
    mount(None, folder, None, MS_REMOUNT | MS_BIND | MS_RDONLY | FLAGS, None)
    return paths


def hold(values: "dict[str, bytes]") -> "dict[str, str]":
    """Hold memory files open, this process's user's, over its exec.

    Named by this process and not by ``self``: a child that has closed what it inherited, as many
    do, finds them all the same; by ``self`` it could even find another file under that number.

    Returns:
        Paths by name.

    Raises:
        OSError: The kernel refused.
    """
    paths = {}
    for name, value in values.items():
        made = os.memfd_create("headbay-secret", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _write(made, value)
        os.fchmod(made, 0o400)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
        fd = fcntl.fcntl(made, fcntl.F_DUPFD, FIRST_FD)
        os.close(made)
        paths[name] = f"/proc/{os.getpid()}/fd/{fd}"
    return paths


def _write(fd: int, value: bytes) -> None:
    rest = memoryview(value)
    while rest:
        rest = rest[os.write(fd, rest) :]
