"""One workload, as its submitter holds it."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

from headbay.client.following import OnTrouble
from headbay.client.models import Answer, Explanation, History, Reading
from headbay.domain.ids import WorkloadId

if TYPE_CHECKING:
    from headbay.client.client import HeadbayClient
    from headbay.client.logs import LogPiece

__all__ = ["WorkloadHandle"]


class WorkloadHandle:
    """Everything that can be asked of, or done to, one workload.

    Attributes:
        id: Its id. created: False if a submission found that it exists already.
        digest: Of its document, "" if this handle did not submit it.
        notes: What the submitter should know (a check that could not be made).
    """

    def __init__(
        self,
        client: "HeadbayClient",
        workload: WorkloadId,
        *,
        created: bool = False,
        digest: str = "",
        notes: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self.id = workload
        self.created = created
        self.digest = digest
        self.notes = notes

    async def status(self) -> Reading:
        """Where it stands now; see `HeadbayClient.status`."""
        return await self._client.status(self.id)

    async def wait(
        self, *, timeout_s: float | None = None, on_trouble: OnTrouble | None = None
    ) -> Reading:
        """Its final status; see `HeadbayClient.wait`."""
        return await self._client.wait(self.id, timeout_s=timeout_s, on_trouble=on_trouble)

    def follow(self, *, on_trouble: OnTrouble | None = None) -> AsyncIterator[Reading]:
        """Its status now and after every change; see `HeadbayClient.follow`."""
        return self._client.follow(self.id, on_trouble=on_trouble)

    async def cancel(self, reason: str = "") -> Answer:
        """Cancel it; see `HeadbayClient.cancel`."""
        return await self._client.cancel(self.id, reason)

    async def resolve(
        self, step: str, verdict: Literal["retry", "success", "failure"], reason: str = ""
    ) -> Answer:
        """Decide an UNRESOLVED step; see `HeadbayClient.resolve`."""
        return await self._client.resolve(self.id, step, verdict, reason)

    async def explain(self, step: str | None = None) -> Explanation:
        """Why it is not further; see `HeadbayClient.explain`."""
        return await self._client.explain(self.id, step)

    async def history(self) -> History:
        """Its journal; see `HeadbayClient.history`."""
        return await self._client.history(self.id)

    def logs(self, step: str | None = None, *, follow: bool = False) -> AsyncIterator["LogPiece"]:
        """Its output; see `HeadbayClient.logs`."""
        return self._client.logs(self.id, step, follow=follow)
