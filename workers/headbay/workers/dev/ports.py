"""Which ports the embedded server takes: the same ones at every start, so that clients reconnect.

Only the loopback interface is used.
"""

import json
import socket
from pathlib import Path

from headbay.domain.wire import Wire

__all__ = ["HOST", "Ports", "choose"]

GRPC_PORT = 7233
UI_PORT = 8233
"""Where `temporal` and people look for a server and its UI, if nobody else sits there."""

HOST = "127.0.0.1"


class Ports(Wire):
    """The embedded server's ports."""

    grpc: int
    ui: int


def choose(remembered: Path) -> tuple[Ports, list[str]]:
    """Ports for a start, remembered for the next one.

    Args:
        remembered: JSON file with the ports of the last start; made or replaced.

    Returns:
        The ports, and a line for each one that is not what it was.
    """
    last = _last(remembered)
    changes: list[str] = []
    grpc = _take(last.grpc if last else GRPC_PORT)
    ui = _take(last.ui if last else UI_PORT)
    if last and grpc != last.grpc:
        changes.append(f"port {last.grpc} is taken: the server listens on {grpc}")
    if last and ui != last.ui:
        changes.append(f"port {last.ui} is taken: the UI listens on {ui}")
    ports = Ports(grpc=grpc, ui=ui)
    if ports != last:
        remembered.write_text(json.dumps(ports.model_dump()))
    return ports, changes


def _last(remembered: Path) -> Ports | None:
    """Those of the last start; None if there was none, or nobody can read them any more."""
    try:
        return Ports.model_validate_json(remembered.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _take(wanted: int) -> int:
    """``wanted`` if it is free, else any free port."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")
