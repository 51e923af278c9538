"""The `headbay` command as a process of its own, against a test's cluster."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.cluster import Cluster


class Command:
    """Runs `headbay` in a directory."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.env = cluster.env

    def __call__(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*arguments),
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.env | more,
            timeout=90,
            check=False,
        )

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            self.words(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.env,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @staticmethod
    def words(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "headbay.client.cli", *arguments]

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name
