"""Promise: the execution benchmark runs on a node, and the launch is within its bound."""

import json
import sys

from .conftest import REPOSITORY


def test_the_execution_benchmark_meets_its_ratio(lab):
    (machine,) = lab.machines(1)
    said = machine.check(
        f"cd {REPOSITORY} && {sys.executable} -m benchmarks execution --json --pairs 9", seconds=200
    )
    result = json.loads(said.splitlines()[-1])
    print(json.dumps(result, indent=1))  # noqa: T201 - the measured figures
    assert result["met"]["launch_ratio"], result
    assert result["cancel_ms"] > 0
    assert 0 < result["shim_pss_bytes"] <= result["shim_rss_bytes"]
