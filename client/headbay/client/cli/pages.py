"""Addresses in Temporal's UI."""

import contextlib
import os
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

from headbay.client.cli.session import places, resolve_id
from headbay.client.workload_id import check_id
from headbay.domain.errors import HeadbayError
from headbay.domain.ids import workload_workflow_id

if TYPE_CHECKING:
    from headbay.client.connection import Target

__all__ = ["UI", "NoUiError", "look_for", "page", "workload_page"]

UI = "HEADBAY_UI"


class NoUiError(HeadbayError):
    """Nobody said where the UI is."""

    code: ClassVar[str] = "NO_UI"

    def __init__(self) -> None:
        super().__init__(
            f"the address of Temporal's UI is not known; set {UI} to it, for instance "
            f"{UI}=https://temporal.example.com, or start an embedded cluster with "
            "`headbay dev start`"
        )


def page(workload: str | None) -> str:
    """The page of a workload, or of all workflows.

    Raises:
        NoUiError: The UI's address is not known.
    """
    from headbay.client.connection import find_target

    target = find_target(os.environ, places())
    found = _base(target)
    if not found:
        raise NoUiError
    if workload is None:
        return found
    return f"{found}/{quote(workload_workflow_id(check_id(resolve_id(workload))), safe='')}"


def look_for(workload: str) -> None:
    """See whether the workload is there; without an answer its page may be.

    Raises:
        NotFoundError: It is not.
    """
    from headbay.client.cli.session import with_client
    from headbay.client.errors import (
        NoServerConfiguredError,
        NotReadyError,
        ServerUnreachableError,
    )

    with contextlib.suppress(NoServerConfiguredError, NotReadyError, ServerUnreachableError):
        with_client(lambda client: client.status(resolve_id(workload)))


def workload_page(target: "Target | None", workload: str) -> str:
    """The page of a workload, "" if the UI's address is not known."""
    found = _base(target)
    return f"{found}/{quote(workload_workflow_id(workload), safe='')}" if found else ""


def _base(target: "Target | None") -> str:
    address = os.environ.get(UI) or (target.dev.ui if target and target.dev else "")
    namespace = target.namespace if target else "default"
    return f"{address.rstrip('/')}/namespaces/{namespace}/workflows" if address else ""
