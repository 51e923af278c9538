"""How commands name the files they read."""

from pathlib import Path
from typing import Final

__all__ = ["STDIN", "source_of"]

STDIN: Final = Path("/dev/stdin")
"""What ``-`` stands for."""


def source_of(file: Path) -> Path:
    """The file as `headbay.client.source` names it."""
    return Path("-") if file == STDIN else file
