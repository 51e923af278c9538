"""Documents from files, standard input, bytes or mappings, with the line of every problem."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from headbay.client.source.builder import Builder, StopReadingError
from headbay.client.source.decoding import decode
from headbay.client.source.json_text import read_json
from headbay.client.source.yaml_text import read_yaml
from headbay.domain.dag import DagDef
from headbay.domain.document import (
    API_VERSION,
    MAX_DOCUMENT_BYTES,
    Document,
    DocumentRefusedError,
    Problem,
    compile_document,
    digest,
    validate,
    warnings,
)

__all__ = ["Loaded", "Read", "Source", "load", "read_document"]

STDIN: Final = "-"


@dataclass(frozen=True)
class Loaded:
    """Data that claims to be a document, and where its parts are written.

    Attributes:
        document: What was read, of any shape.
        name: What it was read from, for messages; "" if nothing.
        lines: Path text -> line.
        spelling: Path text -> how a scalar was written where its value does not tell.
        stem: What the workload is called if the document does not say; "" for no such name.
    """

    document: Any
    name: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    spelling: Mapping[str, str] = field(default_factory=dict)
    stem: str = ""

    @classmethod
    def of(cls, document: Any) -> "Loaded":
        """Data that was never text."""
        return cls(document)

    def located(self, problem: Problem) -> Problem:
        """The problem with the line of its path, or of the nearest part around it."""
        if problem.line is not None or not self.lines:
            return problem
        path = problem.path
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return problem.model_copy(update={"line": self.lines.get(path, 1)})


Source = Loaded | Path | str | bytes | Mapping[str, Any]
"""A path (``-``: standard input), the bytes of YAML or JSON, or parsed data."""


@dataclass(frozen=True)
class Read:
    """A valid document.

    Attributes:
        document: Its checked form.
        data: As submitted: as given, with `apiVersion` and `name` filled in.
        digest: Of its canonical form.
        warnings: What is allowed and probably not meant.
    """

    document: Document
    data: dict[str, Any]
    digest: str
    name: str = ""
    warnings: list[Problem] = field(default_factory=list)

    def dag(self, *, base_dir: str | None = None, pin_node: str | None = None) -> DagDef:
        """What it compiles to; see `headbay.domain.document.compile_document`."""
        return compile_document(self.document, base_dir=base_dir, pin_node=pin_node)


def load(source: Source, *, name: str | None = None) -> Loaded:
    """Read data that claims to be a document, without judging it.

    Args:
        source: Where it is.
        name: What messages call it; its end ``.json`` insists on JSON. None: the path, or
            "standard input" for ``-``.

    Raises:
        DocumentRefusedError: It cannot be read: not there, too large, not UTF-8, not YAML or
            JSON, or with duplicate keys.
    """
    if isinstance(source, Loaded):
        return source
    if isinstance(source, Mapping):
        return Loaded(dict(source), name or "")
    if isinstance(source, bytes):
        return _parse(source, name or "", "")
    if str(source) == STDIN:
        raw = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        return _parse(raw, name or "standard input", "stdin")
    path = Path(source)
    return _parse(_contents(path, name or str(path)), name or str(path), path.stem)


def read_document(source: Source, *, name: str | None = None) -> Read:
    """Read and check a document.

    Args:
        source: Where it is.
        name: As for `load`.

    Raises:
        DocumentRefusedError: With all problems, each with its line.
    """
    loaded = _filled(load(source, name=name))
    try:
        document = validate(loaded.document, spelling=loaded.spelling)
    except DocumentRefusedError as error:
        problems = [loaded.located(problem) for problem in error.problems]
        raise DocumentRefusedError(problems, loaded.name) from error
    advice = [loaded.located(problem) for problem in warnings(document)]
    return Read(document, loaded.document, digest(loaded.document), loaded.name, advice)


def _filled(loaded: Loaded) -> Loaded:
    """With the two fields that a file may leave out."""
    if not isinstance(loaded.document, dict):
        return loaded
    given = {"apiVersion": API_VERSION}
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", loaded.stem)[:63].strip("-._")
    if stem:
        given["name"] = stem
    absent = {key: value for key, value in given.items() if key not in loaded.document}
    return replace(loaded, document=absent | loaded.document)


def _contents(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem(
            path="",
            code="UNREADABLE",
            message=f"cannot be read: {reason}",
            fix="check the path",
        )
        raise DocumentRefusedError([problem], name) from error


def _parse(raw: bytes, name: str, stem: str) -> Loaded:
    try:
        builder = _build(decode(raw), name)
    except StopReadingError as error:
        raise DocumentRefusedError([error.problem], name) from error
    if builder.problems:
        raise DocumentRefusedError(builder.problems, name)
    return Loaded(builder.root, name, builder.lines, builder.spelling, stem)


def _build(text: str, name: str) -> Builder:
    """JSON where the name or the text says so; every other text is YAML.

    A text in braces may be YAML's flow style too, so that only its name makes JSON's rules final.
    """
    if name.endswith(".json"):
        return read_json(text)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return read_json(text)
        except StopReadingError:
            return read_yaml(text)
    return read_yaml(text)
