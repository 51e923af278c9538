"""`HeadbayClient`: everything that orchestrators, people and operators do, as typed calls."""

import getpass
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from headbay.activities.places import Places
from headbay.client import capacity, journal, listing
from headbay.client.connection import Target, find_target, open_temporal
from headbay.client.errors import ConflictError, NotReadyError
from headbay.client.following import Follower, OnTrouble
from headbay.client.handle import WorkloadHandle
from headbay.client.identity import digest_of
from headbay.client.logs import LogPiece, LogReader
from headbay.client.models import (
    Answer,
    Explanation,
    History,
    NodeList,
    QueueList,
    Reading,
    WorkloadList,
)
from headbay.client.orders import give_order
from headbay.client.past import Past
from headbay.client.reading import Reader
from headbay.client.source import Source
from headbay.client.submission import Submission, prepare
from headbay.client.workload_id import RANDOM_BITS, check_id, generate_id
from headbay.domain.ids import WorkloadId, node_workflow_id, workload_workflow_id
from headbay.domain.operation import (
    CancelOrder,
    DrainOrder,
    NodeOrder,
    ResolveOrder,
    WorkloadContext,
)

__all__ = ["DEFAULT_POOLS", "HeadbayClient"]

DEFAULT_POOLS = ("default",)


class HeadbayClient:
    """Speaks to one Temporal namespace, and reads one ledger if there is one.

    Operations are idempotent. Expected refusals are values (`Answer`); errors are `HeadbayError`s
    or, where Temporal itself refuses, `temporalio.service.RPCError`s.
    """

    def __init__(
        self,
        temporal: Client,
        *,
        ledger: str | None = None,
        places: Places | None = None,
        target: Target | None = None,
    ) -> None:
        self.temporal = temporal
        self.places = Places.find(os.environ) if places is None else places
        self.target = target
        self._past = Past(ledger)
        self._reader = Reader(temporal, self._past)
        self._follower = Follower(temporal, self._reader)

    @classmethod
    async def connect(
        cls,
        *,
        ledger: str | None = None,
        environ: Mapping[str, str] | None = None,
        wait_s: float = 5.0,
    ) -> Self:
        """Connect as `temporal` does, else to the dev cluster of this machine.

        Args:
            ledger: ``sqlite:///PATH`` or ``postgresql://…``; None for $HEADBAY_LEDGER, else the
                dev cluster's if that is what was connected to.
            environ: Environment with the settings; None for the process's own.
            wait_s: How long a server that does not answer is tried.

        Raises:
            NoServerConfiguredError, BadConfigurationError, ServerUnreachableError: See there.
        """
        environ = os.environ if environ is None else environ
        places = Places.find(environ)
        target = find_target(environ, places)
        temporal = await open_temporal(target, wait_s=wait_s)
        url = ledger or environ.get("HEADBAY_LEDGER")
        if not url and target is not None and target.dev is not None:
            url = target.dev.ledger
        return cls(temporal, ledger=url or None, places=places, target=target)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the ledger; Temporal's connection closes with the object."""
        await self._past.close()

    # -- workloads -----------------------------------------------------------------------------

    async def submit(
        self,
        document: Source,
        *,
        id: str | None = None,  # noqa: A002 - the word that the API has for it
        base_dir: Path | None = None,
        pin_node: str | None = None,
    ) -> WorkloadHandle:
        """Start a workload, or find the one that the same id and document started before.

        Args:
            document: A path (``-``: standard input), YAML or JSON as bytes, or the parsed mapping.
            id: Idempotency key; None makes a new one from the document's name.
            base_dir: Absolute folder that relative ``workdir`` refers to; needs ``pin_node``.
            pin_node: The only node that may run it.

        Raises:
            DocumentRefusedError: The document is not valid; nothing was started.
            BadWorkloadIdError: The id cannot be one.
            ConflictError: The id belongs to another document.
            NotReadyError: No control worker has ever run in this namespace.
        """
        context = WorkloadContext(
            base_dir=None if base_dir is None else str(base_dir),
            pin_node=pin_node,
            submitted_by=subject(),
        )
        return await self.start(prepare(document, context), id=id)

    async def start(self, submission: Submission, *, id: str | None = None) -> WorkloadHandle:  # noqa: A002
        """Start what `headbay.client.submission.prepare` has checked; see `submit`."""
        if id is None:
            return await self._start_new(submission)
        workload = check_id(id)
        kept, note = await self._past.digest(workload)
        if kept is not None:
            return self._found(workload, submission, kept)
        handle = await self._start(submission, workload)
        notes = (f"whether {workload} was used long ago was not checked: {note}",) if note else ()
        if handle is not None:
            return WorkloadHandle(
                self, workload, created=True, digest=submission.digest, notes=notes
            )
        existing = self.temporal.get_workflow_handle(workload_workflow_id(workload))
        return self._found(workload, submission, await digest_of(existing))

    async def _start_new(self, submission: Submission) -> WorkloadHandle:
        while True:
            workload = generate_id(
                submission.dag.name, time.time_ns() // 1_000_000, secrets.randbits(RANDOM_BITS)
            )
            if await self._start(submission, workload) is not None:
                return WorkloadHandle(self, workload, created=True, digest=submission.digest)

    async def _start(
        self, submission: Submission, workload: WorkloadId
    ) -> WorkflowHandle[Any, Any] | None:
        """Start it; None if the id is taken."""
        try:
            return await self.temporal.start_workflow(
                "Workload", **submission.start_options(workload)
            )
        except WorkflowAlreadyStartedError:
            return None
        except RPCError as error:
            # An unregistered search attribute; control workers register them when they start.
            if error.status is RPCStatusCode.INVALID_ARGUMENT and "Headbay" in error.message:
                raise NotReadyError(
                    f"no control worker has run in namespace {self.temporal.namespace!r} yet "
                    f"({error.message}); start one: `headbay worker control`"
                ) from error
            raise

    def _found(self, workload: WorkloadId, submission: Submission, existing: str) -> WorkloadHandle:
        if existing != submission.digest:
            raise ConflictError(workload, submission.digest, existing)
        return WorkloadHandle(self, workload, created=False, digest=existing)

    def handle(self, workload: str) -> WorkloadHandle:
        """The handle of a workload that may or may not exist.

        Raises:
            BadWorkloadIdError: The id cannot be one.
        """
        return WorkloadHandle(self, check_id(workload))

    async def status(self, workload: str) -> Reading:
        """Where a workload stands, from the best source that answers within seconds.

        Raises:
            NotFoundError: There is no such workload.
        """
        return await self._reader.read(check_id(workload))

    async def wait(
        self,
        workload: str,
        *,
        timeout_s: float | None = None,
        on_trouble: OnTrouble | None = None,
    ) -> Reading:
        """Wait for a workload's end, through outages of server and workers.

        Raises:
            WaitTimeoutError: It goes on.
            NotFoundError: There is no such workload.
        """
        return await self._follower.wait(check_id(workload), timeout_s, on_trouble)

    def follow(
        self, workload: str, *, on_trouble: OnTrouble | None = None
    ) -> AsyncIterator[Reading]:
        """A reading now, one after every change that is seen, and the final one."""
        return self._follower.follow(check_id(workload), on_trouble)

    async def list(self, wanted: listing.ListFilter | None = None) -> WorkloadList:
        """Workloads, newest first: Temporal's, and those that only the ledger still has."""
        return await listing.list_workloads(
            self.temporal, self._past, wanted or listing.ListFilter()
        )

    async def cancel(self, workload: str, reason: str = "") -> Answer:
        """Cancel a workload: what runs is ended, what waits is not started.

        Raises:
            NotFoundError: There is no such workload.
        """
        return await self._order(workload, "cancel", CancelOrder(by=subject(), reason=reason))

    async def resolve(
        self,
        workload: str,
        step: str,
        verdict: Literal["retry", "success", "failure"],
        reason: str = "",
    ) -> Answer:
        """Decide an UNRESOLVED step.

        Raises:
            NotFoundError: There is no such workload.
        """
        order = ResolveOrder(step=step, verdict=verdict, by=subject(), reason=reason)
        return await self._order(workload, "resolve", order)

    async def _order(
        self, workload: str, operation: str, order: CancelOrder | ResolveOrder
    ) -> Answer:
        handle = self.temporal.get_workflow_handle(workload_workflow_id(check_id(workload)))
        return await give_order(handle, "workload", workload, operation, order)

    async def explain(self, workload: str, step: str | None = None) -> Explanation:
        """Why a workload's unfinished steps, or one step, are where they are.

        Raises:
            NotFoundError, StepNotFoundError: There is no such workload or step.
        """
        return await capacity.explain(self.temporal, await self.status(workload), step)

    async def history(self, workload: str) -> History:
        """The journal of a workload: the ledger's, else what its workflow remembers.

        Raises:
            NotFoundError: Neither knows the workload.
        """
        return await journal.read_history(self.temporal, self._past, check_id(workload))

    def logs(
        self,
        workload: str,
        step: str | None = None,
        *,
        follow: bool = False,
        attempt: int | None = None,
    ) -> AsyncIterator[LogPiece]:
        """Output of a workload's steps, for nodes of this machine.

        Args:
            workload: Its id.
            step: Only this step (or all tasks of this matrix step).
            follow: Go on until the workload has ended.
            attempt: Only this attempt; None for each step's last one.

        Raises:
            LogsElsewhereError: They are on another machine; names node and file.
            NotFoundError, StepNotFoundError: There is no such workload or step.
        """
        reader = LogReader(self.places, self._reader, self._follower)
        return reader.read(check_id(workload), step, follow=follow, attempt=attempt)

    # -- nodes and queues ----------------------------------------------------------------------

    async def nodes(self) -> NodeList:
        """Every node, with what is used of it."""
        return await capacity.list_nodes(self.temporal, DEFAULT_POOLS)

    async def queues(self) -> QueueList:
        """Every queue, with its waiting line."""
        return await capacity.list_queues(self.temporal, DEFAULT_POOLS)

    async def cordon(self, node: str, reason: str = "") -> Answer:
        """Give a node no new work.

        Raises:
            NotFoundError: There is no such node.
        """
        return await self._node_order(node, "cordon", NodeOrder(by=subject(), reason=reason))

    async def uncordon(self, node: str, reason: str = "") -> Answer:
        """Give a node work again; ends a drain.

        Raises:
            NotFoundError: There is no such node.
        """
        return await self._node_order(node, "uncordon", NodeOrder(by=subject(), reason=reason))

    async def drain(self, node: str, reason: str = "", *, deadline_s: int | None = None) -> Answer:
        """Cordon a node, and end what still runs there after ``deadline_s`` (None: wait for it).

        Raises:
            NotFoundError: There is no such node.
        """
        order = DrainOrder(by=subject(), reason=reason, deadline_s=deadline_s)
        return await self._node_order(node, "drain", order)

    async def _node_order(self, node: str, operation: str, order: NodeOrder) -> Answer:
        handle = self.temporal.get_workflow_handle(node_workflow_id(node))
        return await give_order(handle, "node", node, operation, order)


def subject() -> str:
    """Who acts, for journals: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # No such entry in the user database: a bare uid in a container.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
