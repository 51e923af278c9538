"""Base of everything that travels as JSON between workflows, activities, nodes and clients.

Readers are tolerant (unknown fields are ignored, so that N and N-1 understand each other);
writers leave out nothing. Times are Unix milliseconds (``_ms``: JSON's safe integers), sizes are
bytes (``_bytes``), CPU amounts milli-CPU.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

__all__ = ["TerseWire", "Wire"]


class Wire(BaseModel):
    """Frozen, tolerant JSON model."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class TerseWire(Wire):
    """A model that leaves out what has its default: for what history holds once a step."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {
            name: value
            for name, value in handler(self).items()
            if getattr(self, name) != fields[name].default
        }
