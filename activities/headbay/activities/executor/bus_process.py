"""Talks to systemd over D-Bus for the node worker; `python -I`, the only user of pystemd.

A process of its own: pystemd holds the interpreter's lock while it waits, survives no fork, and
leaks a little with every failed call. Requests and answers are JSON lines on standard input and
output; answers come as they are ready.

  {"id", "op": "start", "unit", "properties"} -> {"id", "result"}; once its job has ended
  {"id", "op": "stop", "unit"}                -> {"id", "result"}; likewise; no such unit: "absent"
  {"id", "op": "get", "unit", "interface", "property"} -> {"id", "value"}

Properties are [name, D-Bus signature, value]. What systemd refuses is answered with ``error`` and
``errno``. When the bus itself fails, this process leaves: nobody knows then what became of a call.

  bus_process.py system|user
"""

import errno
import json
import os
import select
import sys

from pystemd.dbusexc import DBusBaseError
from pystemd.dbuslib import DBus, apply_signature, path_encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SYSTEMD = b"org.freedesktop.systemd1"
MANAGER = (SYSTEMD, b"/org/freedesktop/systemd1", b"org.freedesktop.systemd1.Manager")
PROPERTIES = b"org.freedesktop.DBus.Properties"
BROKEN = {
    errno.ECONNRESET,
    errno.ENOTCONN,
    errno.EPIPE,
    errno.ETIMEDOUT,
    errno.ECONNREFUSED,
    errno.ECONNABORTED,
    errno.EIO,
}
EXIT_BUS_LOST = 71


def encoded(value: "Any") -> "Any":
    """JSON's strings as the bytes that pystemd takes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [encoded(item) for item in value]
    return value


def decoded(value: "Any") -> "Any":
    """What pystemd answers, as JSON takes it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)):
        return [decoded(item) for item in value]
    return value


def said(error: DBusBaseError) -> str:
    """What went wrong, in systemd's words where there are any."""
    return decoded(error.err_message) or os.strerror(-error.errno)


def property_array(properties: "list[Any]") -> "list[tuple[int, Any]]":
    """Arguments of D-Bus type ``a(sv)``.

    pystemd's own table lacks PIDs, CPUWeight, OOMPolicy and more: the signature comes along.
    """
    arguments: list[tuple[int, Any]] = [(ord("a"), b"(sv)")]
    for name, signature, value in properties:
        arguments += [(ord("r"), b"sv"), (ord("s"), name.encode()), (ord("v"), signature.encode())]
        arguments += apply_signature(signature.encode(), [encoded(value)])
        arguments += [(-1, None), (-1, None)]
    return [*arguments, (-1, None)]


class Systemd:
    """One connection to a service manager."""

    def __init__(self, *, user: bool) -> None:
        self._bus = DBus(user_mode=user)
        self._bus.open()
        self._jobs: dict[str, int] = {}
        # Kept: nothing else refers to it.
        self._on_removed = lambda message, **_: self._removed(message)
        self._bus.match_signal(None, MANAGER[1], MANAGER[2], b"JobRemoved", self._on_removed)
        self._call(b"Subscribe", [])

    def fileno(self) -> int:
        """For poll(2)."""
        return int(self._bus.get_fd())

    def serve(self, order: "dict[str, Any]") -> "dict[str, Any] | None":
        """The answer; None if it comes when the job has ended."""
        unit = order["unit"].encode()
        match order["op"]:
            case "start":
                arguments = [(ord("s"), unit), (ord("s"), b"fail")]
                arguments += property_array(order["properties"])
                arguments += [(ord("a"), b"(sa(sv))"), (-1, None)]
                self._jobs[decoded(self._call(b"StartTransientUnit", arguments))] = order["id"]
            case "stop":
                arguments = [(ord("s"), unit), (ord("s"), b"replace")]
                try:
                    self._jobs[decoded(self._call(b"StopUnit", arguments))] = order["id"]
                except DBusBaseError as error:
                    if -error.errno != errno.ENOENT:
                        raise
                    return {"result": "absent"}
            case "get":
                path = path_encode(MANAGER[1] + b"/unit", unit)
                arguments = [(ord("s"), order[name].encode()) for name in ("interface", "property")]
                message = self._bus.call_method(SYSTEMD, path, PROPERTIES, b"Get", arguments)
                return {"value": decoded(message.body)}
            case op:
                raise KeyError(op)
        return None

    def _call(self, method: bytes, arguments: "list[tuple[int, Any]]") -> "Any":
        return self._bus.call_method(*MANAGER, method, arguments).body

    def ended(self) -> "list[dict[str, Any]]":
        """Answers of jobs that have ended meanwhile."""
        self._answers: list[dict[str, Any]] = []
        while not self._bus.process().is_empty():
            pass
        return self._answers

    def _removed(self, message: "Any") -> None:
        message.process_reply(False)
        _, job, _, result = decoded(message.body)
        order = self._jobs.pop(job, None)
        if order is not None:
            self._answers.append({"id": order, "result": result})


def answer(record: "dict[str, Any]") -> None:
    """Write one."""
    sys.stdout.buffer.write(json.dumps(record).encode() + b"\n")
    sys.stdout.buffer.flush()


def main() -> int:
    """Serve until standard input ends, or the bus is lost."""
    try:
        systemd = Systemd(user=sys.argv[1] == "user")
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(systemd.fileno(), select.POLLIN)
        heard = b""
        while True:
            for done in systemd.ended():
                answer(done)
            ready = poll.poll()
            if not any(fd == 0 for fd, _ in ready):
                continue
            part = os.read(0, 1 << 16)
            if not part:
                return 0
            *lines, heard = (heard + part).split(b"\n")
            for line in lines:
                order = json.loads(line)
                try:
                    found = systemd.serve(order)
                except DBusBaseError as error:
                    if -error.errno in BROKEN:
                        raise
                    answer({"id": order["id"], "error": said(error), "errno": -error.errno})
                else:
                    if found is not None:
                        answer({"id": order["id"], **found})
    except DBusBaseError as error:
        sys.stderr.write(f"the connection to systemd failed: {said(error)}\n")
        return EXIT_BUS_LOST


if __name__ == "__main__":
    sys.exit(main())
