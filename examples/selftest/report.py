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
    upstreams: dict[str, Any] = json.loads(Path(os.environ["HEADBAY_INPUTS"]).read_text())
    shards = {name: up for name, up in upstreams.items() if name.startswith("test-")}
    lines = [
        "# Headbay, built and tested by Headbay",
        "",
        f"| shard | state | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---|' * len(COLUMNS)}",
    ]
    for name in sorted(shards):
        output = shards[name].get("output") or {}
        cells = [str(output.get(column, "-")) for column in COLUMNS]
        lines.append(f"| {name} | {shards[name]['state']} | {' | '.join(cells)} |")
    total = sum((up.get("output") or {}).get("passed", 0) for up in shards.values())
    bad = sorted(name for name, up in shards.items() if up["state"] != "SUCCEEDED")
    verdict = f"failed: {', '.join(bad)}" if bad else "every shard succeeded"
    lines += ["", f"{len(shards)} shards, {total} tests passed; {verdict}."]
    wheel = [path.name for path in Path("inputs/wheel/dist").glob("*.whl")]
    lines.append(f"Tested: {', '.join(wheel)}")
    text = "\n".join(lines) + "\n"
    Path("report.md").write_text(text)
    print(text)
    return 1 if bad or not shards else 0


if __name__ == "__main__":
    sys.exit(main())
