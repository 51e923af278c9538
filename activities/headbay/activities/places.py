"""Where things live on a machine: one place per thing, below one state directory.

Only paths, and the one look at who runs a dev cluster. Nothing is created but through `private`,
which makes folders that nobody else can enter.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

from headbay.domain.errors import HeadbayError

__all__ = ["BadNameError", "DevCluster", "NodePlaces", "Places", "private"]

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What may become one part of a path: no separator, no leading dot."""

_START_TIME_FIELD = 22
"""Of /proc/PID/stat, counted from 1; the fields after the name begin with number 3."""


class BadNameError(HeadbayError):
    """A name that would become a path is not fit for it.

    Attributes:
        name: The name.
    """

    code: ClassVar[str] = "BAD_NAME"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"{what} {name!r} cannot name a file: use letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit, at most 128 characters"
        )
        self.name = name


def private(folder: Path) -> Path:
    """The folder, made with all that is missing above it, open to its owner alone.

    Parents that existed before are left as they are; each one made here is 0700 too.
    """
    missing = []
    above = folder
    while not above.exists():
        missing.append(above)
        above = above.parent
    for part in reversed(missing):
        part.mkdir(mode=0o700, exist_ok=True)
    return folder


@dataclass(frozen=True)
class DevCluster:
    """The dev cluster that runs on this machine.

    Attributes:
        pid: Its supervisor. address: Temporal's gRPC address. ui: The UI's URL, "" if none.
        phase: ``starting``, ``ready`` or ``stopping``.
        ledger: URL of its ledger. artifacts: Directory of its artifact store; "" if unsaid.
    """

    pid: int
    address: str
    ui: str = ""
    namespace: str = "default"
    started_ms: int = 0
    phase: str = "ready"
    ledger: str = ""
    artifacts: str = ""


@dataclass(frozen=True)
class NodePlaces:
    """What one node worker keeps.

    Attributes:
        root: Its folder. The lock that only one worker of the node holds is ``root/lock``.
    """

    root: Path

    @cached_property
    def spool(self) -> Path:
        """One folder per attempt that must survive a crash."""
        return self.root / "spool"

    @cached_property
    def work(self) -> Path:
        """Private and shared workspaces."""
        return self.root / "work"

    @cached_property
    def logs(self) -> Path:
        """What payloads printed."""
        return self.root / "logs"

    @property
    def lock(self) -> Path:
        """Held by the running node worker."""
        return self.root / "lock"

    @property
    def identity(self) -> Path:
        """Machine id for machines that have no /etc/machine-id."""
        return self.root / "machine-id"


@dataclass(frozen=True)
class Places:
    """Everything of one user on one machine.

    Attributes:
        root: The state directory.
    """

    root: Path

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> "Places":
        """``HEADBAY_STATE``, else ``headbay`` in ``XDG_STATE_HOME``, else ~/.local/state/headbay.

        A relative ``XDG_STATE_HOME`` is ignored.
        Source: XDG Base Directory Specification 0.8.
        """
        named = environ.get("HEADBAY_STATE")
        if named:
            return cls(Path(named).expanduser().absolute())
        xdg = environ.get("XDG_STATE_HOME", "")
        if xdg.startswith("/"):
            return cls(Path(xdg) / "headbay")
        home = environ.get("HOME")
        return cls((Path(home) if home else Path.home()) / ".local" / "state" / "headbay")

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.root

    @property
    def dev(self) -> Path:
        """What belongs to the dev cluster alone."""
        return self.root / "dev"

    @property
    def dev_json(self) -> Path:
        """What others may know of the running dev cluster; written by its supervisor."""
        return self.dev / "dev.json"

    @property
    def dev_logs(self) -> Path:
        """One log for each process of the dev cluster."""
        return self.dev / "logs"

    @property
    def temporal_db(self) -> Path:
        """Database file of the dev cluster's Temporal server."""
        return self.dev / "temporal.db"

    @property
    def ledger(self) -> Path:
        """The embedded ledger's SQLite file."""
        return self.root / "ledger.db"

    @property
    def ledger_url(self) -> str:
        """URL of the embedded ledger."""
        return f"sqlite:///{self.ledger}"

    @property
    def artifacts(self) -> Path:
        """The artifact store of this machine."""
        return self.root / "artifacts"

    @property
    def last(self) -> Path:
        """File with the id of the workload that was submitted last."""
        return self.root / "last"

    @property
    def secrets(self) -> Path:
        """Folder of secrets, one file (0600) each."""
        return self.root / "secrets"

    def secret(self, name: str) -> Path:
        """File that holds a secret's value.

        Raises:
            BadNameError: The name cannot be a file's.
        """
        return self.secrets / _part("secret", name)

    def node(self, name: str) -> NodePlaces:
        """Places of one node worker.

        Raises:
            BadNameError: The name cannot be a folder's.
        """
        return NodePlaces(self.root / "nodes" / _part("node", name))

    def dev_cluster(self) -> DevCluster | None:
        """The running dev cluster; None if there is none, or only what a dead one left."""
        try:
            record = json.loads(self.dev_json.read_bytes())
            if not _runs(int(record["pid"]), record.get("ticks")):
                return None
            fields = DevCluster.__dataclass_fields__
            return DevCluster(**{name: record[name] for name in fields if name in record})
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None  # There is none, or a damaged one: the next start writes it anew.


def _part(what: str, name: str) -> str:
    if not NAME.fullmatch(name):
        raise BadNameError(what, name)
    return name


def _runs(pid: int, ticks: int | None) -> bool:
    """Whether this very process runs: pids are used again, start times are not.

    Source: proc_pid_stat(5).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    fields = stat.rpartition(")")[2].split()
    return fields[0] not in "ZX" and ticks in (None, int(fields[_START_TIME_FIELD - 3]))
