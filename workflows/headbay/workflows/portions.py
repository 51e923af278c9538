"""How much one workflow task may order."""

import asyncio
from datetime import timedelta

from temporalio import workflow

from headbay.domain.attempt import LaunchSpec

__all__ = ["Portions"]

PORTION_CHARS = 500_000
"""Of arguments and environments that one workflow task may order; JSON and UTF-8 make up to six
bytes of a character."""

PORTIONS = "starts-in-portions"
"""Patch: before it, a task ordered whatever was granted."""


class Portions:
    """Spreads orders over workflow tasks.

    What a task orders is one message to the server, which takes 4 MiB and ends the workflow for
    more.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._events = 0
        self._chars = 0

    async def take(self, spec: LaunchSpec) -> None:
        """Wait for another workflow task if this one orders too much already."""
        size = len(spec.step) + sum(map(len, spec.argv))
        size += sum(len(name) + len(value) for name, value in spec.env.items())
        async with self._turn:
            self._notice_task()
            if self._chars and self._chars + size > PORTION_CHARS and workflow.patched(PORTIONS):
                await workflow.sleep(timedelta(milliseconds=1))
                self._notice_task()
            self._chars += size

    def _notice_task(self) -> None:
        """History grows between workflow tasks, and only there."""
        events = workflow.info().get_current_history_length()
        if events != self._events:
            self._events, self._chars = events, 0
