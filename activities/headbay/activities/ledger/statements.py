"""Reads the SQL that lives beside this module: named statements and numbered migrations."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["Migration", "check_applied", "load_migrations", "load_statements"]

_NAME: Final = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True)
class Migration:
    """One numbered step of the schema.

    Attributes:
        number: From 1, without gaps.
        checksum: SHA-256 of the file: one that was applied must never change.
    """

    number: int
    name: str
    sql: str
    checksum: str


@cache
def load_statements(dialect: str) -> Mapping[str, str]:
    """Statements of a dialect by name: each follows a line ``-- name: …`` in one of its files."""
    found: dict[str, str] = {}
    for file in (files("headbay.activities.ledger") / "sql" / dialect).iterdir():
        if not file.name.endswith(".sql"):
            continue
        parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, sql in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"{dialect} statement {name} is there twice")
            found[name] = sql.strip()
    return found


@cache
def load_migrations(dialect: str) -> tuple[Migration, ...]:
    """Migrations of a dialect, in order."""
    found = []
    for file in (files("headbay.activities.ledger") / "sql" / dialect / "migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match is None:
            raise ValueError(f"{file.name} is not named like a migration")
        sql = file.read_text(encoding="utf-8")
        checksum = hashlib.sha256(sql.encode()).hexdigest()
        found.append(Migration(int(match[1]), f"{match[1]}_{match[2]}", sql, checksum))
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"{dialect} migrations are not numbered 1, 2, 3, …")
    return tuple(found)


def check_applied(
    migrations: tuple[Migration, ...], applied: Mapping[int, str]
) -> tuple[list[Migration], str]:
    """What is still to be applied, and what forbids it.

    Args:
        migrations: All that this version knows.
        applied: Number and checksum of those that the database has seen.

    Returns:
        Pending migrations, and the end of a sentence that begins with the ledger's name ("" if
        all is well).
    """
    known = {migration.number: migration for migration in migrations}
    newer = sorted(applied.keys() - known.keys())
    if newer:
        return [], (
            f"was migrated by a newer Headbay (schema {newer[-1]}, this one knows "
            f"{len(migrations)}): upgrade this Headbay"
        )
    for number, checksum in sorted(applied.items()):
        if known[number].checksum != checksum:
            return [], (
                f"has applied another text of migration {known[number].name} than this Headbay "
                "carries: use the version that created it, or start a new ledger"
            )
    return [m for m in migrations if m.number not in applied], ""
