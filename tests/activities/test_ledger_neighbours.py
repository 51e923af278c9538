"""Several processes on one SQLite ledger: nobody takes another's write-ahead log away."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from headbay.activities.ledger import open_ledger
from headbay.domain.journal import JournalEvent

READ = """
import asyncio, sys
from headbay.activities.ledger import open_ledger

async def count():
    ledger = open_ledger(sys.argv[1])
    print(len(await ledger.events("w")))
    await ledger.close()

asyncio.run(count())
"""


def event(seq):
    return JournalEvent(workload="w", run="r", seq=seq, at_ms=seq, kind="StepQueued", step="s")


def read_elsewhere(url):
    ran = subprocess.run(
        [sys.executable, "-c", READ, url], capture_output=True, text=True, check=True, timeout=60
    )
    return int(ran.stdout)


def deleted_files(name):
    """Files of that name that this process has open although they were deleted."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The one that the listing itself used.
            links.append(str(descriptor.readlink()))
    return [link for link in links if name in link and link.endswith("(deleted)")]


async def test_a_reader_of_another_process_never_detaches_a_writer(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = open_ledger(url)
    try:
        await ledger.migrate()
        await ledger.append([event(0)])
        assert len(await ledger.events("w")) == 1  # The writer's process reads, too.
        assert read_elsewhere(url) == 1
        await ledger.append([event(1)])
        assert read_elsewhere(url) == 2
        assert deleted_files("ledger.db") == []
    finally:
        await ledger.close()
