"""YAML 1.2 with positions: events in, plain data out; nothing that a tag could construct."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from headbay.client.source.builder import Builder, StopReadingError
from headbay.client.source.scalars import UnreadableNumberError, plain_scalar
from headbay.domain.document import Problem
from headbay.domain.wording import shown

if TYPE_CHECKING:
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import Event

__all__ = ["read_yaml"]

_STANDARD: Final = "tag:yaml.org,2002:"
_ALLOWED_TAGS: Final = {None, "!", f"{_STANDARD}str", f"{_STANDARD}map", f"{_STANDARD}seq"}

_EXPLAINED: Final = (
    (
        "mapping values are not allowed",
        "a `:` where no value may follow",
        "quote the text, or correct the indentation",
    ),
    (
        "cannot start any token",
        "a character that needs quotes",
        "put the text into quotes",
    ),
    (
        "could not find expected ':'",
        "a line that is neither `key: value` nor part of one",
        "add the `:`, or correct the indentation",
    ),
    (
        "unexpected end of stream",
        "quotes that are never closed",
        "close them",
    ),
    (
        "found undefined",
        "a directive or tag that was never defined",
        "remove it",
    ),
    (
        "expected <block end>",
        "wrong indentation, or quotes and brackets that end too early",
        "align it with the lines above",
    ),
    (
        "expected ',' or",
        "a bracket that is not closed",
        "close it, or add the comma",
    ),
    (
        "found duplicate anchor",
        "an anchor that is defined twice",
        "rename one",
    ),
)
"""What the parser says, what it mostly means, and what to do."""


def read_yaml(text: str) -> Builder:
    """Read one YAML document.

    Raises:
        StopReadingError: It is none, uses more of YAML than data, or is beyond a bound.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    builder = Builder()
    documents = 0
    try:
        events: Iterator[Event] = YAML(typ="safe", pure=True).parse(text)
        for event in events:
            documents += _take(builder, event, documents)
    except StopReadingError:
        raise
    except YAMLError as error:
        raise StopReadingError(_syntax(error, text, builder.path)) from error
    except Exception as error:  # the parser answers some broken texts with its own bugs
        line = max(builder.lines.values(), default=1)
        raise StopReadingError(
            Problem(
                path=builder.path,
                code="BAD_SYNTAX",
                message=f"cannot be read as YAML: {type(error).__name__}",
                fix="look at this line and the next ones for a stray character or escape",
                line=line,
            )
        ) from error
    if not documents:
        builder.stop(1, "EMPTY", "the document is empty", "write at least `steps:`")
    return builder


def _take(builder: Builder, event: "Event", documents: int) -> int:
    """Carry one event out; 1 if it begins a document."""
    kind, line = type(event).__name__, event.start_mark.line + 1
    value: Any = event
    if kind == "DocumentStartEvent":
        if documents:
            builder.stop(line, "SEVERAL_DOCUMENTS", "a second document", "keep one in a file")
        if value.version not in (None, (1, 2)):
            builder.stop(line, "BAD_SYNTAX", "documents are YAML 1.2", "remove the %YAML line")
        return 1
    if kind in ("MappingEndEvent", "SequenceEndEvent"):
        builder.end()
    elif kind == "AliasEvent":
        _refuse_as_key(builder, "an alias", line)
        builder.alias(value.anchor, line)
    elif kind in ("MappingStartEvent", "SequenceStartEvent"):
        _check_tag(builder, value, line)
        _refuse_as_key(builder, "a mapping or list", line)
        builder.begin({} if kind == "MappingStartEvent" else [], line, value.anchor)
    elif kind == "ScalarEvent":
        _check_tag(builder, value, line)
        _scalar(builder, value, line)
    return 0


def _scalar(builder: Builder, event: Any, line: int) -> None:
    plain = event.style is None and event.tag is None
    if builder.wants_key:
        if plain and not event.value:
            builder.stop(line, "BAD_SYNTAX", "a key without a name", "write the key before the `:`")
        builder.key(event.value, line)
        return
    if not plain:
        builder.scalar(event.value, line, anchor=event.anchor)
        return
    try:
        value = plain_scalar(event.value)
    except UnreadableNumberError:
        message = f"the number {shown(event.value)[1:-1]} is too long or too large to be exact"
        builder.stop(line, "OUT_OF_BOUNDS", message, "quote or shorten it")
    spelt = None if isinstance(value, str) else event.value
    builder.scalar(value, line, spelt=spelt, anchor=event.anchor)


def _check_tag(builder: Builder, event: Any, line: int) -> None:
    if event.tag not in _ALLOWED_TAGS:
        tag = str(event.tag).replace(_STANDARD, "!!")
        message = f"the tag {shown(tag)[1:-1]} is not allowed"
        builder.stop(line, "BAD_SYNTAX", message, "remove it, and quote the value if it is a text")


def _refuse_as_key(builder: Builder, what: str, line: int) -> None:
    if builder.wants_key:
        builder.stop(
            line, "BAD_SYNTAX", f"{what} as a key", "write a text as key; quote {…} and […]"
        )


def _syntax(error: "YAMLError", text: str, path: str) -> Problem:
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = getattr(error, "position", None)
    if mark is not None:
        line = mark.line + 1
    else:
        line = text.count("\n", 0, position if isinstance(position, int) else 0) + 1
    said = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "")
    message, fix = _explain(said, text, mark, error)
    return Problem(path=path, code="BAD_SYNTAX", message=message, fix=fix, line=line)


def _explain(said: str, text: str, mark: Any, error: "YAMLError") -> tuple[str, str]:
    lines = text.split("\n")
    if mark is not None and mark.line < len(lines):
        line = lines[mark.line]
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent or line[mark.column : mark.column + 1] == "\t":
            return "a tab where YAML allows only spaces", "indent with spaces"
    character = getattr(error, "character", None)
    if character is not None:
        code = ord(character) if isinstance(character, str) else int(character)
        message = f"the control character U+{code:04X}"
        return message, "remove it, or write it as an escape in double quotes"
    for pattern, message, fix in _EXPLAINED:
        if pattern in said:
            return message, fix
    reason = f": {said.splitlines()[0][:200]}" if said else ""
    return f"not YAML{reason}", "correct this line"
