"""Where a dev cluster keeps its things, and the lock that only one supervisor holds."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headbay.activities.places import Places, private

__all__ = ["ClusterFiles"]


@dataclass(frozen=True)
class ClusterFiles:
    """What a dev cluster keeps beside what `Places` names."""

    places: Places

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> "ClusterFiles":
        """Those of the state directory that the environment names; the folders are made."""
        places = Places.find(environ)
        for folder in (places.dev_logs, places.artifacts):
            private(folder)
        return cls(places)

    @property
    def ports(self) -> Path:
        """The ports of the last start."""
        return self.places.dev / "ports.json"

    def log(self, process: str) -> Path:
        """Log of one process; ``supervisor``'s is that of a detached one."""
        return self.places.dev_logs / f"{process}.log"

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the lock; yields False if another process holds it.

        The kernel releases it when its holder dies, however it dies.
        """
        descriptor = os.open(self.places.dev / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
        paths = [self.places.root / name for name in names]
        paths[:0] = sorted(self.places.root.glob(f"{self.places.ledger.name}*"))
        deleted = [path for path in paths if path.exists()]
        for path in deleted:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return deleted
