"""What the service manager is told of this process, over the socket that it named.

The protocol of sd_notify(3) is one datagram of lines; nothing of systemd is needed to speak it. A
process that nobody supervises has no socket, and says nothing.
"""

import asyncio
import os
import socket
from collections.abc import Callable, MutableMapping

import structlog

__all__ = ["Notifier"]

log = structlog.get_logger(__name__)

US_PER_S = 1_000_000
PINGS = 3
"""Signs of life within the time that the manager allows between two."""
STATUS_EVERY_S = 5.0


class Notifier:
    """The line to the service manager.

    Args:
        address: Of its socket; ``@`` begins an abstract one; None: nobody supervises.
        watchdog_us: How long it waits for a sign of life; None: it does not.
    """

    def __init__(self, address: str | None, watchdog_us: int | None = None) -> None:
        self._address = address
        self._watchdog_us = watchdog_us
        self._failed = False
        self._said = ""
        self._socket: socket.socket | None = None

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> "Notifier":
        """The line that the environment names; it is taken out, so that no child finds it.

        Source: sd_notify(3), sd_watchdog_enabled(3): ``WATCHDOG_PID`` says for whom it is.
        """
        address = environ.pop("NOTIFY_SOCKET", None)
        watchdog, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        mine = pid in ("", str(os.getpid())) and watchdog.isdecimal() and int(watchdog) > 0
        return cls(address or None, int(watchdog) if mine else None)

    @property
    def supervised(self) -> bool:
        """Whether anybody listens."""
        return self._address is not None

    def ready(self, status: str) -> None:
        """It serves."""
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def stopping(self) -> None:
        """It has begun to end."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def status(self, text: str) -> None:
        """What `systemctl status` shows; the same again is not sent."""
        if text != self._said:
            self._said = text
            self._send(f"STATUS={_line(text)}")

    async def keep(self, status: Callable[[], str]) -> None:
        """Give signs of life, and the status, for ever.

        Runs on the event loop on purpose: a loop that hangs gives none, and is started again.

        Args:
            status: What to show now.
        """
        if not self.supervised:
            return
        pause = STATUS_EVERY_S
        if self._watchdog_us is not None:
            pause = min(pause, self._watchdog_us / US_PER_S / PINGS)
        while True:
            if self._watchdog_us is not None:
                self._send("WATCHDOG=1")
            self.status(status())
            await asyncio.sleep(pause)

    def close(self) -> None:
        """Say nothing more."""
        self._address = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        """Never waits: a manager that does not read must not stop the node."""
        if self._address is None:
            return
        try:
            if self._socket is None:
                kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
                self._socket = socket.socket(socket.AF_UNIX, kind)
            name = self._address
            self._socket.sendto(message.encode(), "\0" + name[1:] if name[0] == "@" else name)
        except OSError as error:
            if not self._failed:
                self._failed = True
                log.warning(
                    "notify.failed",
                    socket=self._address,
                    error=str(error),
                    hint="the service manager may take this node for hung and start it again",
                )


def _line(text: str) -> str:
    """One line of text: a newline would begin another word of the protocol."""
    return " ".join(text.split())
