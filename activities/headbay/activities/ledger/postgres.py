"""The shared ledger: PostgreSQL.

Give it a database or a schema of its own (``?options=-csearch_path%3Dheadbay``). Connections are
made when needed and replaced after faults, so that it works again by itself after the server was
restarted. What `append` acknowledged is durable: ``synchronous_commit`` is never left off.

Writers of several processes may bring events of the same workload at the same time. Each locks
its workloads' rows first, in order of their ids: so each folds what the one before committed, and
they cannot deadlock.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from headbay.activities.ledger import batch
from headbay.activities.ledger.base import SqlLedger
from headbay.activities.ledger.errors import (
    BadLedgerUrlError,
    LedgerSchemaError,
    LedgerUnavailableError,
)
from headbay.activities.ledger.projection import Entry, Row, storable
from headbay.activities.ledger.statements import check_applied, load_migrations, load_statements
from headbay.domain.journal import JournalEvent

__all__ = ["PostgresLedger"]

DIALECT: Final = "postgresql"
SQL: Final = {name: sql.encode() for name, sql in load_statements(DIALECT).items()}

CONNECTIONS: Final = 4
CONNECTION_WITHIN_S: Final = 2.0
ANSWER_WITHIN_S: Final = 10.0
IDLE_S: Final = 300.0

AWAY: Final = (
    psycopg.OperationalError,  # also PoolTimeout, shutdown, deadlock, disk full, too slow
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,  # a standby, in the middle of a fail-over
    PoolClosed,
)
UNMIGRATED: Final = (errors.UndefinedTable, errors.UndefinedColumn)


@dataclass
class _Fault:
    """Why the last attempt to connect failed; the pool itself only tells that it waited."""

    text: str = ""


class _Connection(AsyncConnection[TupleRow]):
    """A connection that tells why it could not be made."""

    @classmethod
    async def connect(  # type: ignore[override]  # one keyword argument more
        cls, conninfo: str = "", *, fault: _Fault, **kwargs: Any
    ) -> AsyncConnection[TupleRow]:
        try:
            connection = await super().connect(conninfo, **kwargs)
        except psycopg.Error as error:
            fault.text = str(error).strip()
            raise
        fault.text = ""
        return connection


class PostgresLedger(SqlLedger):
    """`headbay.activities.ledger.Ledger` in PostgreSQL; see there for what the methods promise."""

    def __init__(self, conninfo: str, shown_url: str) -> None:
        self._url = shown_url
        self._fault = _Fault()
        self._pool = AsyncConnectionPool(
            conninfo,
            connection_class=_Connection,
            kwargs={
                "fault": self._fault,
                "autocommit": True,
                "connect_timeout": 2,
                "application_name": "headbay",
                "tcp_user_timeout": int(ANSWER_WITHIN_S * 1_000),
            },
            min_size=0,
            max_size=CONNECTIONS,
            timeout=CONNECTION_WITHIN_S,
            max_idle=IDLE_S,
            # Give up at once and try anew when asked: its own retries back off into minutes.
            reconnect_timeout=CONNECTION_WITHIN_S / 2,
            configure=_configure,
            open=False,
            name="headbay-ledger",
        )
        self._opening = asyncio.Lock()
        self._opened = False

    @classmethod
    def of_url(cls, url: str) -> Self:
        """``postgresql://[user[:password]@][host][:port][/database][?…]``, as libpq reads it."""
        try:
            told = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # Not chained: its message may repeat the URL, and with it a password.
            raise BadLedgerUrlError(
                "this postgresql:// URL cannot be read; percent-encode special characters in user "
                "and password"
            ) from None
        user = f"{told['user']}@" if told.get("user") else ""
        port = f":{told['port']}" if told.get("port") else ""
        shown = f"postgresql://{user}{told.get('host') or ''}{port}/{told.get('dbname') or ''}"
        return cls(url, shown)

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self._url

    async def migrate(self, *, dry_run: bool = False) -> list[str]:
        """Bring the tables up to date."""
        async with self._connection() as connection, connection.transaction():
            await connection.execute(SQL["lock_migrations"])
            return await self._migrate(connection, dry_run=dry_run)

    async def append(self, events: Sequence[JournalEvent]) -> int:
        """Write events and what follows from them."""
        entries = batch.distinct(events)
        if not entries:
            return 0
        async with self._connection() as connection, connection.transaction():
            return await _append(connection, entries)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def _rows(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        async with self._connection() as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(SQL[statement], _fit(parameters))
            return await cursor.fetchall()

    async def _change(self, statement: str, **parameters: Any) -> int:
        async with self._connection() as connection:
            cursor = await connection.execute(SQL[statement], _fit(parameters))
            return cursor.rowcount

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        """A connection that has just answered; faults become the port's errors."""
        try:
            await self._open()
            connection = await self._take()
            try:
                with _deadline(connection, ANSWER_WITHIN_S):
                    yield connection
            finally:
                await self._pool.putconn(connection)
        except UNMIGRATED as error:
            why = f"has not been migrated ({_line(error)}): start a control worker, or migrate it"
            raise LedgerSchemaError(self._url, why) from error
        except AWAY as error:
            raise LedgerUnavailableError(self._url, self._why(error)) from error

    async def _take(self) -> _Connection:
        """A connection that has just answered.

        After an outage all that wait in the pool are dead: each is tried and replaced at once. The
        pool's own check would pause longer and longer between them.
        """
        for _ in range(CONNECTIONS):
            connection = await self._pool.getconn()
            try:
                await _check(connection)
            except BaseException as error:
                await self._pool.putconn(connection)
                if not isinstance(error, psycopg.OperationalError):
                    raise
            else:
                return connection
        return await self._pool.getconn()

    def _why(self, error: BaseException) -> str:
        if isinstance(error, PoolTimeout) and self._fault.text:
            return _line(self._fault.text)
        return _line(error)

    async def _open(self) -> None:
        async with self._opening:
            if not self._opened:
                await self._pool.open(wait=False)
                self._opened = True

    async def _migrate(self, connection: AsyncConnection[TupleRow], *, dry_run: bool) -> list[str]:
        cursor = await connection.execute(SQL["has_migration_table"])
        exists = bool((await cursor.fetchall())[0][0])
        applied: dict[int, str] = {}
        if exists:
            cursor = await connection.execute(SQL["applied_migrations"])
            applied = {int(number): str(checksum) for number, checksum in await cursor.fetchall()}
        pending, fault = check_applied(load_migrations(DIALECT), applied)
        if fault:
            raise LedgerSchemaError(self._url, fault)
        if dry_run:
            return [migration.name for migration in pending]
        if not exists:
            await connection.execute(SQL["create_migration_table"])
        for migration in pending:
            await connection.execute(migration.sql.encode())
            await connection.execute(
                SQL["record_migration"],
                {
                    "number": migration.number,
                    "name": migration.name,
                    "checksum": migration.checksum,
                    "applied_ms": time.time_ns() // 1_000_000,
                },
            )
        return [migration.name for migration in pending]


async def _configure(connection: AsyncConnection[TupleRow]) -> None:
    with _deadline(connection, CONNECTION_WITHIN_S):
        await connection.execute(SQL["configure"])


async def _check(connection: AsyncConnection[TupleRow]) -> None:
    """Whether a connection from the pool still leads somewhere."""
    with _deadline(connection, CONNECTION_WITHIN_S):
        await connection.execute(b"")


@contextmanager
def _deadline(connection: AsyncConnection[TupleRow], seconds: float) -> Iterator[None]:
    """Cut a connection whose server does not answer in time; what waits for it then fails.

    Cancelling the waiting task instead would first ask that same server to cancel, and wait again.
    """
    timer = asyncio.get_running_loop().call_later(seconds, _cut, connection)
    try:
        yield
    finally:
        timer.cancel()


def _cut(connection: AsyncConnection[TupleRow]) -> None:
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)


