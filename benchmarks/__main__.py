"""`python -m benchmarks engine|execution`: progress on stderr, the result on standard output."""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.engine import Engine
from benchmarks.execution import Execution
from benchmarks.stage import stage


def parser() -> argparse.ArgumentParser:
    """Options."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("what", choices=["engine", "execution"])
    options.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    options.add_argument("--pairs", type=int, default=3, help="interleaved pairs (default 3)")
    options.add_argument("--workloads", type=int, default=300, help="single-step workloads a round")
    options.add_argument("--steps", type=int, default=1_000, help="steps of the DAG (at most 1024)")
    options.add_argument("--slots", type=int, default=256, help="CPUs of the node")
    options.add_argument("--ledger", help="URL (default: a SQLite file)")
    return options


async def engine(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the engine benchmark."""
    async with stage(slots=arguments.slots, ledger=arguments.ledger) as where:
        benchmark = Engine(
            where, workloads=arguments.workloads, steps=arguments.steps, slots=arguments.slots
        )
        result = await benchmark.measure(arguments.pairs)
    return {
        "benchmark": "engine",
        "headbay": version("headbay"),
        "temporalio": version("temporalio"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        **result.to_json(),
    }


async def execution(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the execution benchmark, on a node."""
    with tempfile.TemporaryDirectory(prefix="headbay-bench-", dir="/var/tmp") as folder:
        result = await Execution(Path(folder)).measure(arguments.pairs)
    return {
        "benchmark": "execution",
        "headbay": version("headbay"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        **result,
    }


def main() -> int:
    """Entry point."""
    arguments = parser().parse_args()
    result = asyncio.run({"engine": engine, "execution": execution}[arguments.what](arguments))
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:<26} {value}")
    return 1 if arguments.check and not all(result["met"].values()) else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The SDK may abort at interpreter exit (temporalio/sdk-python#300).
    os._exit(code)
