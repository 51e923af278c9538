"""The books as bytes, for continue-as-new: JSON, deflated.

Everything that can be counted anew is left out and counted anew.
"""

import zlib
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from headbay.domain.attempt import ArtifactsRef, OutputRef
from headbay.domain.dag import DagDef
from headbay.domain.errors import HeadbayError
from headbay.domain.lifecycle import (
    TERMINAL_STEP_STATES,
    AttemptState,
    StepState,
    WorkloadState,
)
from headbay.domain.retry import Counts
from headbay.domain.status import CancelStatus
from headbay.domain.wire import Wire
from headbay.domain.workload.books import Books
from headbay.domain.workload.records import AttemptRecord, Timer

__all__ = ["SNAPSHOT_VERSION", "SnapshotError", "SnapshotVersionError", "dump", "load"]

SNAPSHOT_VERSION: Final = 1

MAX_UNPACKED_BYTES: Final = 256 * 1024 * 1024


class SnapshotError(HeadbayError):
    """A packed state cannot be read."""

    code = "SNAPSHOT_UNREADABLE"


class SnapshotVersionError(SnapshotError):
    """A packed state is of another version: another worker can read it."""

    code = "SNAPSHOT_VERSION"


@dataclass(slots=True)
class _Step:
    state: StepState
    reason: str
    message: str
    ready: bool
    fence: int
    counts: Counts
    attempts: list[AttemptRecord]
    output: OutputRef | None
    artifacts: ArtifactsRef | None


@dataclass(slots=True)
class _Snapshot:
    version: int
    id: str
    dag: DagDef
    submitted_ms: int
    now_ms: int
    status: WorkloadState
    reason: str
    message: str
    begun: bool
    started_ms: int | None
    finished_ms: int | None
    cancel: CancelStatus | None
    stopping: bool
    draining: bool
    pinned: str | None
    timers: list[Timer]
    steps: list[_Step]


class _Versioned(Wire):
    version: int


_ADAPTER: Final = TypeAdapter(_Snapshot)


def dump(books: Books) -> bytes:
    """Pack the books; the journal and the story stay behind."""
    snapshot = _Snapshot(
        version=SNAPSHOT_VERSION,
        id=books.id,
        dag=books.dag,
        submitted_ms=books.submitted_ms,
        now_ms=books.now_ms,
        status=books.status,
        reason=books.reason,
        message=books.message,
        begun=books.begun,
        started_ms=books.started_ms,
        finished_ms=books.finished_ms,
        cancel=books.cancel,
        stopping=books.stopping,
        draining=books.draining,
        pinned=books.pinned,
        timers=list(books.timers.values()),
        steps=[
            _Step(
                state=step.state,
                reason=step.reason,
                message=step.message,
                ready=step.ready,
                fence=step.fence,
                counts=step.counts,
                attempts=step.attempts,
                output=step.output,
                artifacts=step.artifacts,
            )
            for step in books.steps
        ],
    )
    return zlib.compress(_ADAPTER.dump_json(snapshot), 6)


def load(packed: bytes) -> Books:
    """Unpack what `dump` packed.

    Raises:
        SnapshotError: It is torn, or not such bytes at all.
        SnapshotVersionError: It is of another version.
    """
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(packed, MAX_UNPACKED_BYTES)
        if not unpacker.eof:
            raise SnapshotError("the workload's packed state is torn or too large")
        _check_version(raw)
        snapshot = _ADAPTER.validate_json(raw)
    except (zlib.error, ValueError) as error:
        raise SnapshotError(f"the workload's packed state cannot be read: {error}") from error
    return _restore(snapshot)


def _check_version(raw: bytes) -> None:
    """First of all: another version may look different altogether."""
    version = _Versioned.model_validate_json(raw).version
    if version != SNAPSHOT_VERSION:
        raise SnapshotVersionError(
            f"the workload's packed state has version {version}, this worker reads "
            f"{SNAPSHOT_VERSION}: run it on the worker's other version"
        )


def _restore(snapshot: _Snapshot) -> Books:
    books = Books(snapshot.id, snapshot.dag, snapshot.submitted_ms)
    books.now_ms = snapshot.now_ms
    books.status = snapshot.status
    books.reason = snapshot.reason
    books.message = snapshot.message
    books.begun = snapshot.begun
    books.started_ms = snapshot.started_ms
    books.finished_ms = snapshot.finished_ms
    books.cancel = snapshot.cancel
    books.stopping = snapshot.stopping
    books.draining = snapshot.draining
    books.pinned = snapshot.pinned
    books.timers = {(timer.kind, timer.step): timer for timer in snapshot.timers}
    for step, kept in zip(books.steps, snapshot.steps, strict=True):
        step.state = kept.state
        step.reason = kept.reason
        step.message = kept.message
        step.fence = kept.fence
        step.counts = kept.counts
        step.attempts = kept.attempts
        step.output = kept.output
        step.artifacts = kept.artifacts
        books.active += sum(a.state is not AttemptState.ENDED for a in kept.attempts)
        if kept.ready:
            books.make_ready(step)
        if kept.state in TERMINAL_STEP_STATES:
            books.terminal += 1
            for index in books.graph.downstreams[step.index]:
                books.steps[index].unmet -= 1
                books.steps[index].bad += kept.state is not StepState.SUCCEEDED
    return books
