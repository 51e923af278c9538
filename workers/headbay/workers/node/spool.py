"""The spool: one durable folder per attempt, and tombstones of those that are over.

`order` (spec, token, and what the shim is to launch), `begin` and `exit` are immutable and durable;
`token`, `shim`, `lease` and `stop` are replaced. An entry is removed only after its completion was
acknowledged.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import structlog

from headbay.activities.executor.records import (
    CorruptRecordError,
    overwrite,
    read_record,
    replace,
    sync_folder,
    write_new,
)
from headbay.activities.executor.shim.kernel import boot_id
from headbay.activities.places import NodePlaces, private
from headbay.domain.attempt import LaunchSpec
from headbay.domain.errors import HeadbayError
from headbay.workers.node.folders import Folders
from headbay.workers.node.tombstones import Tombstones

__all__ = ["ORDER", "SHARED_PREFIX", "Entry", "Spool", "SpoolTakenError", "Token", "unit_name"]

LOG_S = 30 * 24 * 3600
"""Longer than any namespace keeps a closed workflow by default (dev 1 day, cloud 30 days)."""

SHARED_S = 7 * 24 * 3600
"""A shared workspace that no step has used for so long is removed."""

LOG_CAP_BYTES = 16 << 20
log = structlog.get_logger(__name__)

ORDER = "order.json"
LOG = "out.log"
LEASE = "lease"
"""Stays in a folder that is used again: another fence's lease renews nothing."""
PREFIX = "hb."
SHARED_PREFIX = "shared."

UNIT = re.compile(r"hb\..+\.([0-9a-f]{12})\.a\d+\.f(\d+)")


class SpoolTakenError(HeadbayError):
    """Another node worker holds this spool."""

    code: ClassVar[str] = "SPOOL_TAKEN"


def unit_name(workload: str, step: str, attempt: int, fence: int) -> str:
    """Name of an attempt outside Temporal: scope, spool folder, environment marker.

    A hash stands in for what a unit's name may not hold; the whole identity is in `order`.
    """
    plain = re.sub(r"[^A-Za-z0-9_.]", "_", workload)[:40]
    name = f"{PREFIX}{plain}.{step.replace('-', '_')[:40]}"
    return f"{name}.{step_digest(workload, step)}.a{attempt}.f{fence}"


