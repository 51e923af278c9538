"""Makes the clock, randomness, files, the environment and processes raise for the domain.

Only calls that come from code of `headbay.domain` raise, at whatever depth: pytest and
Hypothesis go on as usual beside it.
"""

import builtins
import io
import os
import random
import secrets
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, ModuleType
from typing import Any
from unittest import mock

DOMAIN = "headbay.domain"

FORBIDDEN: list[tuple[ModuleType | type, tuple[str, ...]]] = [
    (
        time,
        (
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "process_time",
            "clock_gettime",
            "localtime",
            "gmtime",
            "sleep",
        ),
    ),
    (
        random,
        ("random", "randint", "randrange", "getrandbits", "choice", "shuffle", "sample", "uniform"),
    ),
    (secrets, ("token_bytes", "token_hex", "token_urlsafe", "randbits", "choice")),
    (uuid, ("uuid1", "uuid4")),
    (builtins, ("open", "input")),
    (io, ("open",)),
    (os, ("urandom", "getenv", "open", "stat", "listdir", "scandir", "getpid", "system")),
    (type(os.environ), ("__getitem__", "__setitem__", "__iter__")),
    (subprocess.Popen, ("__init__",)),
    (socket.socket, ("__init__",)),
]

BESIDE = ("importlib", "_frozen_importlib", "hypothesis", "_pytest", "pytest_timeout")
"""What may run on top of domain code without being its deed: imports, tracers, alarms."""


class ImpureError(BaseException):
    """Domain code reached for the world. No ``except Exception`` hides it."""


@contextmanager
def world_is_closed() -> Iterator[None]:
    """Within it, domain code that reaches for the world raises `ImpureError`."""
    with ExitStack() as patches:
        for owner, names in FORBIDDEN:
            for name in names:
                patches.enter_context(mock.patch.object(owner, name, _guarded(owner, name)))
        yield


def _guarded(owner: ModuleType | type, name: str) -> Callable[..., Any]:
    real = getattr(owner, name)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        if _from_domain(sys._getframe(1)):
            raise ImpureError(f"domain code called {owner.__name__}.{name}")
        return real(*args, **kwargs)

    return guarded


def _from_domain(frame: FrameType | None) -> bool:
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(BESIDE):
            return False
        if module == DOMAIN or module.startswith(f"{DOMAIN}."):
            return True
        frame = frame.f_back
    return False
