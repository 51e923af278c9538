"""One shard of Headbay's domain tests, run against a wheel that was just built.

    python shard.py HEADBAY-….whl

Environment: SHARD (from 1) of SHARDS. Writes the step's output, JSON with the shard's result and
what it used.
"""

import json
import os
import resource
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

RESULTS = Path("results.xml")


def install(wheel: str, folder: Path) -> dict[str, str]:
    """Unpack the wheel into a fresh folder that comes first on the path; the environment for it."""
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(folder), wheel], check=True)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    # Whatever else is installed here: what is tested has to be the wheel.
    found = subprocess.run(
        [sys.executable, "-c", "import headbay.domain as d; print(d.__file__)"],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    if not Path(found).is_relative_to(folder):
        sys.exit(f"headbay.domain comes from {found}, not from the wheel")
    print(f"testing {found}", flush=True)
    return environment


def files_of(shard: int, shards: int) -> list[str]:
    """Every n-th test file."""
    every = sorted(str(path) for path in Path("tests/domain").rglob("test_*.py"))
    mine = every[shard - 1 :: shards]
    if not mine:
        sys.exit(f"shard {shard} of {shards} has no test file")
    return mine


def counted(results: Path) -> dict[str, int]:
    """How many tests passed, failed and were skipped."""
    suite = next(ET.parse(results).getroot().iter("testsuite"))
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}


def main() -> int:
    """Install, test, tell; pytest's exit status."""
    shard, shards = int(os.environ["SHARD"]), int(os.environ["SHARDS"])
    began = time.monotonic()
    environment = install(sys.argv[1], Path("site").resolve())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--junitxml={RESULTS}", *files_of(shard, shards)]
    code = subprocess.run(command, env=environment, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = {
        "shard": shard,
        **counted(RESULTS),
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mib": used.ru_maxrss // 1024,
    }
    Path(os.environ["HEADBAY_OUTPUT"]).write_text(json.dumps(output))
    return code


if __name__ == "__main__":
    sys.exit(main())
