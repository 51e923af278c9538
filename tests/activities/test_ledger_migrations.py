"""Schemas are brought up to date once, and never by guesswork."""

import asyncio
import hashlib
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.journal import one_step

from headbay.activities.ledger import (
    BadLedgerUrlError,
    Ledger,
    LedgerSchemaError,
    open_ledger,
)
from headbay.activities.ledger.statements import (
    Migration,
    check_applied,
    load_migrations,
    load_statements,
)

ROOT = Path(__file__).parents[2]


def run_sql(url: str, sql: str) -> list[Any]:
    """Straight to the database, past the ledger."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            rows = connection.execute(sql).fetchall()
        connection.close()
        return rows
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


async def test_migrating_twice_applies_nothing_the_second_time(ledger_url: str):
    ledger = open_ledger(ledger_url)
    names = await ledger.migrate(dry_run=True)
    assert names[0] == "0001_journal"
    with pytest.raises(LedgerSchemaError, match="has not been migrated"):
        await ledger.append(one_step("w"))
    assert await ledger.migrate() == names
    assert await ledger.migrate() == []
    assert await ledger.migrate(dry_run=True) == []
    await ledger.append(one_step("w"))
    await ledger.close()
    applied = run_sql(ledger_url, "SELECT name, applied_ms FROM headbay_migration ORDER BY number")
    assert [name for name, _ in applied] == names
    assert all(applied_ms > 1_600_000_000_000 for _, applied_ms in applied)


async def test_processes_that_start_together_migrate_once(ledger_url: str):
    ledgers = [open_ledger(ledger_url) for _ in range(4)]
    done = await asyncio.gather(*(ledger.migrate() for ledger in ledgers))
    assert sorted(len(names) for names in done)[:3] == [0, 0, 0]
    assert max(done) != []
    for ledger in ledgers:
        await ledger.close()


async def test_a_newer_schema_is_refused(ledger: Ledger, ledger_url: str):
    run_sql(ledger_url, "INSERT INTO headbay_migration VALUES (9000, '9000_later', 'x', 1)")
    with pytest.raises(LedgerSchemaError, match=r"newer Headbay \(schema 9000.*upgrade"):
        await ledger.migrate()


async def test_a_changed_migration_is_refused(ledger: Ledger, ledger_url: str):
    run_sql(ledger_url, "UPDATE headbay_migration SET checksum = 'x' WHERE number = 1")
    with pytest.raises(LedgerSchemaError, match="another text of migration 0001_journal"):
        await ledger.migrate()


async def test_the_journal_cannot_be_rewritten_even_by_hand(ledger: Ledger, ledger_url: str):
    await ledger.append(one_step("w"))
    for sql in ("UPDATE event SET reason = 'x'", "DELETE FROM event"):
        with pytest.raises((sqlite3.IntegrityError, psycopg.Error), match="append-only"):
            run_sql(ledger_url, sql)
    assert await ledger.events("w") == one_step("w")


def test_pending_migrations_are_those_that_were_not_applied():
    made = tuple(Migration(n, f"{n:04}_x", "", f"sum-{n}") for n in (1, 2, 3))
    assert check_applied(made, {1: "sum-1"}) == ([made[1], made[2]], "")
    assert check_applied(made, {1: "sum-1", 2: "sum-2", 3: "sum-3"}) == ([], "")


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_applied_migrations_keep_their_text(dialect: str):
    """Ledgers in the field carry these checksums: add a migration, never change one."""
    published = {"sqlite": {1: SQLITE_1}, "postgresql": {1: POSTGRESQL_1}}[dialect]
    carried = {m.number: m.checksum for m in load_migrations(dialect)}
    assert {number: carried[number] for number in published} == published
    for migration in load_migrations(dialect):
        assert hashlib.sha256(migration.sql.encode()).hexdigest() == migration.checksum


SQLITE_1 = "c3e8e38fbb9ffd100044ff7d3e8ca2517e29b7db462e432e87dc741a428dcfa6"
POSTGRESQL_1 = "0d8723cae9e6d71042f937f719fae273c70f11acadef7ba19668789e795e112d"


def test_both_dialects_answer_the_same_questions():
    shared = set(load_statements("sqlite")) & set(load_statements("postgresql"))
    assert {"has_end", "list_workloads", "missing_ranges", "claim_key", "raise_fence"} <= shared


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ledger.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://relative.db",
        "mysql://secret@host/db",
        "postgresql://user:secret@host:port/x?nonsense=1",
    ],
)
def test_a_url_that_names_no_ledger_is_refused_without_repeating_a_password(url: str):
    with pytest.raises(BadLedgerUrlError) as caught:
        open_ledger(url)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_url_is_shown_without_its_password():
    ledger = open_ledger("postgres://ann:secret@db.example:5433/headbay?password=secret")
    assert ledger.url == "postgresql://ann@db.example:5433/headbay"
    await ledger.close()


def test_the_wheel_carries_every_statement_and_migration(tmp_path: Path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    [wheel] = tmp_path.glob("headbay-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sql = ROOT / "activities"
    wanted = {str(path.relative_to(sql)) for path in sql.rglob("*.sql")}
    assert len(wanted) >= 8
    assert wanted <= names
