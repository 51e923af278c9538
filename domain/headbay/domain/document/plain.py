"""Whether a value is plain JSON within bounds: what every later check may take for granted.

Runs without recursion, so that nothing nested however deeply gets further than this module.
"""

import math
from typing import Final

from headbay.domain.document.problem import Fault, Path
from headbay.domain.quantity import MAX_INTEGER
from headbay.domain.wording import shown

__all__ = ["MAX_DEPTH", "MAX_NODES", "check_plain"]

MAX_DEPTH: Final = 64
MAX_NODES: Final = 200_000
"""Values in a document, keys not counted; what anchors expand to counts too."""

MERGE: Final = "<<"

_ENOUGH: Final = 200
_TEXT_FIELDS: Final = frozenset({"env", "matrix", "labels", "items", "run", "nodeSelector"})
_FREE_FIELDS: Final = frozenset({("run", "with"), ("output", "schema"), ("condition", "equals")})


def check_plain(data: object) -> tuple[list[Fault], bool]:
    """Faults of a value that claims to be a document.

    Returns:
        The faults, and whether the value is bounded: False means that nothing else may look at
        it.
    """
    faults: list[Fault] = []
    nodes = 0
    stack: list[tuple[object, Path]] = [(data, ())]
    while stack:
        value, path = stack.pop()
        nodes += 1
        if nodes > MAX_NODES:
            return [_whole(f"more than {MAX_NODES} values", "split the workload")], False
        if len(path) > MAX_DEPTH:
            return [_whole(f"nested deeper than {MAX_DEPTH} levels", "flatten it")], False
        if len(faults) >= _ENOUGH:
            return faults, False
        if isinstance(value, dict):
            for key, item in value.items():
                if key == MERGE:
                    return [_merge_key((*path, key))], False
                if isinstance(key, str):
                    if fault := _bad_text(key, path):
                        faults.append(fault)
                    stack.append((item, (*path, key)))
                else:
                    faults.append(_bad_key(key, path))
        elif isinstance(value, list):
            stack.extend((item, (*path, index)) for index, item in enumerate(value))
        elif fault := _bad_scalar(value, path):
            faults.append(fault)
    return faults, True


def _bad_scalar(value: object, path: Path) -> Fault | None:
    fault: Fault | None = None
    if isinstance(value, str):
        fault = _bad_text(value, path)
    elif value is None:
        fault = _bad_null(path)
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            message, fix = "the number is too large", f"the most is {MAX_INTEGER}"
            fault = Fault(path, "OUT_OF_BOUNDS", message, fix)
    elif not isinstance(value, float):
        message = f"{shown(value)} is not a JSON value"
        fault = Fault(path, "WRONG_TYPE", message, "write a string")
    elif not math.isfinite(value):
        fault = Fault(path, "BAD_VALUE", f"{value} is not a number", "write a finite number")
    return fault


def _bad_text(text: str, path: Path) -> Fault | None:
    if "\0" in text:
        return Fault(path, "BAD_TEXT", "contains a NUL character", "remove it")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return Fault(path, "BAD_TEXT", "contains half a surrogate pair", "write it as UTF-8")
    return None


def _bad_null(path: Path) -> Fault | None:
    inside = path[2:] if path[:1] == ("steps",) else path[1:]
    if inside[:2] in _FREE_FIELDS:
        return None
    if not _TEXT_FIELDS.isdisjoint(path[:-1]):
        return Fault(
            path, "WRONG_TYPE", "must be a string, not null", 'quote it: "null", or "" for empty'
        )
    if not path:
        return Fault(path, "EMPTY", "the document is empty", "write at least `steps:`")
    return Fault(path, "EMPTY", "has no value", "give it one or remove the line")


def _bad_key(key: object, path: Path) -> Fault:
    message = f"the key {shown(key)} is not a string"
    return Fault(path, "WRONG_TYPE", message, f'quote it: "{shown(key)}"')


def _merge_key(path: Path) -> Fault:
    fix = "write what is meant, or use `defaults`"
    return Fault(path, "UNKNOWN_FIELD", "YAML 1.2 has no merge keys (`<<`)", fix)


def _whole(message: str, fix: str) -> Fault:
    return Fault((), "TOO_LARGE", message, fix)
