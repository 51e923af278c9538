"""JSON with positions, duplicate keys refused, and without recursion."""

import json
import re
from bisect import bisect_right
from typing import Any, Final, NoReturn

from headbay.client.source.builder import Builder
from headbay.client.source.scalars import UnreadableNumberError, read_number

__all__ = ["read_json"]

_BLANK: Final = re.compile(r"[ \t\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD: Final = re.compile(r"true|false|null")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


def read_json(text: str) -> Builder:
    """Read one JSON value.

    Raises:
        StopReadingError: It is none, or beyond a bound.
    """
    reader = _Reader(text)
    reader.run()
    return reader.builder


class _Reader:
    """Position in the text, and the collections that are open there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.builder = Builder()
        self._at = 0
        self._closers: list[str] = []
        self._line_starts = [m.end() for m in re.finditer("\n", text)]
        self._strings = json.JSONDecoder()

    def run(self) -> None:
        """Read everything."""
        self._value()
        while self._closers:
            self._next_part()
        if self._peek():
            self._fail("something follows the end of the document", "remove it")

    def _next_part(self) -> None:
        """The rest of the innermost collection up to its next value or its end."""
        character = self._peek()
        if character == self._closers[-1]:
            self._close()
            return
        if character != ",":
            self._fail(f"expected `,` or `{self._closers[-1]}`", "add what is missing before it")
        self._at += 1
        self._value_of_part()

    def _value_of_part(self) -> None:
        if self._closers[-1] == "}":
            if self._peek() != '"':
                fix = "quote the key" if self._peek() != "}" else "remove the comma before it"
                self._fail("expected a key in double quotes", fix)
            line = self._line()
            self.builder.key(self._string(), line)
            if self._peek() != ":":
                self._fail("expected `:` after the key", "add it")
            self._at += 1
        self._value()

    def _value(self) -> None:
        character, line = self._peek(), self._line()
        if character in ("{", "["):
            closer = "}" if character == "{" else "]"
            value: dict[str, Any] | list[Any] = {} if character == "{" else []
            self.builder.begin(value, line)
            self._at += 1
            self._closers.append(closer)
            if self._peek() == closer:
                self._close()
            else:
                self._value_of_part()
        elif character == '"':
            self.builder.scalar(self._string(), line)
        else:
            self._bare(line)

    def _bare(self, line: int) -> None:
        if word := _WORD.match(self.text, self._at):
            self._at = word.end()
            self.builder.scalar(_WORDS[word.group()], line)
        elif number := _NUMBER.match(self.text, self._at):
            try:
                value = read_number(number.group())
            except UnreadableNumberError:
                self._fail("a number too long or too large to be exact", "quote or shorten it")
            self._at = number.end()
            self.builder.scalar(value, line, spelt=number.group())
        else:
            closing = self.text[self._at : self._at + 1] in ("]", "}")
            fix = "remove the comma before it" if closing else "quote strings with double quotes"
            self._fail("expected a value", fix)

    def _string(self) -> str:
        try:
            value, self._at = self._strings.raw_decode(self.text, self._at)
        except json.JSONDecodeError as error:
            self._at = min(error.pos, len(self.text))
            reason = error.msg.lower().removesuffix(" at")
            self._fail(f"not a JSON string: {reason}", "close or escape it")
        return str(value)

    def _close(self) -> None:
        self._at += 1
        self._closers.pop()
        self.builder.end()

    def _peek(self) -> str:
        blank = _BLANK.match(self.text, self._at)
        self._at = blank.end() if blank else self._at
        return self.text[self._at : self._at + 1]

    def _line(self) -> int:
        return bisect_right(self._line_starts, self._at) + 1

    def _fail(self, message: str, fix: str) -> NoReturn:
        found = self.text[self._at : self._at + 1]
        where = f", found `{found}`" if found.isprintable() and found else ""
        where = where or (", found the end of the file" if not found else "")
        self.builder.stop(self._line(), "BAD_SYNTAX", message + where, fix)
