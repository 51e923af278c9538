"""Base of everything that travels as JSON between workflows, activities, nodes and clients.

Readers are tolerant (unknown fields are ignored, so that N and N-1 understand each other);
writers leave out nothing. Times are Unix milliseconds (``_ms``: JSON's safe integers), sizes are
bytes (``_bytes``), CPU amounts milli-CPU.
"""

from pydantic import BaseModel, ConfigDict

__all__ = ["Wire"]


class Wire(BaseModel):
    """Frozen, tolerant JSON model."""

    model_config = ConfigDict(frozen=True, extra="ignore")
