"""The join: a report that names every shard's result and usage, from the upstreams' outputs.

Fails if a shard failed or is missing, so that the report cannot be greener than the tests.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

COLUMNS = ("passed", "failed", "skipped", "seconds", "cpu_seconds", "peak_mib")


def main() -> int:
    """Write report.md and print it."""
    outputs: dict[str, Any] = json.loads(Path(os.environ["HEADBAY_INPUTS"]).read_text())
    expected = [f"test-{number}" for number in range(1, int(os.environ["SHARDS"]) + 1)]
    lines = [
        "# Headbay, built and tested by Headbay",
        "",
        f"| shard | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    for name in expected:
        output = outputs.get(name, {})
        lines.append(f"| {name} | {' | '.join(str(output.get(c, '-')) for c in COLUMNS)} |")
    total = sum(outputs.get(name, {}).get("passed", 0) for name in expected)
    # Only a step that succeeded has an output.
    bad = [name for name in expected if name not in outputs or outputs[name]["failed"]]
    verdict = f"FAILED: {', '.join(bad)}" if bad else "every shard succeeded"
    lines += ["", f"{len(expected)} shards, {total} tests passed; {verdict}."]
    wheel = [path.name for path in Path("inputs/wheel/dist").glob("*.whl")]
    lines.append(f"Tested: {', '.join(wheel)}")
    text = "\n".join(lines) + "\n"
    Path("report.md").write_text(text)
    print(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
