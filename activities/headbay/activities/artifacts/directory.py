"""An artifact store in a directory, local or shared between nodes.

```
blobs/sha256/ab/abcd…                              contents, 0444
attempts/<workload>/<step>/a<attempt>.f<fence>.json  manifests
tmp/                                               drafts; what is left there is rubbish
```
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from headbay.activities.artifacts.collecting import Limits, find_files
from headbay.activities.artifacts.durable import draft, ensure_folder, fsync_folder, sweep
from headbay.activities.artifacts.errors import (
    ArtifactConflictError,
    ArtifactCorruptError,
    ArtifactGlobError,
    ArtifactMissingError,
)
from headbay.activities.artifacts.manifest import Manifest, ManifestEntry
from headbay.activities.artifacts.placing import place_file
from headbay.activities.artifacts.reader import Reader
from headbay.activities.places import BadNameError
from headbay.domain.attempt import ArtifactsRef
from headbay.domain.ids import STEP_NAME, WORKLOAD_ID

__all__ = ["DirectoryStore"]

CHUNK: Final = 1024 * 1024
MAX_MANIFEST_BYTES: Final = 16 * 2**20
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class DirectoryStore:
    """`headbay.activities.artifacts.ArtifactStore` in a directory; see there for the promises."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tmp = root / "tmp"

    def put_bytes(self, data: bytes) -> str:
        """Keep some bytes."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self.has(sha256, len(data)):
            fsync_folder(self._blob(sha256).parent)
            return sha256
        return self._put(io.BytesIO(data))[0]

    def put_file(self, path: Path) -> tuple[str, int]:
        """Keep a file's contents."""
        with path.open("rb") as source:
            return self._put(source)

    def has(self, sha256: str, size_bytes: int | None = None) -> bool:
        """Whether the blob is there."""
        try:
            size = self._blob(sha256).stat().st_size
        except FileNotFoundError:
            return False
        return size_bytes in (None, size)

    def open(self, sha256: str) -> BinaryIO:
        """Read a blob in parts."""
        try:
            file = self._blob(sha256).open("rb", buffering=0)
        except FileNotFoundError as error:
            raise ArtifactMissingError(sha256) from error
        return io.BufferedReader(_Verified(file, sha256), CHUNK)

    def read(self, sha256: str, *, max_bytes: int | None = None) -> bytes:
        """A whole blob."""
        with self.open(sha256) as blob:
            if max_bytes is None:
                return blob.read()
            # One byte more than allowed also reaches the end, where the digest is verified.
            data = blob.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise ValueError(f"{sha256} is larger than {max_bytes} bytes")
        return data

    def get_to(self, sha256: str, path: Path, *, mode: int = 0o444) -> int:
        """Copy a blob to a path."""
        with self.open(sha256) as blob, draft(path.parent) as (file, name):
            size = _copy(blob, file)
            file.flush()
            os.fchmod(file.fileno(), mode)
            name.rename(path)
        return size

    def collect(
        self,
        root: Path,
        globs: list[str],
        limits: Limits | None = None,
        reader: Reader | None = None,
    ) -> Manifest:
        """Keep the files that globs name below a folder."""
        limits = limits or Limits()
        entries: list[ManifestEntry] = []
        left = limits.total_bytes
        with closing(find_files(root, globs, limits, reader)) as found:
            for path, descriptor, glob in found:
                with os.fdopen(descriptor, "rb", closefd=False) as source:
                    try:
                        sha256, size = self._put(source, max_bytes=left)
                    except _TooLargeError as error:
                        why = f"more than {limits.total_bytes} bytes in all"
                        raise ArtifactGlobError(glob, why, path) from error
                left -= size
                mode = os.fstat(descriptor).st_mode & 0o777
                entries.append(ManifestEntry(path=path, mode=mode, sha256=sha256, size_bytes=size))
        return Manifest(entries=tuple(entries))

    def keep(
        self, workload: str, step: str, attempt: int, fence: int, manifest: Manifest
    ) -> ArtifactsRef:
        """Name a manifest by attempt and fence."""
        place = self._place(workload, step, attempt, fence)
        for entry in manifest.entries:
            if not self.has(entry.sha256, entry.size_bytes):
                raise ArtifactMissingError(entry.sha256)
        text = manifest.canonical()
        self.put_bytes(text)
        ensure_folder(place.parent, self._root)
        with self._draft() as (file, name):
            file.write(text)
            _sync(file)
            try:
                os.link(name, place)
            except FileExistsError as error:
                if place.read_bytes() != text:
                    raise ArtifactConflictError(str(place.relative_to(self._root))) from error
        fsync_folder(place.parent)
        return manifest.ref()

    def kept(self, workload: str, step: str, attempt: int, fence: int) -> Manifest | None:
        """The manifest of that name."""
        try:
            text = self._place(workload, step, attempt, fence).read_bytes()
        except FileNotFoundError:
            return None
        return Manifest.parse(text)

    def manifest(self, sha256: str) -> Manifest:
        """The manifest with that digest."""
        text = self.read(sha256, max_bytes=MAX_MANIFEST_BYTES)
        try:
            return Manifest.parse(text)
        except ValueError as error:
            raise ArtifactCorruptError(sha256, "it is no manifest") from error

    def materialise(self, manifest: Manifest, folder: Path) -> None:
        """Write a manifest's files below a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for entry in manifest.entries:
            with self.open(entry.sha256) as blob:
                # Readable whatever its maker set: a dependent may run as another user.
                mode = (entry.mode | 0o444) & 0o555
                place_file(folder, entry.path, mode, partial(_copy, blob))

    def sweep(self, older_than_s: float = 3_600) -> int:
        """Remove what killed writers left."""
        return sweep(self._tmp, older_than_s) if self._tmp.is_dir() else 0

    # -- inside --------------------------------------------------------------------------------

    def _blob(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise ArtifactMissingError(sha256)
        return self._root / "blobs" / "sha256" / sha256[:2] / sha256

    def _place(self, workload: str, step: str, attempt: int, fence: int) -> Path:
        if not WORKLOAD_ID.fullmatch(workload) or workload in (".", ".."):
            raise BadNameError("workload", workload)
        if not STEP_NAME.fullmatch(step):
            raise BadNameError("step", step)
        return self._root / "attempts" / workload / step / f"a{attempt}.f{fence}.json"

    @contextmanager
    def _draft(self) -> Iterator[tuple[BinaryIO, Path]]:
        ensure_folder(self._tmp, self._root)
        with draft(self._tmp) as drafted:
            yield drafted

    def _put(self, source: BinaryIO, *, max_bytes: int | None = None) -> tuple[str, int]:
        """Copy, fsync, and give the copy its name, unless a blob of that name and size is there.

        The name is given only to complete contents, so that a blob that exists is whole; one of
        another size is damage by other hands and is replaced.
        """
        digest, size = hashlib.sha256(), 0
        with self._draft() as (file, name):
            while chunk := source.read(CHUNK):
                size += len(chunk)
                if max_bytes is not None and size > max_bytes:
                    raise _TooLargeError
                digest.update(chunk)
                file.write(chunk)
            sha256 = digest.hexdigest()
            blob = self._blob(sha256)
            if not self.has(sha256, size):
                _sync(file)
                os.fchmod(file.fileno(), 0o444)
                ensure_folder(blob.parent, self._root)
                name.rename(blob)
        fsync_folder(blob.parent)
        return sha256, size


class _TooLargeError(Exception):
    """The source has more bytes than allowed."""


class _Verified(io.RawIOBase):
    """A file that is compared with its digest as it is read."""

    def __init__(self, file: io.FileIO, sha256: str) -> None:
        super().__init__()
        self._file = file
        self._sha256 = sha256
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        """It can be read, and nothing else."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """The next bytes.

        Raises:
            ArtifactCorruptError: At the end, if what was read is not what the name promises.
        """
        count = self._file.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        if count == 0 and len(buffer) and self._digest.hexdigest() != self._sha256:
            raise ArtifactCorruptError(self._sha256, "its bytes have another digest")
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _copy(source: BinaryIO, target: BinaryIO) -> int:
    size = 0
    while chunk := source.read(CHUNK):
        size += target.write(chunk)
    return size


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
