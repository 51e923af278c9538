"""Side tasks of a workflow: one that breaks fails the workflow task, instead of hanging silently.

A failed workflow task shows in Temporal's UI, and is taken again until a worker can do it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["Tasks"]


class Tasks:
    """Starts side tasks, and remembers the first that broke.

    Attributes:
        broken: What it raised; a workflow's main loop waits for it too, and calls `check`.
    """

    def __init__(self) -> None:
        self.broken: BaseException | None = None
        self._running: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it beside the main loop; it is kept until it has ended."""
        task = asyncio.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def check(self) -> None:
        """Raise what broke a side task, as what it is: a fault in this program.

        Raises:
            RuntimeError: A side task broke.
        """
        if self.broken is not None:
            raise RuntimeError(f"a side task broke: {self.broken!r}") from self.broken

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and self.broken is None:
            self.broken = task.exception()
