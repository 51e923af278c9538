"""The launcher: forks shims for the node worker. Standard library only; `python -I -S`.

A small process of its own, because the worker's threads make fork unsafe. It has the shim's code in
memory, so that a shim is one fork: to start an interpreter for each would cost more than all else.
Requests and answers are JSON lines on standard input and output.

  {"id", "op": "spawn", "directory"}          -> {"id", "pid", "ticks"}; the shim is blocked
  {"id", "op": "go", "pid", "nonce", "secrets"} -> {"id"}; the shim starts its payload
  {"id", "op": "drop", "pid"}                  -> {"id"}; the shim leaves without starting it

When the launcher dies, every shim that was not told to go sees the end of its pipe and leaves.
"""

import gc
import json
import os
import signal
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

from shim.entry import main as supervise  # type: ignore[import-not-found]
from shim.kernel import start_ticks  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

EXIT_BROKEN = 70


def spawn(directory: str) -> "tuple[int, int | None, int]":
    """Fork a shim; returns (pid, start ticks, write end of its gate)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_shim(directory, read)
    os.close(read)
    return pid, start_ticks(pid), write


def _become_shim(directory: str, gate: int) -> "NoReturn":
    status = EXIT_BROKEN
    try:
        # A poke that comes before the shim listens must not end it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        errors = os.open(
            os.path.join(directory, "shim.err"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        os.dup2(errors, 2)
        os.closerange(3, gate)
        os.closerange(gate + 1, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("headbay-shim")
        status = supervise(directory, gate)
    except BaseException:  # noqa: BLE001 - said, and then it leaves
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for shims: no zombies.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # What is here already is shared with every shim, and stays so.
    gates: dict[int, int] = {}
    for line in sys.stdin.buffer:
        order = json.loads(line)
        answer = {"id": order["id"]}
        try:
            if order["op"] == "spawn":
                pid, ticks, gate = spawn(order["directory"])
                gates[pid] = gate
                answer |= {"pid": pid, "ticks": ticks}
            else:
                gate = gates.pop(order["pid"])
                try:
                    if order["op"] == "go":
                        os.write(gate, bytes.fromhex(order["nonce"]))
                        data = memoryview(json.dumps(order["secrets"]).encode())
                        while data:
                            data = data[os.write(gate, data) :]
                finally:
                    os.close(gate)
        except (OSError, KeyError) as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
