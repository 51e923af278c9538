"""A secret that exists once in the world, and the search for it where it must not be."""

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from headbay.activities.executor.shim.kernel import process_stat


@dataclass(frozen=True)
class Canary:
    """A random value, of letters and digits, so that JSON writes it as it is."""

    value: str = field(default_factory=lambda: f"canary{secrets.token_hex(24)}")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.value.encode()).hexdigest()

    @property
    def forms(self) -> list[bytes]:
        """As it is, in hex, and in Base64 at each of the three places where it may begin."""
        raw = self.value.encode()
        found = [raw, raw.hex().encode()]
        for before in range(3):
            whole = base64.b64encode(b"\0" * before + raw)
            first = -(-before * 4 // 3)
            found.append(whole[first:-4])
        return found

    def within(self, data: bytes) -> bool:
        return any(form in data for form in self.forms)

    def files(self, root: Path, spared: Path) -> list[str]:
        """Files below ``root`` that hold it, those below ``spared`` left out."""
        return [
            str(path)
            for path in root.rglob("*")
            if path.is_file() and not path.is_relative_to(spared) and self.within(_bytes(path))
        ]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # Gone since it was listed.
        return b""


def below(root: int, spared: int) -> list[int]:
    """A process and all below it, but for ``spared`` and what is below that."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        stat = process_stat(int(entry.name)) if entry.name.isdigit() else None
        if stat is not None and stat[0] not in "ZX":
            children.setdefault(stat[1], []).append(int(entry.name))
    found, roots = [], [root]
    while roots:
        one = roots.pop()
        if one != spared:
            found.append(one)
            roots += children.get(one, ())
    return found
