"""Typed client of Headbay: submit workloads, follow them, operate nodes.

Example::

    async with await HeadbayClient.connect() as headbay:
        handle = await headbay.submit("ci.yaml")
        reading = await handle.wait()
        print(reading.workload.status)

Names are imported when they are first used, so that the `headbay` command starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headbay.client.client import HeadbayClient as HeadbayClient
    from headbay.client.connection import Target as Target
    from headbay.client.connection import find_target as find_target
    from headbay.client.errors import AttemptNotFoundError as AttemptNotFoundError
    from headbay.client.errors import BadConfigurationError as BadConfigurationError
    from headbay.client.errors import BadWorkloadIdError as BadWorkloadIdError
    from headbay.client.errors import ConflictError as ConflictError
    from headbay.client.errors import LogsElsewhereError as LogsElsewhereError
    from headbay.client.errors import NoServerConfiguredError as NoServerConfiguredError
    from headbay.client.errors import NotFoundError as NotFoundError
    from headbay.client.errors import NotLocalError as NotLocalError
    from headbay.client.errors import NotReadyError as NotReadyError
    from headbay.client.errors import ServerUnreachableError as ServerUnreachableError
    from headbay.client.errors import StepNotFoundError as StepNotFoundError
    from headbay.client.errors import WaitTimeoutError as WaitTimeoutError
    from headbay.client.handle import WorkloadHandle as WorkloadHandle
    from headbay.client.listing import ListFilter as ListFilter
    from headbay.client.models import Answer as Answer
    from headbay.client.models import Explanation as Explanation
    from headbay.client.models import History as History
    from headbay.client.models import NodeList as NodeList
    from headbay.client.models import QueueList as QueueList
    from headbay.client.models import Reading as Reading
    from headbay.client.models import Source as Source
    from headbay.client.models import WorkloadList as WorkloadList

_WHERE = {
    "HeadbayClient": "client",
    "Target": "connection",
    "find_target": "connection",
    "AttemptNotFoundError": "errors",
    "BadConfigurationError": "errors",
    "BadWorkloadIdError": "errors",
    "ConflictError": "errors",
    "LogsElsewhereError": "errors",
    "NoServerConfiguredError": "errors",
    "NotFoundError": "errors",
    "NotLocalError": "errors",
    "NotReadyError": "errors",
    "ServerUnreachableError": "errors",
    "StepNotFoundError": "errors",
    "WaitTimeoutError": "errors",
    "WorkloadHandle": "handle",
    "ListFilter": "listing",
    "Answer": "models",
    "Explanation": "models",
    "History": "models",
    "NodeList": "models",
    "QueueList": "models",
    "Reading": "models",
    "Source": "models",
    "WorkloadList": "models",
}

__all__ = [  # noqa: PLE0604 - strings, from one table
    *_WHERE
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
