"""Files that Headbay writes outside of its own folders, known by a stamp in their first line.

Never in here: a change of a file that somebody else wrote, or changed, unless it is asked for.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from headbay.domain.errors import HeadbayError

__all__ = ["ForeignFileError", "Managed", "State"]

State = Literal["absent", "unchanged", "outdated", "foreign"]

STAMP = "# Written by `headbay node install`; sha256 of what follows:"


class ForeignFileError(HeadbayError):
    """A file is not as Headbay wrote it.

    Attributes:
        path: The file.
    """

    code: ClassVar[str] = "FOREIGN_FILE"

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was not written by Headbay, or was changed since: move it away, or give "
            "--force to replace it"
        )
        self.path = path


@dataclass(frozen=True)
class Managed:
    """One file that is ours.

    Attributes:
        body: What it is to hold, without the stamp.
        mode: Its permissions.
    """

    path: Path
    body: str
    mode: int

    @property
    def text(self) -> str:
        """All of it."""
        return f"{STAMP} {_digest(self.body)}\n{self.body}"

    def state(self) -> State:
        """What is there now.

        Raises:
            OSError: It cannot be read.
        """
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
            mode = self.path.stat().st_mode & 0o7777
        except FileNotFoundError:
            return "absent"
        if text == self.text:
            return "unchanged" if mode == self.mode else "outdated"
        return "outdated" if _ours(text) else "foreign"

    def write(self) -> None:
        """Put it in its place, whole or not at all, and never readable by more than it may be.

        Raises:
            OSError: It could not be written.
        """
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self.text)
                file.flush()
                os.fchmod(descriptor, self.mode)
                os.fsync(descriptor)
            draft.replace(self.path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _ours(text: str) -> bool:
    first, _, body = text.partition("\n")
    return first == f"{STAMP} {_digest(body)}"
