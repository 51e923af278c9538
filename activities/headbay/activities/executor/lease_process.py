"""Main process of a lease unit: feeds systemd's watchdog while the lease in a file is good.

It leaves at the deadline; every scope that is bound to its unit is stopped by systemd then, with
nobody of Headbay alive. If it is stopped or stuck itself, the watchdog ends the unit.
Standard library only; `python -I -S lease_process.py FILE`.
"""

import json
import os
import socket
import sys
import time
import zlib

LOOK_S = 0.5


def deadline_ns(path: str) -> int:
    """The deadline by CLOCK_BOOTTIME; 0 if the record is missing or torn."""
    try:
        with open(path, "rb") as file:
            outer = json.loads(file.read())
        body = outer["body"]
        if zlib.crc32(json.dumps(body, separators=(",", ":")).encode()) != outer["crc"]:
            return 0
        return int(body["deadline_ns"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def main(path: str) -> int:
    """Serve until the lease has run out."""
    address = os.environ.pop("NOTIFY_SOCKET")
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    notify.connect("\0" + address[1:] if address.startswith("@") else address)
    word = b"READY=1\nWATCHDOG=1"
    latest = 0
    while True:
        latest = max(latest, deadline_ns(path))  # A torn one renews nothing and ends nothing.
        left = latest - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if left <= 0:
            return 0
        notify.send(word)
        word = b"WATCHDOG=1"
        time.sleep(min(LOOK_S, left / 1e9 + 0.001))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
