"""The output of a payload: what it wrote to ``$HEADBAY_OUTPUT``, if that is JSON for everybody.

Written by a payload, so it may be anything: a device without end, a pipe that nobody writes to,
text that other readers of JSON refuse. None of that may hurt the node.
"""

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from headbay.domain.attempt import MAX_OUTPUT_BYTES

__all__ = ["MAX_DEPTH", "BadOutputError", "parse_output", "read_output"]

MAX_DEPTH = 64
"""Nested deeper, some reader of JSON gives up: ours, Temporal's UI, another language's."""


class BadOutputError(Exception):
    """It is no output; the message says why, and what to do."""


def read_output(path: Path) -> bytes | None:
    """Its bytes; None if there is none. Reads only a regular file, without waiting, and bounded.

    Raises:
        BadOutputError: It is something else, or too large.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadOutputError(f"$HEADBAY_OUTPUT cannot be read: {error.strerror}") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise BadOutputError("$HEADBAY_OUTPUT is not a regular file")
    with os.fdopen(fd, "rb") as file:
        raw = file.read(MAX_OUTPUT_BYTES + 1)
    if len(raw) > MAX_OUTPUT_BYTES:
        raise BadOutputError(
            f"the output has {max(status.st_size, len(raw))} bytes, more than {MAX_OUTPUT_BYTES}; "
            "keep large results as artifacts"
        )
    return raw


def parse_output(raw: bytes) -> Any:
    """The JSON value.

    Raises:
        BadOutputError: It is none that every reader of JSON takes: NaN and infinities, numbers too
            large for a double, halves of surrogate pairs, more than `MAX_DEPTH` levels.
    """
    try:
        value = json.loads(raw, parse_constant=_no_constant, parse_float=_finite)
        depth = _depth(value)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadOutputError(
            "the file $HEADBAY_OUTPUT is not JSON: it holds half of a surrogate pair"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadOutputError(f"the file $HEADBAY_OUTPUT is not JSON: {error}") from error
    if depth > MAX_DEPTH:
        raise BadOutputError(f"the output is nested {depth} levels deep, more than {MAX_DEPTH}")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _depth(value: Any) -> int:
    deepest = 0
    waiting = [(value, 1)]
    while waiting:
        item, level = waiting.pop()
        deepest = max(deepest, level)
        if isinstance(item, dict):
            waiting += [(inner, level + 1) for inner in item.values()]
        elif isinstance(item, list):
            waiting += [(inner, level + 1) for inner in item]
    return deepest
