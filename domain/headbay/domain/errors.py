"""The one error root. Every subclass has a stable ``code`` and keeps its data as attributes."""

from typing import ClassVar

__all__ = ["BrokenInvariantError", "HeadbayError"]


class HeadbayError(Exception):
    """Root of all errors that Headbay raises on purpose.

    Attributes:
        code: Stable, upper-case identifier for programs; the message is for people and ends with
            what to do next.
    """

    code: ClassVar[str] = "HEADBAY"


class BrokenInvariantError(HeadbayError):
    """Something that must never happen did. Never caught to go on as if nothing were."""

    code = "BROKEN_INVARIANT"
