"""What can go wrong with artifacts, beside the disk itself (OSError)."""

from typing import ClassVar

from headbay.domain.errors import HeadbayError

__all__ = [
    "ArtifactConflictError",
    "ArtifactCorruptError",
    "ArtifactGlobError",
    "ArtifactMissingError",
]


class ArtifactGlobError(HeadbayError):
    """What an ``artifacts`` entry names cannot be kept; the attempt's fault, not the store's.

    Attributes:
        glob: The entry. path: The file that was refused, relative, "" if it is about none.
    """

    code: ClassVar[str] = "ARTIFACT_REFUSED"

    def __init__(self, glob: str, why: str, path: str = "") -> None:
        super().__init__(f"artifacts: {glob!r}: {why}")
        self.glob = glob
        self.path = path


class ArtifactMissingError(HeadbayError):
    """The store has no such blob.

    Attributes:
        sha256: Its digest.
    """

    code: ClassVar[str] = "ARTIFACT_MISSING"

    def __init__(self, sha256: str) -> None:
        super().__init__(
            f"the artifact store has no {sha256}: it was pruned, or this node uses another store "
            "than the one that kept it (compare HEADBAY_ARTIFACTS)"
        )
        self.sha256 = sha256


class ArtifactCorruptError(HeadbayError):
    """A blob's bytes are not those that its name promises.

    Attributes:
        sha256: The digest it is named by.
    """

    code: ClassVar[str] = "ARTIFACT_CORRUPT"

    def __init__(self, sha256: str, why: str) -> None:
        super().__init__(
            f"the artifact store's {sha256} is damaged ({why}): check its disk; running the step "
            "that made it again replaces it"
        )
        self.sha256 = sha256


class ArtifactConflictError(HeadbayError):
    """Another manifest is already kept under this attempt and fence.

    Attributes:
        place: Its name in the store.
    """

    code: ClassVar[str] = "ARTIFACT_CONFLICT"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} is already kept with other contents: an attempt under one fence ends once; "
            "this is a fault in Headbay, please report it"
        )
        self.place = place
