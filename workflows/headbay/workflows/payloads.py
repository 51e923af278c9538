"""Reading arguments that are no JSON: the workflow sees that, instead of failing its task for ever.

The SDK fails the workflow task when a start's argument cannot be decoded (nested too deeply, half a
surrogate pair, thousands of digits, a foreign encoding), and tries again without end.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from headbay.domain.document import DocumentRefusedError, Problem
from headbay.domain.workload.machine import Machine
from headbay.domain.workload.snapshot import SnapshotError, SnapshotVersionError

__all__ = ["Unreadable", "data_converter", "readable", "unpacked"]

MOST_SAID = 300


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for an argument that could not be decoded.

    Attributes:
        why: For people.
    """

    why: str


class TolerantPayloadConverter(PydanticPayloadConverter):
    """Decodes what has no type yet to `Unreadable` if it must; whoever takes it refuses that."""

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        """One value a payload."""
        try:
            return super().from_payloads(payloads, type_hints)
        except Exception:
            if type_hints:
                raise
            return [self._read(payload) for payload in payloads]

    def _read(self, payload: Payload) -> Any:
        try:
            return super().from_payloads([payload])[0]
        except Exception as error:  # noqa: BLE001 - foreign bytes break converters in any way
            return Unreadable(" ".join(str(error).split())[:MOST_SAID])


data_converter = DataConverter(payload_converter_class=TolerantPayloadConverter)
"""For workers that run our workflows."""


def readable(document: Any) -> Any:
    """The document as it came.

    Raises:
        DocumentRefusedError: It could not be decoded.
    """
    if isinstance(document, Unreadable):
        problem = Problem(
            path="",
            code="NOT_JSON",
            message=f"the first argument is no JSON that can be read: {document.why}",
            fix="send the document as one JSON object",
        )
        raise DocumentRefusedError([problem])
    return document


def unpacked(previous: str) -> Machine:
    """The machine of a workload's former run.

    Raises:
        ApplicationError: BAD_CONTEXT, it is no such state.
        SnapshotVersionError: The task is to wait for a worker that can read it.
    """
    try:
        return Machine.load(base64.b64decode(previous, validate=True))
    except SnapshotVersionError:
        raise
    except (SnapshotError, ValueError) as error:
        raise ApplicationError(
            f"second argument (context): previous: {error}", type="BAD_CONTEXT", non_retryable=True
        ) from error
