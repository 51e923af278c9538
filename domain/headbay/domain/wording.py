"""Values in messages for people."""

from typing import Final

__all__ = ["shown"]

_MOST_SHOWN: Final = 60
_MOST_DIGITS: Final = 18
_WORDS: Final[dict[type, str]] = {dict: "a mapping", list: "a list", tuple: "a list"}


def shown(value: object) -> str:
    """A value of a document as a few printable words, in the document's own spelling.

    Strings are cut, long integers not spelt at all (that takes quadratic time).
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        text = value if len(value) <= _MOST_SHOWN else value[: _MOST_SHOWN - 3] + "..."
        if not text.isprintable():
            text = text.encode("unicode_escape", "surrogatepass").decode("ascii")
        return f"'{text}'"
    if isinstance(value, int):
        huge = abs(value) >= 10**_MOST_DIGITS
        return f"a number of over {_MOST_DIGITS} digits" if huge else str(value)
    if isinstance(value, float):
        return repr(value)
    return _WORDS.get(type(value), f"a {type(value).__name__}")
