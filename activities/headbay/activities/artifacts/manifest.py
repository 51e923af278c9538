"""Manifests: the list of files that one attempt kept."""

import hashlib
import json
from pathlib import PurePosixPath
from typing import Self

from pydantic import Field, TypeAdapter, field_validator

from headbay.domain.attempt import ArtifactsRef
from headbay.domain.wire import Wire

__all__ = ["Manifest", "ManifestEntry", "is_inside"]


def is_inside(path: str) -> bool:
    """Whether a relative POSIX path stays below the folder that it is applied to."""
    parts = path.split("/")
    return "\0" not in path and all(part not in ("", ".", "..") for part in parts)


class ManifestEntry(Wire):
    """One regular file.

    Attributes:
        path: Relative to the attempt's working directory, '/' between its parts.
        mode: Permission bits.
    """

    path: str = Field(min_length=1, max_length=4_096)
    mode: int = Field(ge=0, le=0o777)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        if not is_inside(path):
            raise ValueError("must be relative, without '.', '..' or empty parts")
        return path


_ENTRIES = TypeAdapter(list[ManifestEntry])


class Manifest(Wire):
    """Files, by path; equal contents have equal canonical text and so one digest."""

    entries: tuple[ManifestEntry, ...] = ()

    @field_validator("entries")
    @classmethod
    def _are_distinct_files(cls, entries: tuple[ManifestEntry, ...]) -> tuple[ManifestEntry, ...]:
        paths = {entry.path for entry in entries}
        if len(paths) != len(entries):
            raise ValueError("a path is there twice")
        for path in paths:
            if any(str(above) in paths for above in PurePosixPath(path).parents):
                raise ValueError(f"{path!r} lies below a file")
        return tuple(sorted(entries, key=lambda entry: entry.path))

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(entry.size_bytes for entry in self.entries)

    def canonical(self) -> bytes:
        """The one JSON text: a list sorted by path, keys sorted, no spaces, ASCII."""
        rows = [entry.model_dump() for entry in self.entries]
        return json.dumps(rows, sort_keys=True, separators=(",", ":")).encode("ascii")

    def ref(self) -> ArtifactsRef:
        """What a result says of it."""
        return ArtifactsRef(
            sha256=hashlib.sha256(self.canonical()).hexdigest(),
            files=len(self.entries),
            size_bytes=self.size_bytes,
        )

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read the canonical text.

        Raises:
            ValueError: It is none.
        """
        return cls(entries=tuple(_ENTRIES.validate_json(text)))
