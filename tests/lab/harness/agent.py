"""Inside a machine: runs what the test asks for, over a network of its own that is never cut.

One JSON line in (``argv`` or ``shell``, ``timeout`` in seconds, ``stdin``), one out. Runs with
Python's standard library alone, before anything else is installed.
"""

import json
import socketserver
import subprocess
import time

PORT = 7000


class Handler(socketserver.StreamRequestHandler):
    """One request a connection."""

    def handle(self) -> None:
        """Answer, whatever happens."""
        asked = json.loads(self.rfile.readline())
        try:
            answer = self.answer(asked)
        except subprocess.TimeoutExpired as error:
            out = (error.stdout or b"").decode(errors="replace")
            answer = {"status": -1, "out": out, "err": f"still running after {asked['timeout']} s"}
        except OSError as error:
            answer = {"status": -1, "out": "", "err": str(error)}
        self.wfile.write(json.dumps(answer).encode() + b"\n")

    def answer(self, asked):
        """Run one command; a question without one is answered with the time, in nanoseconds."""
        if "argv" not in asked:
            return {"time": time.time_ns()}
        done = subprocess.run(
            asked["argv"],
            input=asked["stdin"].encode(),
            capture_output=True,
            timeout=asked["timeout"],
            check=False,
        )
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return {"status": done.returncode, "out": out, "err": err}


class Server(socketserver.ThreadingTCPServer):
    """Answers several at once."""

    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    with Server(("", PORT), Handler) as server:
        server.serve_forever()
