"""From the start of the shim to its end: wait for *go*, supervise, leave."""

import json
import os
import signal
import sys

from .files import read, reserve
from .kernel import PR_SET_CHILD_SUBREAPER, boottime_ns, prctl, protect_from_oom
from .ladder import Ladder
from .payload import EXIT_NEVER
from .supervision import Supervision

__all__ = ["EXIT_FORBIDDEN", "EXIT_NEVER", "EXIT_NO_ORDER", "EXIT_WRONG_NONCE", "main"]

EXIT_WRONG_NONCE = 76
EXIT_FORBIDDEN = 77
"""Told to go without a lease that is still good, or after it was stopped."""
EXIT_NO_ORDER = 78
NONCE_BYTES = 32
CHUNK = 65536


def main(directory: str, gate: int) -> int:
    """Supervise one payload; the exit status. Any but 0 means that it was never executed.

    Raises:
        OSError: A record could not be written. Nothing of the payload is left running then.
    """
    os.set_inheritable(gate, False)
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGPIPE,
        signal.SIGUSR1,  # A poke before there is anything to look at.
    ):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    oom = protect_from_oom()
    order = read(directory, "order.json")
    if order is None:
        sys.stderr.write("the order to launch is missing or damaged\n")
        return EXIT_NO_ORDER
    launch = order["launch"]
    told = b""
    while part := os.read(gate, CHUNK):
        told += part
    os.close(gate)
    if not told:
        return EXIT_NEVER
    if told[:NONCE_BYTES] != bytes.fromhex(launch["nonce"]):
        return EXIT_WRONG_NONCE
    secrets = json.loads(told[NONCE_BYTES:])
    del told
    ladder = Ladder(directory, launch)
    if ladder.has_begun() or ladder.forbids(boottime_ns()):
        return EXIT_FORBIDDEN
    reserve(directory, "exit.json")
    supervision = Supervision(directory, launch, ladder)
    begun = supervision.begin(secrets, oom)
    del secrets
    try:
        if begun:
            supervision.run()
    except BaseException:
        supervision.abandon()
        raise
    supervision.finish()
    return 0
