"""Rows as the databases hold them -> rows as the port gives them; and page tokens."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from headbay.activities.ledger.projection import storable
from headbay.activities.ledger.rows import (
    AttemptRow,
    StepRow,
    WorkloadPage,
    WorkloadQuery,
    WorkloadRow,
)

__all__ = ["attempt_row", "list_parameters", "page_of", "step_row", "workload_row"]

MAX_PAGE = 1_000


def workload_row(row: Mapping[str, Any]) -> WorkloadRow:
    """A workload."""
    return WorkloadRow(
        **dict(row) | {name: _load(row[name]) for name in ("labels", "document") if name in row}
    )


def step_row(row: Mapping[str, Any]) -> StepRow:
    """A step."""
    return StepRow(**row)


def attempt_row(row: Mapping[str, Any]) -> AttemptRow:
    """An attempt, joined with its workload's pool, queue and labels."""
    names = ("labels", "resources", "flags", "output", "artifacts")
    return AttemptRow(**dict(row) | {name: _load(row[name]) for name in names})


def _load(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def list_parameters(query: WorkloadQuery) -> dict[str, Any]:
    """Parameters of ``list_workloads``; it asks for one row more than a page has.

    Raises:
        ValueError: The limit is out of range, or the page is no token.
    """
    if not 1 <= query.limit <= MAX_PAGE:
        raise ValueError(f"limit must be 1 to {MAX_PAGE}, not {query.limit}")
    page_ms, page_workload = _read_token(query.page)
    return {
        "pool": query.pool,
        "queue": query.queue,
        "name": query.name,
        "since_ms": query.since_ms,
        "before_ms": query.before_ms,
        "states": json.dumps([storable(state) for state in query.states]),
        "labels": json.dumps({storable(k): storable(v) for k, v in query.labels.items()}),
        "label_count": len(query.labels),
        "page_ms": page_ms,
        "page_workload": page_workload,
        "limit": query.limit + 1,
    }


def page_of(rows: list[WorkloadRow], limit: int) -> WorkloadPage:
    """The page that up to ``limit`` + 1 rows make."""
    if len(rows) <= limit:
        return WorkloadPage(rows)
    last = rows[limit - 1]
    return WorkloadPage(rows[:limit], _write_token(last.submitted_ms, last.workload))


def _write_token(submitted_ms: int, workload: str) -> str:
    return base64.urlsafe_b64encode(f"{submitted_ms}:{workload}".encode()).decode()


def _read_token(token: str) -> tuple[int | None, str | None]:
    if not token:
        return None, None
    try:
        text = base64.urlsafe_b64decode(token.encode("ascii")).decode()
        submitted_ms, _, workload = text.partition(":")
        return int(submitted_ms), workload
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise ValueError(f"{token[:40]!r} is not a page's token") from error
