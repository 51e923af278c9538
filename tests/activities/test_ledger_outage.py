"""Ledgers through crashes: what was acknowledged stays, and they come back by themselves."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.journal import one_step
from support.postgres import PostgresServer

from headbay.activities.ledger import (
    Ledger,
    LedgerSchemaError,
    LedgerUnavailableError,
    open_ledger,
    sqlite,
)
from headbay.domain.journal import JournalEvent

WRITER = """
import asyncio, sys
from headbay.activities.ledger import open_ledger
from support.journal import one_step

async def main():
    ledger = open_ledger(sys.argv[1])
    number = 0
    while True:
        await ledger.append(one_step(f"w{number}"))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server that nobody else uses, to be killed."""
    server = PostgresServer()
    yield server
    server.stop()


async def test_what_a_killed_writer_acknowledged_is_there(ledger: Ledger, ledger_url: str):
    acknowledged = await asyncio.to_thread(kill_a_writer, ledger_url)
    for number in acknowledged:
        assert await ledger.events(f"w{number}") == one_step(f"w{number}")
    # What it was writing is there as a whole, read model and all, or not at all.
    half = await ledger.events(f"w{len(acknowledged)}")
    assert half in ([], one_step(f"w{len(acknowledged)}"))
    assert await ledger.unfinished() == []
    assert await ledger.gaps() == []


def kill_a_writer(url: str) -> list[int]:
    """Numbers of the workloads that a writer acknowledged before it was killed."""
    command = [sys.executable, "-c", WRITER, url]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(25)]
        writer.send_signal(signal.SIGKILL)
        return acknowledged + [int(line) for line in writer.stdout.read().split()]


async def append_through_outage(ledger: Ledger, events: Sequence[JournalEvent]) -> int:
    """Append, as often as it takes; how often it was away."""
    deadline = time.monotonic() + 30
    refused = 0
    while True:
        try:
            await ledger.append(events)
        except LedgerUnavailableError:
            assert time.monotonic() < deadline
            refused += 1
            await asyncio.sleep(0.05)
        else:
            return refused


@pytest.mark.postgres
async def test_postgresql_killed_in_mid_use_loses_nothing(own_postgres: PostgresServer):
    """Several writers at work, the postmaster is killed, and started again."""
    url = own_postgres.new_schema()
    ledgers = [open_ledger(url) for _ in range(3)]
    await ledgers[0].migrate()
    written = [0] * 3
    stop = asyncio.Event()

    async def write(number: int) -> int:
        refused = 0
        while not stop.is_set():
            events = one_step(f"w{number}-{written[number]}")
            refused += await append_through_outage(ledgers[number], events)
            written[number] += 1
        return refused

    writers = [asyncio.create_task(write(number)) for number in range(3)]
    await reached(written, 5)
    await asyncio.to_thread(own_postgres.kill)
    with pytest.raises(LedgerUnavailableError, match=r"does not answer: .*connect") as caught:
        await ledgers[0].ping()
    assert caught.value.url == ledgers[0].url
    await asyncio.to_thread(own_postgres.start)
    await reached(written, max(written) + 5)
    stop.set()
    refused = await asyncio.gather(*writers)
    assert all(refused), "the outage was not noticed: the test shows nothing"
    for number, count in enumerate(written):
        for position in range(count):
            workload = f"w{number}-{position}"
            assert await ledgers[0].events(workload) == one_step(workload)
            [attempt] = await ledgers[0].attempts(workload)
            assert attempt.outcome == "SUCCEEDED"
    assert await ledgers[0].gaps() == []
    assert await ledgers[0].unfinished() == []
    for ledger in ledgers:
        await ledger.close()


async def reached(written: list[int], count: int) -> None:
    deadline = time.monotonic() + 30
    while min(written) < count:
        assert time.monotonic() < deadline, written
        await asyncio.sleep(0.02)


@pytest.mark.postgres
async def test_postgresql_is_back_at_once_after_an_idle_outage(own_postgres: PostgresServer):
    """Idle connections that died meanwhile cost no failure: they are tried before use."""
    ledger = open_ledger(own_postgres.new_schema())
    await ledger.migrate()
    await asyncio.gather(*(ledger.ping() for _ in range(8)))
    await asyncio.to_thread(own_postgres.kill)
    await asyncio.to_thread(own_postgres.start)
    for number in range(8):
        await ledger.append(one_step(f"w{number}"))
    await ledger.close()


@pytest.mark.postgres
async def test_a_server_that_never_was_there_is_named():
    ledger = open_ledger("postgresql://ann:secret@127.0.0.1:1/headbay")
    begun = time.monotonic()
    with pytest.raises(LedgerUnavailableError, match="refused") as caught:
        await ledger.migrate()
    assert time.monotonic() - begun < 5
    assert "secret" not in str(caught.value)
    assert "postgresql://ann@127.0.0.1:1/headbay" in str(caught.value)
    await ledger.close()


@pytest.mark.postgres
async def test_a_server_that_is_frozen_is_given_up_in_time(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headbay.activities.ledger.postgres.ANSWER_WITHIN_S", 0.5)
    ledger = open_ledger(own_postgres.new_schema())
    await ledger.migrate()
    frozen = [p for p in own_postgres.processes() if p.is_running()]
    for process in frozen:
        process.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        with pytest.raises(LedgerUnavailableError, match="does not answer"):
            await ledger.append(one_step("w"))
        assert time.monotonic() - begun < 6
    finally:
        for process in frozen:
            process.send_signal(signal.SIGCONT)
    await append_through_outage(ledger, one_step("w"))
    assert await ledger.events("w") == one_step("w")
    await ledger.close()


async def test_a_file_that_another_process_holds_is_unavailable_and_then_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.1)
    path = tmp_path / "ledger.db"
    ledger = open_ledger(f"sqlite:///{path}")
    await ledger.migrate()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailableError, match="locked"):
        await ledger.append(one_step("w"))
    assert await ledger.events("w") == []  # readers are not held up
    other.execute("ROLLBACK")
    other.close()
    assert await ledger.append(one_step("w")) == len(one_step("w"))
    await ledger.close()


async def test_the_event_loop_goes_on_while_a_file_is_locked(tmp_path: Path):
    path = tmp_path / "ledger.db"
    ledger = open_ledger(f"sqlite:///{path}")
    await ledger.migrate()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(ledger.append(one_step("w")))
    turns = 0
    begun = time.monotonic()
    while time.monotonic() - begun < 0.3:
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 50
    assert not writing.done()
    other.execute("ROLLBACK")
    other.close()
    assert await writing == len(one_step("w"))
    await ledger.close()


async def test_acknowledged_commits_are_synced_to_the_disk(tmp_path: Path):
    """Under WAL, NORMAL would lose the last commits in a power failure."""
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    assert isinstance(ledger, sqlite.SqliteLedger)
    await ledger.migrate()

    def pragmas(connection: sqlite3.Connection) -> tuple[int, str]:
        (level,) = connection.execute("PRAGMA synchronous").fetchone()
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        return level, mode

    assert await ledger._writer.run(pragmas) == (2, "wal")
    await ledger.close()


async def test_reading_does_not_make_a_file(tmp_path: Path):
    path = tmp_path / "none" / "ledger.db"
    ledger = open_ledger(f"sqlite:///{path}")
    with pytest.raises(LedgerUnavailableError, match="No such file"):
        await ledger.workload("w")
    assert not path.parent.exists()
    await ledger.migrate()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert await ledger.workload("w") is None
    await ledger.close()


async def test_a_damaged_file_is_told_apart_from_one_that_is_away(tmp_path: Path):
    path = tmp_path / "ledger.db"
    path.write_bytes(b"not a database at all" * 500)
    ledger = open_ledger(f"sqlite:///{path}")
    with pytest.raises(LedgerSchemaError, match=r"cannot be read .*not a database"):
        await ledger.migrate()
    await ledger.close()
