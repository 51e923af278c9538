"""Writes docs/cli.md from what every command says of itself; `--check` only compares."""

import os
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"
WIDTH = "100"

COMMANDS = [
    *(["run"], ["submit"], ["wait"], ["follow"]),
    *(["list"], ["status"], ["logs"], ["explain"], ["history"], ["ui"]),
    *(["cancel"], ["resolve"]),
    *(["node", "list"], ["node", "cordon"], ["node", "uncordon"], ["node", "drain"]),
    *(["node", "install"], ["node", "uninstall"]),
    ["queue", "list"],
    *(["validate"], ["init"], ["doctor"], ["completion"]),
]

HEAD = """\
# The `headbay` command

Tables are for eyes; `-o json` is one document with a schema (see [`contracts/`](../contracts/)), \
`-o jsonl` one row a line, `-o quiet` names only. Results go to standard output, everything else \
to standard error. `last` stands for the workload that was submitted last from this machine. \
`NO_COLOR` is respected. This page is generated: `python scripts/cli_docs.py`.
"""

TAIL = """\
## headbay dev

A whole cluster on this machine: Temporal with its UI, a control worker, nodes, a ledger. State \
is kept under `$HEADBAY_STATE` (default: `~/.local/state/headbay`). `headbay dev COMMAND --help` \
lists the options.

| Command | Does |
|---|---|
| `headbay dev` | run in the foreground until Ctrl-C |
| `headbay dev start` | start in the background, and wait until it is ready; `--nodes`, `--cpu`, \
`--memory`, `--executor`, `--ledger` shape it |
| `headbay dev status` | what runs; exit code 0 ready, 1 degraded, 3 not running; `-o json` |
| `headbay dev stop` | stop cleanly; state is kept, running steps go on under their lease; \
`--kill` ends them first |
| `headbay dev restart` | stop and start; running steps do not notice |
| `headbay dev reset` | stop, and delete all state but secrets; refuses while steps run unless \
`--kill` |

## headbay worker

`headbay worker control` hosts workflows, `headbay worker node` runs steps on this machine; \
`--help` lists their options. They connect as `temporal` does, keep running until SIGTERM, and log \
one JSON object a line. `HEADBAY_LEDGER`, `HEADBAY_ARTIFACTS`, `HEADBAY_STATE`, \
`HEADBAY_LOG_LEVEL` and `HEADBAY_LOG_FORMAT` (`console`, `json`) set them up.
"""


def said(words: list[str]) -> str:
    """What a command says when asked for help."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/you",
        "COLUMNS": WIDTH,
        "NO_COLOR": "1",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "PYTHONSAFEPATH": "1",
    }
    program = str(Path(sys.executable).parent / "headbay")
    ran = subprocess.run(
        [program, *words, "--help"], env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        sys.exit(f"headbay {' '.join(words)} --help ended with {ran.returncode}:\n{ran.stderr}")
    return "\n".join(line.rstrip() for line in ran.stdout.strip().splitlines())


def page() -> str:
    """The whole page."""
    parts = [HEAD, f"```text\n{said([])}\n```\n"]
    parts += [f"## headbay {' '.join(w)}\n\n```text\n{said(w)}\n```\n" for w in COMMANDS]
    return "\n".join([*parts, TAIL])


def main() -> int:
    """Write or compare; 1 if the page is not what the commands say."""
    text = page()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    print(f"{TARGET} is not what the commands say: run 'make fix'", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
