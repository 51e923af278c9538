"""From a command line to an exit code: parses, runs, and says what went wrong."""

import errno
import os
import shlex
import sys
from pathlib import Path
from typing import Final

from cyclopts import CycloptsError

from headbay.client.cli.app import app
from headbay.client.cli.console import flush, say
from headbay.client.cli.exits import FAILED, HEADBAY_FAILED, INTERRUPTED, OK, REFUSED, TIMED_OUT
from headbay.client.cli.files import STDIN
from headbay.domain.errors import HeadbayError

__all__ = ["dispatch"]

TAKES_COMMAND: Final = ("run", "submit")
"""What follows ``--`` is theirs, untouched: it is another program's command line."""

PASSES_ON: Final = (("dev",), ("worker",), ("node", "install"), ("node", "uninstall"))
"""Commands that have a grammar of their own."""

BROKEN_PIPE: Final = 141
"""As if SIGPIPE had ended us: 128 + 13."""

TRACE: Final = "HEADBAY_TRACE"

_CODES: Final = {
    "DOCUMENT_REFUSED": REFUSED,
    "BAD_QUANTITY": REFUSED,
    "BAD_WORKLOAD_ID": REFUSED,
    "BAD_COMMAND_LINE": REFUSED,
    "NOT_LOCAL": REFUSED,
    "CONFLICT": FAILED,
    "NOT_FOUND": FAILED,
    "STEP_NOT_FOUND": FAILED,
    "ATTEMPT_NOT_FOUND": FAILED,
    "LOGS_ELSEWHERE": FAILED,
    "WAIT_TIMEOUT": TIMED_OUT,
}
"""Exit codes of errors; any other is Headbay's own failure."""


def dispatch(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = _dispatch(arguments)
        flush()
    except BrokenPipeError:
        # Whoever read us has had enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BROKEN_PIPE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:
        code = _unwritten(error)
    return code


def _unwritten(error: OSError) -> int:
    """Standard output takes no more, such as that of a full disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    say(f"standard output: {error.strerror}; what it holds is not whole", kind="error")
    return HEADBAY_FAILED


def _dispatch(arguments: list[str]) -> int:
    head, command = _split(arguments)
    try:
        function, bound, unparsed = app.parse_args(head, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        return _bad_command_line(error, _command_without_dashes(arguments))
    extra = {"command": command} if "command" in unparsed else {}
    try:
        code = function(*bound.args, **bound.kwargs, **extra)
    except HeadbayError as error:
        return _failed(error)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else OK
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
            return _unwritten(error)  # Files that commands write are named.
        if os.environ.get(TRACE):
            raise
        return _unexpected(error)
    return code if isinstance(code, int) else OK


def _split(arguments: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """The command line before ``--`` and the command after it, None without ``--``.

    A lone ``-`` is spelt out: the parser takes it for an option without a name.
    """
    command: tuple[str, ...] | None = None
    if arguments and arguments[0] in TAKES_COMMAND and "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], tuple(arguments[at + 1 :])
    elif any(tuple(arguments[: len(words)]) == words for words in PASSES_ON):
        return arguments, None
    return [str(STDIN) if word == "-" else word for word in arguments], command


def _command_without_dashes(arguments: list[str]) -> str:
    """How to run what looks like a command where a file belongs, "" if nothing does."""
    words = arguments[1:]
    plain = words and not words[0].startswith("-") and "--" not in words
    if not plain or arguments[0] not in TAKES_COMMAND or Path(words[0]).exists():
        return ""
    return f"a command goes after `--`: `headbay {arguments[0]} -- {shlex.join(words)}`"


def _bad_command_line(error: CycloptsError, hint: str) -> int:
    chain = " ".join(["headbay", *(error.command_chain or ())])
    say(f"{' '.join(str(error).split())} {hint or f'See `{chain} --help`.'}", kind="error")
    return REFUSED


def _failed(error: HeadbayError) -> int:
    problems = getattr(error, "problems", None)
    if problems:
        from headbay.client.cli.problems import tell_problems

        tell_problems(problems, getattr(error, "source", ""))
    else:
        say(str(error), kind="error")
    return _CODES.get(error.code, HEADBAY_FAILED)


def _unexpected(error: Exception) -> int:
    """Temporal's refusals have a message worth reading; everything else is a fault of ours."""
    if type(error).__name__ == "RPCError":
        status = getattr(error, "status", None)
        said = f"Temporal: {getattr(status, 'name', '')}: {error}"
        say(f"{said}; look with `headbay doctor`", kind="error")
        return HEADBAY_FAILED
    say(
        f"{type(error).__name__}: {error}\n  This is a fault in Headbay: run it again with "
        f"{TRACE}=1 and report what it prints.",
        kind="error",
    )
    return HEADBAY_FAILED
