"""A payload that leaves a trace: when it started, every 50 ms that it lived, and when it ended.

`ticker.py STEP SECONDS` writes to a file of its own in /records; every line is on the host before
the next is written. Runs with Python's standard library alone.
"""

import os
import sys
import time

TICK_S = 0.05


def main() -> None:
    """Write until the time is up."""
    step, seconds = sys.argv[1], float(sys.argv[2])
    attempt, fence = os.environ["HEADBAY_ATTEMPT_NUMBER"], os.environ["HEADBAY_FENCE"]
    name = f"/records/{step}.a{attempt}.f{fence}.{os.getpid()}"
    trace = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)

    def mark(kind: str) -> None:
        os.write(trace, f"{kind} {time.time_ns()}\n".encode())
        os.fsync(trace)

    mark("start")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(TICK_S)
        mark("tick")
    mark("end")


if __name__ == "__main__":
    main()
