"""The embedded ledger: one SQLite file.

One thread writes and one reads, each with a connection of its own, so that the event loop never
waits for the disk and long reads never hold up writers (WAL). Several processes may use one file.

``synchronous=FULL``: what `append` acknowledged must survive a power failure, and under WAL the
cheaper NORMAL may lose the last commits then. A commit costs one fsync, and a batch one commit.

Source: https://www.sqlite.org/pragma.html#pragma_synchronous
"""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from headbay.activities.ledger import batch
from headbay.activities.ledger.base import SqlLedger
from headbay.activities.ledger.errors import (
    BadLedgerUrlError,
    LedgerSchemaError,
    LedgerUnavailableError,
)
from headbay.activities.ledger.projection import Entry
from headbay.activities.ledger.statements import check_applied, load_migrations, load_statements
from headbay.activities.places import private
from headbay.domain.journal import JournalEvent

__all__ = ["SqliteLedger"]

T = TypeVar("T")
Parameters = Mapping[str, Any]

DIALECT: Final = "sqlite"
BUSY_S: Final = 5.0
"""How long to wait for another process's transaction."""
SQL: Final = load_statements(DIALECT)


class _Lane:
    """One thread with one connection, which is opened when first needed and after every fault."""

    def __init__(self, path: Path, url: str, *, writes: bool) -> None:
        self._path = path
        self._url = url
        self._writes = writes
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        name = "ledger-writer" if writes else "ledger-reader"
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work on the thread. A writer's work is one transaction."""
        if self._closed:
            raise LedgerUnavailableError(self._url, "it was closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._run, work)

    async def close(self) -> None:
        """Finish what was begun, and close."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=True)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._open()
            with _transaction(self._connection, writes=self._writes):
                return work(self._connection)
        except sqlite3.OperationalError as error:
            self._drop()
            if "no such table" in str(error) or "no such column" in str(error):
                why = f"has not been migrated ({error}): start a control worker, or migrate it"
                raise LedgerSchemaError(self._url, why) from error
            raise LedgerUnavailableError(self._url, str(error)) from error
        except sqlite3.DatabaseError as error:
            self._drop()
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            raise LedgerSchemaError(
                self._url, f"cannot be read ({error}): restore it, or move it away and start anew"
            ) from error

    def _open(self) -> sqlite3.Connection:
        """Only a writer makes the file: who merely looks must not leave an empty one.

        An existing file is never opened but by SQLite: closing any descriptor of it would drop
        the locks that this process's other connection holds, and then the next reader of another
        process takes itself for the last one and deletes the write-ahead log that is in use.
        Source: https://www.sqlite.org/howtocorrupt.html §2.2.
        """
        try:
            if self._writes:
                private(self._path.parent)
                with suppress(FileExistsError):
                    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    os.close(os.open(self._path, flags, 0o600))
            else:
                self._path.stat()
        except OSError as error:
            raise LedgerUnavailableError(self._url, str(error)) from error
        connection = sqlite3.connect(
            self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            if self._writes:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
            else:
                connection.execute("PRAGMA query_only=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def _transaction(connection: sqlite3.Connection, *, writes: bool) -> Iterator[None]:
    """IMMEDIATE for writers: one that read first could not become a writer beside another."""
    connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class SqliteLedger(SqlLedger):
    """`headbay.activities.ledger.Ledger` in one file; see there for what the methods promise."""

    def __init__(self, path: Path) -> None:
        self._url = f"sqlite:///{path}"
        self._writer = _Lane(path, self._url, writes=True)
        self._reader = _Lane(path, self._url, writes=False)

    @classmethod
    def of_url(cls, url: str) -> Self:
        """``sqlite:///PATH``; the path is absolute, with three or four slashes."""
        rest = url.removeprefix("sqlite://")
        if rest == url or not rest.startswith("/") or rest.rstrip("/") == "":
            raise BadLedgerUrlError(f"{url!r} names no file: write sqlite:////path/to/ledger.db")
        return cls(Path("/" + rest.lstrip("/")))

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    async def migrate(self, *, dry_run: bool = False) -> list[str]:
        """Bring the tables up to date."""
        return await self._writer.run(lambda c: _migrate(c, self._url, dry_run=dry_run))

    async def append(self, events: Sequence[JournalEvent]) -> int:
        """Write events and what follows from them."""
        entries = batch.distinct(events)
        return await self._writer.run(lambda c: _append(c, entries)) if entries else 0

    async def close(self) -> None:
        """Let go of the file."""
        await self._reader.close()
        await self._writer.close()

    async def _rows(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        return await self._reader.run(lambda c: _select(c, statement, parameters))

    async def _change(self, statement: str, **parameters: Any) -> int:
        return await self._writer.run(lambda c: c.execute(SQL[statement], parameters).rowcount)


def _select(
    connection: sqlite3.Connection, statement: str, parameters: Parameters
) -> list[dict[str, Any]]:
    cursor = connection.execute(SQL[statement], parameters)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _entries(
    connection: sqlite3.Connection, statement: str, keys: Iterable[Parameters]
) -> list[Entry]:
    return [Entry(*row) for key in keys for row in connection.execute(SQL[statement], key)]


def _append(connection: sqlite3.Connection, entries: list[Entry]) -> int:
    """Write a batch.

    1. Insert what is new. 2. Fold the steps that got new events from their whole journal. 3. The
    same for workloads.
    """
    workloads = batch.touched(entries)
    connection.executemany(SQL["touch_workload"], workloads)
    finished = {
        row[0]
        for workload in workloads
        for row in connection.execute(SQL["finished_workload"], workload)
    }
    insert = SQL["insert_event"]
    new = [e for e in entries if connection.execute(insert, e._asdict()).rowcount == 1]
    if not new:
        return 0
    connection.executemany(SQL["touch_run"], batch.touch_runs(new))
    _fold_steps(connection, batch.steps_of(new))
    _fold_workloads(connection, batch.workloads_of(new, finished))
    return len(new)


def _fold_steps(connection: sqlite3.Connection, steps: Sequence[tuple[str, str]]) -> None:
    keys = [{"workload": workload, "step": step} for workload, step in steps]
    folded = batch.fold_steps(steps, _entries(connection, "events_of_step", keys))
    connection.executemany(SQL["delete_attempts"], keys)
    connection.executemany(SQL["insert_attempt"], folded.attempts)
    connection.executemany(SQL["save_step"], folded.steps)


def _fold_workloads(connection: sqlite3.Connection, workloads: Sequence[str]) -> None:
    keys = [{"workload": workload} for workload in workloads]
    runs = [r for key in keys for r in connection.execute(SQL["runs_of_workload"], key)]
    events = _entries(connection, "events_of_workload", keys)
    rows = batch.fold_workloads(workloads, events, runs)
    connection.executemany(SQL["delete_labels"], keys)
    connection.executemany(SQL["insert_label"], batch.label_rows(rows))
    saved = [row | {"labels": json.dumps(row["labels"])} for row in rows]
    connection.executemany(SQL["save_workload"], saved)


def _migrate(connection: sqlite3.Connection, url: str, *, dry_run: bool) -> list[str]:
    exists = connection.execute(SQL["has_migration_table"]).fetchone() is not None
    applied = dict(connection.execute(SQL["applied_migrations"])) if exists else {}
    pending, fault = check_applied(load_migrations(DIALECT), applied)
    if fault:
        raise LedgerSchemaError(url, fault)
    if dry_run:
        return [migration.name for migration in pending]
    if not exists:
        connection.execute(SQL["create_migration_table"])
    for migration in pending:
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            SQL["record_migration"],
            {
                "number": migration.number,
                "name": migration.name,
                "checksum": migration.checksum,
                "applied_ms": time.time_ns() // 1_000_000,
            },
        )
    return [migration.name for migration in pending]


def _statements(script: str) -> Iterator[str]:
    """Statements of a script, one by one: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError(f"unfinished statement in a migration: {statement[:80]!r}")
