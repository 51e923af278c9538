"""Which contracts are published, and under which file names."""

import json
from collections.abc import Iterator
from typing import Final

from contracts.generator import document_schema, wire_schema

from headbay.client.models import schemas
from headbay.domain.attempt import AttemptResult
from headbay.domain.dag import DagDef
from headbay.domain.document import Document
from headbay.domain.journal import JournalEvent
from headbay.domain.operation import CancelOrder, DrainOrder, NodeOrder, ResolveOrder
from headbay.domain.status import WorkloadStatus
from headbay.domain.wire import Wire

__all__ = ["published"]

_WIRE: Final[dict[str, type[Wire]]] = {
    "attempt-result": AttemptResult,
    "cancel-order": CancelOrder,
    "dag-def": DagDef,
    "drain-order": DrainOrder,
    "journal-event": JournalEvent,
    "node-order": NodeOrder,
    "resolve-order": ResolveOrder,
    "workload-status": WorkloadStatus,
}


def published() -> Iterator[tuple[str, str]]:
    """File name, relative to ``contracts/schema``, and text of every contract."""
    yield "workload-document.json", _text(document_schema(Document, "workload-document"))
    for name, model in _WIRE.items():
        yield f"{name}.json", _text(wire_schema(model, name))
    yield "command-output.json", _text(schemas())


def _text(schema: object) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
