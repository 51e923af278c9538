"""What a node is told to run, and what it answers: LaunchSpec and AttemptResult.

A launch spec is identified by (workload, step, attempt, fence).
"""

from typing import Literal

from pydantic import JsonValue

from headbay.domain.outcome import Flag, Isolation, Outcome
from headbay.domain.wire import Wire

__all__ = [
    "INLINE_OUTPUT_BYTES",
    "LAUNCH_SPEC_VERSION",
    "MAX_OUTPUT_BYTES",
    "SECRET_FILES_VERSION",
    "ArtifactsRef",
    "AttemptResult",
    "LaunchSpec",
    "LogRef",
    "OutputRef",
    "StopOrder",
    "UpstreamRef",
    "Usage",
]

LAUNCH_SPEC_VERSION = 3
"""Nodes accept this version and the one before. 2: ``user`` and ``cpu_limit``, which a node that
does not know them would pass over. 3: ``secret_files``, likewise."""

SECRET_FILES_VERSION = 3
"""The least version that a spec with ``secret_files`` may state; one without states the version
before, which nodes that are not upgraded yet accept."""

INLINE_OUTPUT_BYTES = 2 * 1024
"""Outputs up to this size travel in history; larger ones by reference only."""

MAX_OUTPUT_BYTES = 64 * 1024


class OutputRef(Wire):
    """One step output in the artifact store.

    Attributes:
        sha256: Hex digest of the stored bytes (the JSON text as the step wrote it).
        size_bytes: Their number.
        value: The JSON value itself where ``size_bytes`` <= INLINE_OUTPUT_BYTES, else None.
        inline: Whether ``value`` is meant (a JSON null is a value too).
    """

    sha256: str
    size_bytes: int
    inline: bool = False
    value: JsonValue = None


class ArtifactsRef(Wire):
    """The files one attempt kept: a manifest in the artifact store.

    Attributes:
        sha256: Hex digest of the manifest (JSON list of {path, mode, sha256, size_bytes}).
    """

    sha256: str
    files: int
    size_bytes: int


class UpstreamRef(Wire):
    """What a dependent may see of one upstream step.

    Attributes:
        state: The upstream's final step state.
        output: Hex digest of its output, None if it had none.
        artifacts: Hex digest of its artifact manifest, None if it kept none.
    """

    state: str = "SUCCEEDED"
    output: str | None = None
    artifacts: str | None = None


class LaunchSpec(Wire):
    """Order to run one attempt; the argument of the `execute` activity.

    Attributes:
        secrets: Variable -> name of the secret whose value it shall hold; never the value.
        secret_files: Variable -> name of the secret; it shall hold the path of a file with the
            value.
    """

    version: int = LAUNCH_SPEC_VERSION
    workload: str
    step: str
    attempt: int
    fence: int
    allocation: str
    pool: str
    node: str
    epoch: int
    argv: list[str]
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    secret_files: dict[str, str] = {}
    resources: dict[str, int] = {}
    timeout_ms: int | None = None
    grace_ms: int = 10_000
    lease_ms: int = 30_000
    workspace: Literal["private", "shared"] = "private"
    workdir: str | None = None
    base_dir: str | None = None
    inputs: dict[str, UpstreamRef] = {}
    artifacts: list[str] = []
    require: Literal["enforced"] | None = None
    user: str | None = None
    cpu_limit: int | None = None
    labels: dict[str, str] = {}


class StopOrder(Wire):
    """Push to a node: end this attempt. The argument of the `stop` activity.

    Attributes:
        reason: Outcome class that the attempt shall end with.
    """

    workload: str
    step: str
    attempt: int
    fence: int
    reason: Literal[Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.LEASE_LOST] = Outcome.CANCELLED


class Usage(Wire):
    """What an attempt used. None means not measured, never zero."""

    wall_ms: int | None = None
    cpu_user_us: int | None = None
    cpu_system_us: int | None = None
    memory_peak_bytes: int | None = None
    pids_peak: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None


class LogRef(Wire):
    """Where an attempt's combined output is kept.

    Attributes:
        path: Absolute file on the node.
        seen_bytes: Bytes the payload wrote. kept_bytes: Bytes kept (head and tail).
    """

    path: str
    seen_bytes: int
    kept_bytes: int


class AttemptResult(Wire):
    """How one attempt ended: result of `execute`, `late_exit`, and inside `gone`.

    Attributes:
        began: Whether the payload may have been executed.
        exit_code: The main process's status, if it exited. signal: Its signal, if killed by one.
        message: One line for people: what happened and, where useful, what to do.
    """

    workload: str
    step: str
    attempt: int
    fence: int
    allocation: str
    node: str
    boot_id: str = ""
    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    flags: list[Flag] = []
    began: bool = False
    started_ms: int | None = None
    ended_ms: int | None = None
    usage: Usage = Usage()
    output: OutputRef | None = None
    artifacts: ArtifactsRef | None = None
    log: LogRef | None = None
    isolation: Isolation = Isolation.UNENFORCED
