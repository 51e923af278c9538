"""dev.json: what others may know of the running cluster, written by its supervisor alone."""

import json
import os
from pathlib import Path
from typing import Literal

from headbay.domain.wire import Wire
from headbay.workers.dev.process import is_running

__all__ = ["ChildRecord", "ClusterRecord", "Phase", "read", "write"]

Phase = Literal["starting", "ready", "stopping"]


class ChildRecord(Wire):
    """One process of the cluster.

    Attributes:
        pid: None while it waits for its next start.
        ticks: Start time since boot, which makes the pid unambiguous.
        deaths: How often it died by itself. last_exit: How it ended the last time.
    """

    name: str
    pid: int | None = None
    ticks: int | None = None
    started_ms: int | None = None
    deaths: int = 0
    last_exit: str = ""
    log: str = ""


class ClusterRecord(Wire):
    """The cluster as its supervisor sees it.

    Attributes:
        pid, ticks: The supervisor. address: Temporal's gRPC address. ui: The UI's URL.
        doing: What it waits for, for people, while it starts.
        ledger: URL of the ledger. artifacts: Directory of the artifact store.
        nodes: Names of its nodes.
    """

    schema_version: int = 1
    pid: int
    ticks: int
    phase: Phase = "starting"
    doing: str = ""
    address: str
    ui: str
    namespace: str = "default"
    started_ms: int
    version: str = ""
    ledger: str = ""
    artifacts: str = ""
    nodes: list[str] = []
    children: list[ChildRecord] = []

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs."""
        return is_running(self.pid, self.ticks)


def read(path: Path) -> ClusterRecord | None:
    """The record, None if there is none that can be read; it outlives a supervisor.

    A damaged one only says where a dead cluster was: the next start writes it anew.
    """
    try:
        return ClusterRecord.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def write(path: Path, record: ClusterRecord) -> None:
    """Replace the record in one step: no reader ever sees half of it, nor after a power loss."""
    draft = path.with_suffix(".json.new")
    text = json.dumps(record.model_dump(mode="json"), indent=1)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
