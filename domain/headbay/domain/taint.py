"""Taints keep work off a node, tolerations let a step run there all the same.

Source: the semantics of Kubernetes' taints and tolerations with the effect NoSchedule.
"""

import re
from collections.abc import Iterable
from typing import ClassVar, Final, Literal

from headbay.domain.errors import HeadbayError
from headbay.domain.wire import Wire

__all__ = ["NO_SCHEDULE", "BadTaintError", "Taint", "Toleration", "parse_taint", "untolerated"]

NO_SCHEDULE: Final = "NoSchedule"

_TAINT: Final = re.compile(
    r"(?P<key>[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?)(?:=(?P<value>[^:]{0,256}))?"
    r":(?P<effect>[A-Za-z]+)"
)


class BadTaintError(HeadbayError):
    """A text is not a taint.

    Attributes:
        text: The text.
    """

    code: ClassVar[str] = "BAD_TAINT"

    def __init__(self, text: str, why: str) -> None:
        super().__init__(
            f"{text!r} {why}: write KEY=VALUE:{NO_SCHEDULE} or KEY:{NO_SCHEDULE}, such as "
            f"gpu=a100:{NO_SCHEDULE}"
        )
        self.text = text


class Taint(Wire):
    """No step is placed on the node unless it tolerates this; what runs there goes on.

    Attributes:
        effect: Always NoSchedule so far. Another one, of a newer node, keeps work off as well.
    """

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE

    @property
    def text(self) -> str:
        """As operators write it."""
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


class Toleration(Wire):
    """A step may be placed on nodes with such taints.

    Attributes:
        operator: Equal: the taint has this value; Exists: whatever its value.
        effect: Effect that is tolerated; "": every one.
    """

    key: str
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether it is about that taint."""
        return (
            self.key == taint.key
            and (self.operator == "Exists" or self.value == taint.value)
            and self.effect in ("", taint.effect)
        )


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> list[Taint]:
    """The taints that none of the tolerations is about, in their order."""
    return [t for t in taints if not any(one.tolerates(t) for one in tolerations)]


def parse_taint(text: str) -> Taint:
    """A taint as operators write it.

    Raises:
        BadTaintError: It is none, or of another effect than NoSchedule.
    """
    match = _TAINT.fullmatch(text)
    if match is None:
        raise BadTaintError(text, "is not a taint")
    if match["effect"] != NO_SCHEDULE:
        raise BadTaintError(text, f"has the effect {match['effect']!r}, which there is not")
    return Taint(key=match["key"], value=match["value"] or "", effect=NO_SCHEDULE)
