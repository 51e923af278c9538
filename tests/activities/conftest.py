"""Ledgers over both databases, each test with an empty one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.postgres import PostgresServer

from headbay.activities.ledger import Ledger, open_ledger


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'ledger.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_schema()


@pytest.fixture
async def ledger(ledger_url: str) -> AsyncIterator[Ledger]:
    ledger = open_ledger(ledger_url)
    await ledger.migrate()
    yield ledger
    await ledger.close()
