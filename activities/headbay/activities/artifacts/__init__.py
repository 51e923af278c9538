"""Artifacts: what attempts leave behind, kept by content and named by fence."""

from headbay.activities.artifacts.collecting import Limits
from headbay.activities.artifacts.directory import DirectoryStore
from headbay.activities.artifacts.errors import (
    ArtifactConflictError,
    ArtifactCorruptError,
    ArtifactGlobError,
    ArtifactMissingError,
)
from headbay.activities.artifacts.manifest import Manifest, ManifestEntry
from headbay.activities.artifacts.port import ArtifactStore
from headbay.activities.artifacts.reader import Reader

__all__ = [
    "ArtifactConflictError",
    "ArtifactCorruptError",
    "ArtifactGlobError",
    "ArtifactMissingError",
    "ArtifactStore",
    "DirectoryStore",
    "Limits",
    "Manifest",
    "ManifestEntry",
    "Reader",
]
