"""The canonical form of a document: what "the same document" means.

It is taken from the document as given, before any default is filled in, so that an upgrade never
turns a replayed submission into a conflict.
"""

import hashlib
import json
from typing import Any, Final

from headbay.domain.document.plain import check_plain
from headbay.domain.document.problem import DocumentRefusedError, Problem, path_text

__all__ = ["MAX_DOCUMENT_BYTES", "canonical", "canonical_of_plain", "digest"]

MAX_DOCUMENT_BYTES: Final = 1 << 20


def canonical(data: object) -> bytes:
    """UTF-8 JSON with sorted keys, no blanks, and integers where a number is whole.

    Raises:
        DocumentRefusedError: ``data`` is no plain JSON value within bounds.
    """
    faults, _ = check_plain(data)
    if faults:
        raise DocumentRefusedError(
            [
                Problem(path=path_text(f.path), code=f.code, message=f.message, fix=f.fix)
                for f in faults
            ]
        )
    return canonical_of_plain(data)


def digest(data: object) -> str:
    """SHA-256 of the canonical form, in hex.

    Raises:
        DocumentRefusedError: As `canonical`.
    """
    return hashlib.sha256(canonical(data)).hexdigest()


def canonical_of_plain(data: object) -> bytes:
    """`canonical` for a value that `check_plain` has already accepted."""
    text = json.dumps(
        _whole_numbers(data),
        sort_keys=True,
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )
    return text.encode()


def _whole_numbers(value: Any) -> Any:
    """1.0 as 1: JSON of other languages does not tell them apart."""
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
