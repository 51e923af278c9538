"""What `run` and `submit` are given, made into a checked submission."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headbay.client.cli.files import STDIN, source_of
from headbay.client.cli.problems import BadCommandLineError
from headbay.client.source import Loaded, load
from headbay.domain.ids import STEP_NAME

__all__ = ["CommandOptions", "Intake", "take"]

INHERITED: Final = ("PATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TZ")
"""What a command takes over from the caller. Not the whole environment: it may hold secrets, and
a document is kept for years."""


@dataclass(frozen=True)
class CommandOptions:
    """Options that describe a command after ``--``."""

    cpu: str | None
    memory: str | None
    env: list[str]
    name: str | None
    queue: str | None
    priority: int | None
    timeout: str | None
    label: list[str]

    @property
    def given(self) -> list[str]:
        """Names of those that were given."""
        return [f"--{name}" for name, value in vars(self).items() if value not in (None, [])]


@dataclass(frozen=True)
class Intake:
    """What shall be submitted.

    Attributes:
        loaded: The document and where its parts are written.
        folder: What a relative ``workdir`` refers to: the file's folder, or ours.
        command: Whether it is a command whose output belongs on our standard output.
    """

    loaded: Loaded
    folder: Path
    command: bool


def take(file: Path | None, command: tuple[str, ...] | None, options: CommandOptions) -> Intake:
    """Read a file, or make a document of a command.

    Raises:
        BadCommandLineError: Neither, both, or options that do not fit.
        DocumentRefusedError: The file cannot be read as a document.
    """
    if command is not None:
        if file is not None:
            raise BadCommandLineError(
                f"both a file ({file}) and a command after `--` were given; leave one of them out"
            )
        if not command:
            raise BadCommandLineError("no command follows `--`; write `headbay run -- make test`")
        document = command_document(command, options)
        return Intake(load(document, name="command line"), _here(), command=True)
    if file is None:
        raise BadCommandLineError(
            "nothing to run; give a file (`headbay run ci.yaml`) or a command after `--` "
            "(`headbay run -- make test`)"
        )
    if options.given:
        raise BadCommandLineError(
            f"{', '.join(options.given)} only describe a command after `--`; "
            f"for a file, write them into {file}"
        )
    folder = _here() if file == STDIN else file.resolve().parent
    return Intake(load(source_of(file)), folder, command=False)


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise BadCommandLineError(
            "the current directory does not exist any more; change to one that does"
        ) from error


def command_document(command: tuple[str, ...], options: CommandOptions) -> dict[str, Any]:
    """A workload of one step that runs a command in the submitter's directory."""
    step: dict[str, Any] = {
        "name": step_name(command[0]),
        "run": list(command),
        "workdir": ".",
        "env": {key: os.environ[key] for key in INHERITED if key in os.environ}
        | key_values("--env", options.env),
    }
    resources = {
        key: value
        for key, value in (("cpu", options.cpu), ("memory", options.memory))
        if value is not None
    }
    if resources:
        step["resources"] = resources
    if options.timeout is not None:
        step["timeout"] = options.timeout
    document: dict[str, Any] = {
        "apiVersion": "headbay/v1",
        "name": options.name or step["name"],
        "steps": [step],
    }
    if options.queue is not None:
        document["queue"] = options.queue
    if options.priority is not None:
        document["priority"] = options.priority
    if options.label:
        document["labels"] = key_values("--label", options.label)
    return document


def key_values(option: str, pairs: list[str]) -> dict[str, str]:
    """``KEY=VALUE`` options as a mapping.

    Raises:
        BadCommandLineError: One of them has no key or no equals sign.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadCommandLineError(f"{option} {pair!r} is not of the form KEY=VALUE")
        found[key] = value
    return found


def step_name(program: str) -> str:
    """A step name from a program's path: ``/usr/bin/Python3.11`` is ``python3-11``."""
    name = re.sub(r"[^a-z0-9]+", "-", Path(program).name.lower())[:64].strip("-")
    return name if STEP_NAME.fullmatch(name) else "command"
