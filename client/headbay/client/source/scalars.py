"""Plain scalars as YAML 1.2 reads them, and what none of its readers may do to them.

Only the core schema: ``yes``, ``on`` and dates are strings, 017 is seventeen, 0o17 fifteen.

Source: YAML 1.2.2, §10.3.2 "Core schema: tag resolution".
"""

import re
from decimal import Decimal
from typing import Final

__all__ = ["UnreadableNumberError", "plain_scalar", "read_number"]

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MOST_DIGITS: Final = 40


class UnreadableNumberError(ValueError):
    """A number with more digits than one can hold."""


def plain_scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar.

    Raises:
        UnreadableNumberError: As `read_number`.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _OTHER_BASE.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise UnreadableNumberError
        return int(text[2:], 8 if text[1] == "o" else 16)
    if _NO_NUMBER.fullmatch(text):
        return float(text.lower().replace(".", ""))
    return read_number(text) if _FLOAT.fullmatch(text) else text


def read_number(text: str) -> int | float:
    """An integer or float whose value is exactly what ``text`` says.

    Raises:
        UnreadableNumberError: It would be rounded, or is too large to be of any use.
    """
    if len(text) > _MOST_DIGITS:
        raise UnreadableNumberError
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text)
    if Decimal(repr(value)) != Decimal(text):
        raise UnreadableNumberError
    return value
