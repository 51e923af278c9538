"""Where a dev cluster keeps its things, and the lock that only one supervisor holds."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headbay.activities.places import Places

__all__ = ["ClusterFiles"]


@dataclass(frozen=True)
class ClusterFiles:
    """Paths of one cluster.

    Attributes:
        state: Headbay's state directory. dev: What belongs to the cluster alone.
    """

    state: Path
    dev: Path
    record: Path
    ledger: Path
    artifacts: Path

    @classmethod
    def find(cls, env: Mapping[str, str]) -> "ClusterFiles":
        """The state directory that the environment names; the folders are made."""
        places = Places.find(env)
        files = cls(
            state=places.state,
            dev=places.dev,
            record=places.dev_json,
            ledger=places.ledger,
            artifacts=places.artifacts,
        )
        for folder in (files.dev, files.logs, files.artifacts):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return files

    @property
    def logs(self) -> Path:
        """One log a child."""
        return self.dev / "logs"

    @property
    def database(self) -> Path:
        """Temporal's SQLite file."""
        return self.dev / "temporal.db"

    @property
    def ports(self) -> Path:
        """The ports of the last start."""
        return self.dev / "ports.json"

    @property
    def supervisor_log(self) -> Path:
        """What a detached supervisor says."""
        return self.logs / "supervisor.log"

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the lock; yields False if another process holds it.

        The kernel releases it when its holder dies, however it dies.
        """
        descriptor = os.open(self.dev / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    def delete(self) -> list[Path]:
        """Delete all state but secrets, which a person put there; what was deleted."""
        names = ("artifacts", "nodes", "last", "dev")
        paths = [self.state / name for name in names]
        paths[:0] = sorted(self.ledger.parent.glob(f"{self.ledger.name}*"))
        deleted = [path for path in paths if path.exists()]
        for path in deleted:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return deleted
