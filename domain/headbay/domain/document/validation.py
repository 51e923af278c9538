"""From any value to a `Document`, or to everything that is wrong with it.

1. Plain JSON within bounds (`check_plain`); nothing else looks at what is not.
2. The models' types and limits.
3. Names, dependencies and rules between fields, on the raw data, so that they are reported
   beside the former.
4. What is well-formed and not yet supported.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from headbay.domain.document.canon import MAX_DOCUMENT_BYTES, canonical_of_plain
from headbay.domain.document.graph import check_graph
from headbay.domain.document.model import Document
from headbay.domain.document.not_yet import check_supported
from headbay.domain.document.plain import check_plain
from headbay.domain.document.problem import (
    MAX_PROBLEMS,
    DocumentRefusedError,
    Fault,
    Path,
    Problem,
    path_text,
)
from headbay.domain.document.rules import check_rules
from headbay.domain.document.translate import translate

__all__ = ["validate"]

_MOST_TRANSLATED: Final = 4 * MAX_PROBLEMS


def validate(data: object, *, spelling: Mapping[str, str] | None = None) -> Document:
    """Check a whole document.

    Args:
        data: The document as JSON-like data, of any shape.
        spelling: Path text -> how a scalar was written, for values whose text differs from what
            they were read as (3.10 is the number 3.1); makes better fixes.

    Raises:
        DocumentRefusedError: With all problems at once, in the document's order. Nothing else is
            ever raised.
    """
    plain, bounded = check_plain(data)
    if not bounded:
        raise _refusal(plain, data)
    if not isinstance(data, dict):
        faults = plain or [_not_a_mapping()]
        raise _refusal(faults, data)
    if not plain and (size := len(canonical_of_plain(data))) > MAX_DOCUMENT_BYTES:
        raise _refusal([_too_large(size)], data)
    document, wrong = _parse(data, spelling or {})
    faults = _merge(plain, [*check_rules(data)], wrong, [*check_graph(data)])
    faults = _merge(faults, [], _outside(list(check_supported(data)), faults))
    if faults or document is None:
        raise _refusal(faults, data)
    return document


def _parse(
    data: dict[str, Any], spelling: Mapping[str, str]
) -> tuple[Document | None, list[Fault]]:
    try:
        return Document.model_validate(data), []
    except ValidationError as error:
        details = error.errors(include_url=False)[:_MOST_TRANSLATED]
        return None, [translate(detail, data, spelling) for detail in details]


def _merge(*groups: list[Fault]) -> list[Fault]:
    """All faults, but of one path only those of the first group that has any."""
    merged: list[Fault] = []
    for group in groups:
        taken = {fault.path for fault in merged}
        merged += [fault for fault in group if fault.path not in taken]
    return merged


def _outside(candidates: list[Fault], faults: list[Fault]) -> list[Fault]:
    """Candidates at or below whose path there is no fault: the well-formed ones."""
    wrong = {fault.path[:length] for fault in faults for length in range(len(fault.path) + 1)}
    return [fault for fault in candidates if fault.path not in wrong]


def _refusal(faults: list[Fault], data: object) -> DocumentRefusedError:
    places: dict[int, dict[str, int]] = {}
    faults = sorted(faults, key=lambda f: (_order(f.path, data, places), f.code, f.message))
    problems = [
        Problem(path=path_text(f.path), code=f.code, message=f.message, fix=f.fix)
        for f in faults[:MAX_PROBLEMS]
    ]
    if len(faults) > MAX_PROBLEMS:
        more = len(faults) - MAX_PROBLEMS
        problems.append(
            Problem(
                path="", code="MORE", message=f"at least {more} more", fix="correct these first"
            )
        )
    return DocumentRefusedError(problems)


def _order(path: Path, data: object, places: dict[int, dict[str, int]]) -> tuple[int, ...]:
    """Where a path is in the document; what is missing comes before what is there.

    Args:
        path: A fault's path.
        data: The document.
        places: Cache, by identity of a mapping: key -> position.
    """
    order: list[int] = []
    here: Any = data
    for part in path:
        if isinstance(here, dict):
            positions = places.setdefault(id(here), {})
            if not positions:
                positions.update({key: place for place, key in enumerate(here)})
            order.append(positions.get(str(part), -1))
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int):
            order.append(part)
            here = here[part] if part < len(here) else None
    return tuple(order)


def _not_a_mapping() -> Fault:
    return Fault(
        (), "WRONG_TYPE", "the document must be a mapping", "begin with `name:` and `steps:`"
    )


def _too_large(size: int) -> Fault:
    return Fault(
        (),
        "TOO_LARGE",
        f"the document has {size} bytes, at most {MAX_DOCUMENT_BYTES} are allowed",
        "move long scripts into files",
    )
