"""Promise: the execution benchmark runs on a node, and measures all that it says it does."""

import json
import sys

from .conftest import REPOSITORY


def test_the_execution_benchmark_measures_a_node(lab):
    (machine,) = lab.machines(1)
    said = machine.check(
        f"cd {REPOSITORY} && {sys.executable} -m benchmarks execution --json --pairs 3", seconds=200
    )
    result = json.loads(said.splitlines()[-1])
    assert result["launch_ratio"] > 0
    assert set(result["parts_ms"]) == {"spool", "scope", "exec"}
    assert result["cancel_ms"] > 0
    assert 0 < result["shim_pss_bytes"] <= result["shim_rss_bytes"]