def step_digest(workload: str, step: str) -> str:
    """What stands for a step in the names of its attempts."""
    return hashlib.sha256(f"{workload}/{step}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Token:
    """Where an attempt's heartbeats and completion go.

    Attributes:
        token: Temporal's task token. run: Temporal run id of the workload that ordered it.
    """

    token: bytes
    run: str

    def to_json(self) -> dict[str, str]:
        """JSON form."""
        return {"token": self.token.hex(), "run": self.run}


class Entry:
    """One attempt's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unit = folder.name
        self._path = str(folder)

    def path(self, name: str) -> str:
        """Where a file of it is."""
        return f"{self._path}/{name}"

    def read(self, name: str) -> Any:
        """A record, None if it was not written."""
        try:
            return read_record(self.path(name))
        except FileNotFoundError:
            return None

    @property
    def spec(self) -> LaunchSpec:
        """What was ordered."""
        return LaunchSpec.model_validate(read_record(self.path(ORDER))["spec"])

    @property
    def user(self) -> dict[str, Any] | None:
        """Whom its payload runs as; None for the worker's own user."""
        user: dict[str, Any] | None = read_record(self.path(ORDER))["launch"].get("user")
        return user

    @property
    def token(self) -> Token:
        """Where its heartbeats go now: the order's token, or the one that replaced it."""
        row = self.read("token") or read_record(self.path(ORDER))["token"]
        return Token(bytes.fromhex(row["token"]), row["run"])

    def set_token(self, token: Token) -> None:
        """Replace the token, durably."""
        replace(self.folder / "token", token.to_json(), durable=True)

    def set_lease(self, fence: int, deadline_ns: int) -> None:
        """Renew the lease. Not synced: after a power loss no process is left to obey it."""
        overwrite(self.path(LEASE), {"fence": fence, "deadline_ns": deadline_ns})

    def set_shim(self, pid: int, ticks: int) -> None:
        """Remember the supervisor. Not synced: a power loss ends it."""
        row = {"boot_id": boot_id(), "pid": pid, "ticks": ticks}
        replace(self.folder / "shim", row, durable=False)

    def exists(self, name: str) -> bool:
        """Whether a record was written, whole or not."""
        return os.access(self.path(name), os.F_OK)

    def stop_reason(self) -> str | None:
        """Why it is to be ended, if it is."""
        try:
            row = self.read("stop")
        except CorruptRecordError:
            return None  # Orders are repeated until they are obeyed.
        return None if row is None else str(row["reason"])

    def last_word(self) -> str:
        """What the supervisor said last, as the end of a sentence; mostly nothing."""
        try:
            lines = (self.folder / "shim.err").read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return f": {lines[-1][:200]}" if lines else ""

    def set_stop(self, fence: int, reason: str) -> None:
        """Order the shim to end its payload; a harder reason replaces a softer one."""
        now = self.stop_reason()
        if now == "lease_lost" or (now is not None and reason != "lease_lost"):
            return
        replace(self.folder / "stop", {"fence": fence, "reason": reason}, durable=False)

    @property
    def log(self) -> Path:
        """What the payload prints."""
        return self.folder / LOG


class Spool:
    """A node's spool, locked for one worker."""

    def __init__(self, places: NodePlaces) -> None:
        self.places = places
        self._lock: int | None = None
        self._folders = Folders(places.spool, leave=LEASE)
        self._tombstones = Tombstones(places.root / "tombstones.txt")

    def open(self) -> None:
        """Make the folders and take the lock.

        Raises:
            SpoolTakenError: Another worker runs here.
        """
        for folder in (self.places.spool, self.quarantined, self.places.work, self.places.logs):
            private(folder)
        self._lock = os.open(self.places.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SpoolTakenError(
                f"another node worker uses {self.places.root}; stop it, or start this one with "
                "another --name or --state"
            ) from error
        self._folders.open()
        self._tombstones.open()
        for folder in self._attempt_folders():
            if not _holds_order(folder):
                self._folders.discard(folder)
        for folder in (self.places.spool, self.quarantined):
            for path in folder.iterdir():
                self._remember(path.name)

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def quarantined(self) -> Path:
        """Entries that could not be read, kept for a person to look at."""
        return self.places.root / "quarantine"

    def highest_fence(self, workload: str, step: str) -> int:
        """The highest fence that this node has seen for a step.

        Of a step that it does not remember: the highest fence that it has forgotten, since none of
        that step's can have been higher.
        """
        return self._tombstones.highest(step_digest(workload, step))

    def _remember(self, unit: str) -> None:
        found = UNIT.match(unit)
        if found is not None:
            self._tombstones.see(found[1], int(found[2]))

    def entries(self) -> Iterator[Entry]:
        """All entries; for readers beside the worker too. What holds no order yet is none."""
        for folder in self._attempt_folders():
            if _holds_order(folder):
                yield Entry(folder)

    def _attempt_folders(self) -> list[Path]:
        folders = sorted(self.places.spool.iterdir())
        return [f for f in folders if f.name.startswith(PREFIX) and f.is_dir()]

    def find(self, unit: str) -> Entry | None:
        """The entry of that name."""
        folder = self.places.spool / unit
        return Entry(folder) if folder.is_dir() else None

    def entry(self, unit: str) -> Entry:
        """The entry of that name, there or not yet."""
        return Entry(self.places.spool / unit)

    def create(
        self, entry: Entry, spec: LaunchSpec, token: Token, launch: dict[str, Any]
    ) -> list[int]:
        """Write a new entry with its order.

        Args:
            entry: Where.
            spec: What was ordered.
            token: Where its end is told.
            launch: What the shim is to launch.

        Returns:
            Open descriptors: the entry is durable once they and the spool's folder are synced.

        Raises:
            OSError: It could not be written; nothing is left of it.
        """
        self._folders.take(entry.folder)
        order = {
            "spec": spec.model_dump(mode="json"),
            "token": token.to_json(),
            "launch": {"unit": entry.unit, "log_cap_bytes": LOG_CAP_BYTES, **launch},
        }
        descriptors: list[int] = []
        try:
            descriptors.append(write_new(entry.path(ORDER), order))
            descriptors.append(os.open(entry.path(""), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError:
            for fd in descriptors:
                os.close(fd)
            self._folders.discard(entry.folder)
            raise
        self._remember(entry.unit)
        return descriptors

    def withdraw(self, entry: Entry) -> None:
        """Remove an entry whose order may not be durable."""
        self._folders.discard(entry.folder)

    def bury(self, entry: Entry, log_to: Path) -> None:
        """Remove an entry whose end was acknowledged; keep its log, and a tombstone.

        It vanishes by one rename: after a power loss the attempt is either still in the spool,
        where its end is told once more, or gone. If its tombstone was lost then, no order for it
        can come any more: a new boot is a new epoch.
        """
        if entry.exists(LOG):
            private(log_to.parent)
            entry.log.replace(log_to)
        found = UNIT.fullmatch(entry.unit)
        if found is not None:
            try:
                self._tombstones.write(found[1], int(found[2]))
            except OSError as error:  # A full disk. It is remembered until a restart.
                log.warning("tombstone.unwritten", unit=entry.unit, error=str(error))
        try:
            self._folders.discard(entry.folder)
        except FileNotFoundError:
            log.warning("entry.removed_by_somebody", unit=entry.unit)

    def quarantine(self, entry: Entry) -> Path:
        """Put an unreadable entry aside."""
        target = self.quarantined / f"{entry.unit}.{time.time_ns()}"
        entry.folder.rename(target)
        sync_folder(self.places.spool)
        return target

    def prune(self, live: Collection[str] = ()) -> None:
        """Forget tombstones and logs that nobody can ask for any more, and old shared workspaces.

        Args:
            live: Workloads that have attempts here.
        """
        self._tombstones.compact()
        now = time.time()
        logs = (log for folder in self.places.logs.iterdir() for log in folder.iterdir())
        shared = (
            folder
            for folder in self.places.work.glob(f"{SHARED_PREFIX}*")
            if folder.name.removeprefix(SHARED_PREFIX) not in live
        )
        for paths, kept_s in ((logs, LOG_S), (shared, SHARED_S)):
            for path in list(paths):
                if path.stat().st_mtime < now - kept_s:
                    _remove(path)
        for folder in list(self.places.logs.iterdir()):
            with contextlib.suppress(OSError):  # There are logs in it.
                folder.rmdir()


def _holds_order(folder: Path) -> bool:
    """Whether there is more than a lease: a crash, or its writer, may be just before the order."""
    try:
        return any(path.name != LEASE for path in folder.iterdir())
    except FileNotFoundError:
        return False  # Buried meanwhile.


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
