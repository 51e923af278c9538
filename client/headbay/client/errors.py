"""What can go wrong for a client. Messages end with what to do next."""

from typing import ClassVar

from headbay.domain.errors import HeadbayError

__all__ = [
    "AttemptNotFoundError",
    "BadConfigurationError",
    "BadWorkloadIdError",
    "ConflictError",
    "LogsElsewhereError",
    "NoServerConfiguredError",
    "NotFoundError",
    "NotLocalError",
    "NotReadyError",
    "ServerUnreachableError",
    "StepNotFoundError",
    "WaitTimeoutError",
]


class NoServerConfiguredError(HeadbayError):
    """No Temporal address is configured, and no dev cluster runs."""

    code: ClassVar[str] = "NO_SERVER_CONFIGURED"

    def __init__(self) -> None:
        super().__init__(
            "no Temporal address is configured and no dev cluster runs: start one with "
            "`headbay dev start`, or set TEMPORAL_ADDRESS (or TEMPORAL_PROFILE)"
        )


class BadConfigurationError(HeadbayError):
    """The connection settings cannot be read."""

    code: ClassVar[str] = "BAD_CONFIGURATION"


class ServerUnreachableError(HeadbayError):
    """The Temporal server did not answer.

    Attributes:
        address: Where it was looked for. namespace: Which one was asked for.
    """

    code: ClassVar[str] = "SERVER_UNREACHABLE"

    def __init__(self, address: str, namespace: str, why: str) -> None:
        super().__init__(
            f"Temporal at {address}, namespace {namespace!r}, does not answer ({why}); check that "
            "it runs (`headbay dev status`) and TEMPORAL_ADDRESS, or run `headbay doctor`"
        )
        self.address = address
        self.namespace = namespace


class NotReadyError(HeadbayError):
    """The server is there, but nothing of Headbay runs on it (yet)."""

    code: ClassVar[str] = "NOT_READY"


class NotFoundError(HeadbayError):
    """There is no such workload or node.

    Attributes:
        what: "workload" or "node". name: The one asked for.
    """

    code: ClassVar[str] = "NOT_FOUND"

    def __init__(self, what: str, name: str) -> None:
        command = "headbay list" if what == "workload" else f"headbay {what} list"
        super().__init__(f"there is no {what} {name!r}; `{command}` shows what there is")
        self.what = what
        self.name = name


class StepNotFoundError(HeadbayError):
    """The workload has no such step.

    Attributes:
        workload: Its id. step: The name asked for. known: The names it has.
    """

    code: ClassVar[str] = "STEP_NOT_FOUND"

    def __init__(self, workload: str, step: str, known: list[str]) -> None:
        shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
        super().__init__(f"workload {workload} has no step {step!r}; it has: {shown or 'none yet'}")
        self.workload = workload
        self.step = step
        self.known = known


class AttemptNotFoundError(HeadbayError):
    """No step that was asked for has had such an attempt.

    Attributes:
        workload: Its id. attempt: The number asked for.
    """

    code: ClassVar[str] = "ATTEMPT_NOT_FOUND"

    def __init__(self, workload: str, attempt: int, made: dict[str, int]) -> None:
        had = ", ".join(f"{step} {number}" for step, number in list(made.items())[:12])
        more = ", …" if len(made) > 12 else ""
        super().__init__(
            f"workload {workload} has no attempt {attempt} there; attempts so far: {had}{more}"
        )
        self.workload = workload
        self.attempt = attempt


class BadWorkloadIdError(HeadbayError):
    """A workload id that cannot be one.

    Attributes:
        workload: The id.
    """

    code: ClassVar[str] = "BAD_WORKLOAD_ID"

    def __init__(self, workload: str) -> None:
        super().__init__(
            f"{workload[:120]!r} cannot be a workload id: use 1 to 100 letters, digits, dots, "
            "underscores and hyphens, but not . or .. alone"
        )
        self.workload = workload


class ConflictError(HeadbayError):
    """The id belongs to another document.

    Attributes:
        workload: The id. ours: Digest of the document just submitted. theirs: Of the existing one.
    """

    code: ClassVar[str] = "CONFLICT"

    def __init__(self, workload: str, ours: str, theirs: str) -> None:
        super().__init__(
            f"workload {workload} already exists with another document; choose another id, or "
            f"look at it with `headbay status {workload}`"
        )
        self.workload = workload
        self.ours = ours
        self.theirs = theirs


class WaitTimeoutError(HeadbayError):
    """The workload did not finish in the time given; it goes on.

    Attributes:
        workload: Its id. seconds: How long it was waited for.
    """

    code: ClassVar[str] = "WAIT_TIMEOUT"

    def __init__(self, workload: str, seconds: float) -> None:
        super().__init__(
            f"workload {workload} has not finished within {seconds:g} s and goes on; "
            f"`headbay follow {workload}` shows it, `headbay cancel {workload}` ends it"
        )
        self.workload = workload
        self.seconds = seconds


class LogsElsewhereError(HeadbayError):
    """The log is not on this machine.

    Attributes:
        node: Where it is. path: The file there, "" while the step runs.
    """

    code: ClassVar[str] = "LOGS_ELSEWHERE"

    def __init__(self, step: str, attempt: int, node: str, path: str) -> None:
        where = f"at {path}" if path else "in its spool directory"
        super().__init__(
            f"the log of {step}, attempt {attempt}, is on node {node}, {where}; read it there"
        )
        self.node = node
        self.path = path


class NotLocalError(HeadbayError):
    """Something that only works on a node of this machine was asked of another cluster."""

    code: ClassVar[str] = "NOT_LOCAL"
