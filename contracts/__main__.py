"""Writes the published contracts, or with ``--check`` shows where they no longer fit the code.

Run from the repository's root: ``python -m contracts [--check]``.
"""

import argparse
import difflib
import sys
from pathlib import Path
from typing import Final

from contracts.published import published

__all__ = ["main"]

SCHEMA_DIR: Final = Path(__file__).parent / "schema"


def main(arguments: list[str] | None = None, directory: Path = SCHEMA_DIR) -> int:
    """Write every contract, or compare; 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m contracts", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 on drift")
    check = parser.parse_args(arguments).check
    wanted = dict(published())
    found = {path.name: path for path in directory.glob("*.json")}
    if not check:
        directory.mkdir(exist_ok=True)
        for name, text in wanted.items():
            (directory / name).write_text(text, encoding="utf-8")
        for name in found.keys() - wanted.keys():
            found[name].unlink()
        return 0
    drift = 0
    for name in sorted(wanted.keys() | found.keys()):
        old = found[name].read_text(encoding="utf-8") if name in found else ""
        new = wanted.get(name, "")
        if old != new:
            drift = 1
            diff = difflib.unified_diff(
                old.splitlines(keepends=True),
                new.splitlines(keepends=True),
                f"contracts/schema/{name}",
                "the code",
            )
            sys.stdout.writelines(diff)
    if drift:
        sys.stderr.write("contracts differ from the code: run `python -m contracts`\n")
    return drift


if __name__ == "__main__":
    sys.exit(main())
