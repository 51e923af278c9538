"""Two bridges in a network namespace of this process's own: one to be cut, one for the test."""

import ctypes
import os
import subprocess

__all__ = ["CLUSTER", "CONTROL", "Network"]

CLUSTER = "10.77.0"
CONTROL = "10.78.0"
CLONE_NEWNET = 0x40000000
HOST = 1
"""The host's last number on both."""


class Network:
    """What the host has of it. This thread, and all that it starts, see nothing else from then on.

    Raises:
        AssertionError: The namespace that it got has other interfaces.
    """

    def __init__(self) -> None:
        _leave()
        names = _ip("-brief", "link").split("\n")
        others = [name.split()[0] for name in names if name and not name.startswith("lo ")]
        if others:
            raise AssertionError(f"not a network namespace of its own: it has {others}")
        _ip("link", "set", "lo", "up")
        for bridge, prefix in (("br0", CLUSTER), ("br1", CONTROL)):
            _ip("link", "add", bridge, "type", "bridge")
            _ip("addr", "add", f"{prefix}.{HOST}/24", "dev", bridge)
            _ip("link", "set", bridge, "up")

    def plug(self, number: int) -> tuple[str, str]:
        """The two taps of a machine, made if need be: of the cluster, and of the test."""
        taps = f"tap{number}", f"ctl{number}"
        for tap, bridge in zip(taps, ("br0", "br1"), strict=True):
            if f" {tap}:" not in _ip("link"):
                _ip("tuntap", "add", tap, "mode", "tap")
            _ip("link", "set", tap, "master", bridge, "up")
        return taps

    def cut(self, number: int) -> None:
        """Nothing passes between this machine and the others, in both directions."""
        _ip("link", "set", f"tap{number}", "nomaster")

    def heal(self, number: int) -> None:
        """As before `cut`."""
        _ip("link", "set", f"tap{number}", "master", "br0", "up")


def _leave() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
