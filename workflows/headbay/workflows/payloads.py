"""Reading arguments that are no JSON: the workflow sees that, instead of failing its task for ever.

The SDK fails the workflow task when a start's argument cannot be decoded (nested too deeply, half a
surrogate pair, thousands of digits, a foreign encoding), and tries again without end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter

__all__ = ["Unreadable", "data_converter"]

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
