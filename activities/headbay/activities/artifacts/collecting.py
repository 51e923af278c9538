"""Finds the files that globs name below a folder that a hostile payload has written.

Never leaves the folder and never follows a symbolic link; one that is named is refused. Every part
of a path is opened relative to the descriptor of the one above, so that nothing can be swapped in
between. Only regular files come out.

Globs are relative: ``*``, ``?`` and ``[…]`` within a part, ``**`` for any number of folders. As in
a shell, a name with a leading dot must be asked for with one. A folder that is named means all
files below it.
"""

import fnmatch
import os
import re
import stat
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headbay.activities.artifacts.errors import ArtifactGlobError
from headbay.activities.artifacts.manifest import is_inside
from headbay.activities.artifacts.reader import Reader

__all__ = ["MATCHED_NOTHING", "Limits", "find_files"]

MATCHED_NOTHING: Final = "artifact glob matched nothing"

_WILD: Final = re.compile(r"[*?[]")

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""NONBLOCK: opening a FIFO must not wait for a writer."""


@dataclass(frozen=True)
class Limits:
    """What one attempt may keep.

    Attributes:
        files: Number of files. total_bytes: Their sizes together.
        visited: Names looked at while matching.
        depth: Parts of a path.
    """

    files: int = 10_000
    total_bytes: int = 10 * 2**30
    visited: int = 1_000_000
    depth: int = 64


def find_files(
    root: Path, globs: list[str], limits: Limits, reader: Reader | None = None
) -> Generator[tuple[str, int, str], None, None]:
    """Open what the globs name, each file once, in order of the globs and then of names.

    Args:
        root: Folder.
        globs: What to find below it.
        limits: What one attempt may keep.
        reader: Whose rights count; None for this process's own.

    Yields:
        (relative path, open descriptor of a regular file, glob); the descriptor is closed when
        the next one is asked for.

    Raises:
        ArtifactGlobError: A glob is malformed or matches nothing, or something it names must not
            be kept.
    """
    seen: set[str] = set()
    for glob in globs:
        walk = _Walk(glob, _parts(glob), limits, reader)
        matched = False
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            walk.check(top, ())
            for path, descriptor in walk.match(top, (), walk.parts):
                matched = True
                try:
                    if path not in seen:
                        seen.add(path)
                        if len(seen) > limits.files:
                            raise ArtifactGlobError(glob, f"more than {limits.files} files")
                        yield path, descriptor, glob
                finally:
                    os.close(descriptor)
        finally:
            os.close(top)
        if not matched:
            raise ArtifactGlobError(glob, MATCHED_NOTHING)


def _parts(glob: str) -> tuple[str, ...]:
    if glob.startswith("/"):
        raise ArtifactGlobError(glob, "must be relative to the working directory")
    path = glob.removeprefix("./").removesuffix("/")
    if not is_inside(path):
        raise ArtifactGlobError(glob, "must not contain '.', '..', empty parts or NUL")
    parts: list[str] = []
    for part in path.split("/"):
        if part != "**" or parts[-1:] != ["**"]:
            parts.append(part)
    return tuple(parts)


class _Walk:
    """Matching of one glob."""

    def __init__(
        self, glob: str, parts: tuple[str, ...], limits: Limits, reader: Reader | None
    ) -> None:
        self.glob = glob
        self.parts = parts
        self._limits = limits
        self._reader = reader
        self._visited = 0

    def check(self, descriptor: int, path: tuple[str, ...]) -> os.stat_result:
        """What is open; refused if it is not the reader's to read."""
        status = os.fstat(descriptor)
        if self._reader is not None and not self._reader.may_read(status):
            raise self._refusal(path or (".",), "is not readable for the step's user")
        return status

    def match(
        self, folder: int, above: tuple[str, ...], parts: tuple[str, ...]
    ) -> Iterator[tuple[str, int]]:
        """Files below an open folder that the rest of the glob names."""
        if len(above) > self._limits.depth:
            raise self._refusal(above, f"lies deeper than {self._limits.depth} folders")
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._match_any_depth(folder, above, rest)
            return
        pattern = re.compile(fnmatch.translate(part))
        for name in self._names(folder):
            if not pattern.match(name) or (name.startswith(".") and not part.startswith(".")):
                continue
            path = (*above, name)
            passing = rest and _WILD.search(part)
            if passing and stat.S_ISLNK(self._mode(folder, path)):
                continue  # on the way a pattern names what there is, and links lead elsewhere
            yield from self._enter(folder, path, rest)

    def _match_any_depth(
        self, folder: int, above: tuple[str, ...], rest: tuple[str, ...]
    ) -> Iterator[tuple[str, int]]:
        """``**``: nothing, or folders; a last ``**`` is all that is below."""
        if rest:
            yield from self.match(folder, above, rest)
        for name in self._names(folder):
            if name.startswith("."):
                continue
            path = (*above, name)
            mode = self._mode(folder, path)
            if stat.S_ISDIR(mode):
                with _Opened(self._open(folder, path, _FOLDER)) as inner:
                    yield from self.match(inner, path, ("**", *rest))
            elif not rest:
                yield from self._enter(folder, path, ())

    def _enter(
        self, folder: int, path: tuple[str, ...], rest: tuple[str, ...]
    ) -> Iterator[tuple[str, int]]:
        """A name that matched: more of the glob follows, or it is meant itself."""
        mode = self._mode(folder, path)
        if stat.S_ISLNK(mode):
            raise self._refusal(path, "is a symbolic link; copy what it points to instead")
        if stat.S_ISDIR(mode):
            with _Opened(self._open(folder, path, _FOLDER)) as inner:
                if rest:
                    yield from self.match(inner, path, rest)
                else:
                    yield from self._all_below(inner, path)
        elif not rest:
            yield "/".join(path), self._open_regular(folder, path)

    def _all_below(self, folder: int, above: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        if len(above) > self._limits.depth:
            raise self._refusal(above, f"lies deeper than {self._limits.depth} folders")
        for name in self._names(folder):
            yield from self._enter(folder, (*above, name), ())

    def _names(self, folder: int) -> list[str]:
        names = sorted(os.listdir(folder))
        self._visited += len(names)
        if self._visited > self._limits.visited:
            raise ArtifactGlobError(
                self.glob, f"more than {self._limits.visited} names to look at: be more specific"
            )
        return names

    def _mode(self, folder: int, path: tuple[str, ...]) -> int:
        try:
            return os.stat(path[-1], dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError as error:
            raise self._refusal(path, "vanished while it was read") from error

    def _open(self, folder: int, path: tuple[str, ...], flags: int) -> int:
        try:
            descriptor = os.open(path[-1], flags, dir_fd=folder)
        except OSError as error:
            raise self._refusal(path, f"cannot be opened: {error.strerror}") from error
        try:
            self.check(descriptor, path)
        except ArtifactGlobError:
            os.close(descriptor)
            raise
        return descriptor

    def _open_regular(self, folder: int, path: tuple[str, ...]) -> int:
        try:
            path[-1].encode()
        except UnicodeEncodeError as error:
            raise self._refusal(path, "has a name that is not UTF-8") from error
        if not stat.S_ISREG(self._mode(folder, path)):
            raise self._refusal(path, "is not a regular file")
        descriptor = self._open(folder, path, _FILE)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._refusal(path, "is not a regular file")
        return descriptor

    def _refusal(self, path: tuple[str, ...], why: str) -> ArtifactGlobError:
        shown = "/".join(path)
        return ArtifactGlobError(self.glob, f"{shown!r} {why}", shown)


class _Opened:
    """A descriptor that is closed at the end of its block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
