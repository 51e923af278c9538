"""The port every artifact store implements. Synchronous: callers use threads."""

from pathlib import Path
from typing import BinaryIO, Protocol

from headbay.activities.artifacts.collecting import Limits
from headbay.activities.artifacts.manifest import Manifest
from headbay.activities.artifacts.reader import Reader
from headbay.domain.attempt import ArtifactsRef

__all__ = ["ArtifactStore"]


class ArtifactStore(Protocol):
    """Content-addressed, immutable blobs, and manifests named by attempt and fence.

    What a method that writes has returned for is durable. All may be called at the same time from
    many threads and processes, and again after any failure. Faults of the disk are OSError.
    """

    def put_bytes(self, data: bytes) -> str:
        """Keep some bytes; their SHA-256 in hex."""
        ...

    def put_file(self, path: Path) -> tuple[str, int]:
        """Keep a file's contents; SHA-256 and size of what was kept."""
        ...

    def has(self, sha256: str, size_bytes: int | None = None) -> bool:
        """Whether the blob is there (and has that size)."""
        ...

    def open(self, sha256: str) -> BinaryIO:
        """Read a blob in parts; its digest is verified when the end is reached.

        Raises:
            ArtifactMissingError: It is not there.
            ArtifactCorruptError: While reading: its bytes are damaged.
        """
        ...

    def read(self, sha256: str, *, max_bytes: int | None = None) -> bytes:
        """A whole blob, verified.

        Raises:
            ArtifactMissingError, ArtifactCorruptError: As `open`.
            ValueError: It is larger than ``max_bytes``.
        """
        ...

    def get_to(self, sha256: str, path: Path, *, mode: int = 0o444) -> int:
        """Copy a blob to a path, all or nothing, verified; its size.

        Raises:
            ArtifactMissingError, ArtifactCorruptError: As `open`.
        """
        ...

    def collect(
        self,
        root: Path,
        globs: list[str],
        limits: Limits | None = None,
        reader: Reader | None = None,
    ) -> Manifest:
        """Keep the files that globs name below a folder, and that the reader may read.

        Raises:
            ArtifactGlobError: See `headbay.activities.artifacts.collecting.find_files`; also if a
                limit is exceeded.
        """
        ...

    def keep(
        self, workload: str, step: str, attempt: int, fence: int, manifest: Manifest
    ) -> ArtifactsRef:
        """Name a manifest by attempt and fence; the manifest becomes a blob itself.

        Raises:
            ArtifactMissingError: It names a blob that is not there.
            ArtifactConflictError: Another one has this name.
        """
        ...

    def kept(self, workload: str, step: str, attempt: int, fence: int) -> Manifest | None:
        """The manifest of that name."""
        ...

    def manifest(self, sha256: str) -> Manifest:
        """The manifest with that digest.

        Raises:
            ArtifactMissingError, ArtifactCorruptError: As `open`; also if it is no manifest.
        """
        ...

    def materialise(self, manifest: Manifest, folder: Path) -> None:
        """Write a manifest's files below a folder, verified and read-only.

        Files that are there already are replaced. Nothing is written through a symbolic link:
        such a part of a path is an OSError.

        Raises:
            ArtifactMissingError, ArtifactCorruptError: As `open`.
        """
        ...

    def sweep(self, older_than_s: float = 3_600) -> int:
        """Remove what killed writers left; how many files."""
        ...