async def _append(connection: AsyncConnection[TupleRow], entries: list[Entry]) -> int:
    """Write a batch.

    1. Lock its workloads. 2. Insert what is new. 3. Fold the steps that got new events from their
    whole journal. 4. The same for workloads.
    """
    touched = await _query(connection, "touch_workloads", rows=_json(batch.touched(entries)))
    finished = {workload for workload, finished_ms in touched if finished_ms is not None}
    rows = _json([entry._asdict() for entry in entries])
    inserted = set(await _query(connection, "insert_events", rows=rows))
    new = [entry for entry in entries if (entry.workload, entry.run, entry.seq) in inserted]
    if not new:
        return 0
    await connection.execute(SQL["touch_runs"], {"rows": _json(batch.touch_runs(new))})
    await _fold_steps(connection, batch.steps_of(new))
    await _fold_workloads(connection, batch.workloads_of(new, finished))
    return len(new)


async def _fold_steps(
    connection: AsyncConnection[TupleRow], steps: Sequence[tuple[str, str]]
) -> None:
    if not steps:
        return
    keys = _json([{"workload": workload, "step": step} for workload, step in steps])
    events = [Entry(*row) for row in await _query(connection, "events_of_steps", rows=keys)]
    folded = batch.fold_steps(steps, events)
    await connection.execute(SQL["delete_attempts"], {"rows": keys})
    await connection.execute(SQL["insert_attempts"], {"rows": _json(folded.attempts)})
    await connection.execute(SQL["save_steps"], {"rows": _json(folded.steps)})


async def _fold_workloads(connection: AsyncConnection[TupleRow], workloads: Sequence[str]) -> None:
    if not workloads:
        return
    ids = list(workloads)
    runs = await _query(connection, "runs_of_workloads", workloads=ids)
    events = await _query(connection, "events_of_workloads", workloads=ids)
    rows = batch.fold_workloads(
        workloads, [Entry(*event) for event in events], [(w, r, ms) for w, r, ms in runs]
    )
    await connection.execute(SQL["delete_labels"], {"workloads": ids})
    await connection.execute(SQL["insert_labels"], {"rows": _json(batch.label_rows(rows))})
    saved = [row | {"labels": json.dumps(row["labels"])} for row in rows]
    await connection.execute(SQL["save_workloads"], {"rows": _json(saved)})


async def _query(
    connection: AsyncConnection[TupleRow], statement: str, **parameters: Any
) -> list[TupleRow]:
    cursor = await connection.execute(SQL[statement], parameters)
    return await cursor.fetchall()


def _json(rows: Iterable[Row]) -> str:
    """Rows as one parameter: a statement is the same whatever their number."""
    return json.dumps(list(rows))


def _fit(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {k: storable(v) if isinstance(v, str) else v for k, v in parameters.items()}


def _line(error: object) -> str:
    text = str(error).strip() or type(error).__name__
    return " ".join(text.split())[:300]
