"""Runs a command that is told when its parent dies. Stdlib only: `python -I -S leash.py PPID CMD…`.

A supervisor that is killed cannot end its children, so the kernel does it: the parent-death signal
survives execve. Set here, in a process of its own, because a fork hook is unsafe in a supervisor
with threads.

Source: PR_SET_PDEATHSIG(2const): cleared on fork, kept by execve of a program without set-uid; a
parent that died before the call is seen by getppid alone.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the parent-death signal, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("leash: the parent is gone already")
    try:
        os.execvp(command[0], command)  # noqa: S606 - a shell would be one more process to tell
    except OSError as error:
        sys.exit(f"leash: cannot execute {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
