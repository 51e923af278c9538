"""Drives Debian's headless Chromium over the DevTools protocol on a pipe: no other package.

Source: `--remote-debugging-pipe`: commands on descriptor 3, answers on 4, JSON ended by NUL.
"""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium")


class Page:
    """One browser with one page."""

    def __init__(self, profile: Path, width: int = 1500, height: int = 1100) -> None:
        assert PROGRAM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Chromium wants 3 and 4: a shell moves them there, since Popen's pass_fds keeps numbers.
        flags = f"--headless=new --disable-gpu --no-first-run --window-size={width},{height}"
        sandbox = "--no-sandbox" if os.geteuid() == 0 else ""
        script = (
            f"exec {PROGRAM} {flags} {sandbox} --disable-dev-shm-usage --remote-debugging-pipe "
            f'"--user-data-dir={profile}" 3<&{theirs_in} 4>&{theirs_out}'
        )
        self._process = subprocess.Popen(
            ["bash", "-c", script],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command, wait for its answer; events in between are skipped."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        os.write(self._out, json.dumps(order).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return message["result"]

    def _next(self) -> Any:
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 16)
            assert data, "Chromium has gone"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, url: str) -> None:
        """Go to a page."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return answer["result"].get("value")

    def shows(self, *texts: str, seconds: float = 30.0) -> str:
        """Wait until the visible text of page and frames has them all; the text."""
        read = (
            "[document, ...[...document.querySelectorAll('iframe')].map(f => f.contentDocument)]"
            ".map(d => d && d.body ? d.body.innerText : '').join('\\n')"
        )
        deadline = time.monotonic() + seconds
        while True:
            text = self.run(read) or ""
            missing = [wanted for wanted in texts if wanted not in text]
            if not missing:
                return text
            assert time.monotonic() < deadline, f"never shown: {missing}; but:\n{text}"
            time.sleep(0.1)

    def click(self, text: str) -> None:
        """Click the link or tab with this text."""
        found = self.run(
            "(() => { const all = [...document.querySelectorAll('a, button, [role=tab]')];"
            f"const it = all.find(e => e.innerText.trim().startsWith({json.dumps(text)}));"
            "if (it) it.click(); return Boolean(it); })()"
        )
        assert found, f"nothing to click says {text!r}"

    def picture(self) -> bytes:
        """PNG of what is visible."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._out)
        os.close(self._in)
