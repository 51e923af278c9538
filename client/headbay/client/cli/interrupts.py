"""Ctrl-C, counted: the first one asks, the second one means it."""

import asyncio
import signal
from types import TracebackType
from typing import Self

__all__ = ["Interrupts"]


class Interrupts:
    """Turns SIGINT and SIGTERM into events for as long as it is entered.

    Attributes:
        first, second: Set by the first and the second signal.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    def count(self) -> None:
        """One more."""
        (self.second if self.first.is_set() else self.first).set()
