"""Where a benchmark runs: a real dev cluster in a temporary directory, and the floors' workers."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

__all__ = ["Stage", "say", "stage"]

ROOT = Path(__file__).parent.parent


def say(line: str) -> None:
    """Progress goes to standard error: standard output is the result's."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Stage:
    """A running cluster.

    Attributes:
        record: What ``status -o json`` says of it.
    """

    client: Client
    record: dict[str, Any]


def _dev(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HEADBAY_"))}
    env |= {"HEADBAY_STATE": str(state), "HEADBAY_LOG_LEVEL": "warning"}
    return subprocess.run(
        [sys.executable, "-m", "headbay.workers.dev", *words],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )


@asynccontextmanager
async def stage(*, slots: int, ledger: str | None) -> AsyncIterator[Stage]:
    """A cluster whose one node offers ``slots`` CPUs to the null executor, and both floors."""
    with tempfile.TemporaryDirectory(prefix="headbay-bench-") as folder:
        state = Path(folder)
        options = ["--executor", "null", "--cpu", str(slots), "--memory", f"{slots}Gi"]
        if ledger is not None:
            options += ["--ledger", ledger]
        started = _dev(state, "start", *options)
        floors: list[subprocess.Popen[str]] = []
        try:
            if started.returncode != 0:
                raise RuntimeError("the cluster did not start; see above")
            record = json.loads(_dev(state, "status", "-o", "json").stdout)
            floors = [_floor(role, record["address"], slots) for role in ("workflows", "steps")]
            client = await Client.connect(record["address"], data_converter=pydantic_data_converter)
            yield Stage(client, record)
        finally:
            for floor in floors:
                floor.terminate()
            for floor in floors:
                floor.wait(30)
            _dev(state, "stop", "--kill")


def _floor(role: str, address: str, slots: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.floor_worker", role, address, str(slots)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
    )
    line = process.stdout.readline() if process.stdout else ""
    if line.strip() != "ready":
        raise RuntimeError(f"the floor's {role} worker did not start")
    return process
