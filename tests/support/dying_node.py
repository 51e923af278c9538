"""`python dying_node.py POINT OPTIONS…`: a node worker that SIGKILLs itself at a point.

The points are the seams of the protocol: before and after each thing that must not be lost.
"""

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from headbay.activities.executor.process import ProcessExecutor
from headbay.workers.node import agent
from headbay.workers.node.__main__ import main
from headbay.workers.node.folders import Folders
from headbay.workers.node.spool import Entry, Spool
from headbay.workers.node.supervision import Attempt
from headbay.workers.node.wire import Wire


def of_an_attempt(*arguments: Any) -> bool:
    """Whether a heartbeat is an attempt's, not the node's own."""
    return isinstance(arguments[2], dict) and "phase" in arguments[2]


def of_an_entry(*arguments: Any) -> bool:
    """Whether a folder is one of the spool."""
    return arguments[1].parent.name == "spool"


def always(*_: Any) -> bool:
    return True


SEAMS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "the presence is spooled": (agent, "replace", always),
    "the order is spooled": (Attempt, "spool", always),
    "a heartbeat": (Wire, "heartbeat", of_an_attempt),
    "the lease is written": (Entry, "set_lease", always),
    "the shim is spawned": (ProcessExecutor, "spawn", always),
    "the shim is remembered": (Entry, "set_shim", always),
    "go": (ProcessExecutor, "go", always),
    "the completion": (Wire, "complete", always),
    "the burial": (Spool, "bury", always),
    "the entry vanishes": (Folders, "_set_aside", of_an_entry),
}
POINTS = [f"{when} {seam}" for seam in SEAMS for when in ("before", "after")]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def plant(point: str) -> None:
    """Let this process die at a point, the first time that it comes there."""
    when, _, seam = point.partition(" ")
    owner, name, matters = SEAMS[seam]
    real = getattr(owner, name)
    if inspect.iscoroutinefunction(real):

        @functools.wraps(real)
        async def planted(*arguments: Any, **named: Any) -> Any:
            if when == "before" and matters(*arguments):
                die()
            answer = await real(*arguments, **named)
            if when == "after" and matters(*arguments):
                die()
            return answer

    else:

        @functools.wraps(real)
        def planted(*arguments: Any, **named: Any) -> Any:
            if when == "before" and matters(*arguments):
                die()
            answer = real(*arguments, **named)
            if when == "after" and matters(*arguments):
                die()
            return answer

    setattr(owner, name, planted)


if __name__ == "__main__":
    plant(sys.argv[1])
    main(sys.argv[2:])
