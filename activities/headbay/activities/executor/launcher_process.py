"""The launcher: starts shims for the node worker. Standard library only; `python -I -S`.

A small process of its own, because the worker's threads make fork unsafe, and because what talks
to D-Bus may block. Requests and answers are JSON lines on standard input and output.

  {"id", "op": "spawn", "directory"}          -> {"id", "pid", "ticks"}; the shim is blocked
  {"id", "op": "go", "pid", "nonce", "secrets"} -> {"id"}; the shim starts its payload
  {"id", "op": "drop", "pid"}                  -> {"id"}; the shim leaves without starting it

When the launcher dies, every shim that was not told to go sees the end of its pipe and leaves.
"""

import json
import os
import signal
import sys

SHIM = sys.argv[1]
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def start_ticks(pid: int) -> int:
    """Start time of a process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def spawn(directory: str) -> "tuple[int, int, int]":
    """Fork a shim; returns (pid, start ticks, write end of its gate)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.set_inheritable(read, True)
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            errors = os.open(
                os.path.join(directory, "shim.err"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
            )
            os.dup2(errors, 2)
            os.closerange(3, read)
            os.closerange(read + 1, 4096)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # A poke that comes before the shim listens must not end it.
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            argv = [sys.executable, "-I", "-S", SHIM, directory, str(read)]
            os.execve(sys.executable, argv, ENVIRONMENT)
        finally:
            os._exit(127)
    os.close(read)
    return pid, start_ticks(pid), write


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for shims: no zombies.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
