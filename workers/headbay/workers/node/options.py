"""Options of a node worker: what it is called, what it offers, how it runs steps.

Shared by the worker itself and by `headbay node install`, which writes them into a unit: what one
refuses the other does too.
"""

import argparse
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from headbay.domain.errors import HeadbayError
from headbay.domain.quantity import QuantityError, parse_cpu, parse_memory, show_cpu, show_memory
from headbay.domain.taint import BadTaintError, Taint, parse_taint

__all__ = ["BadOptionError", "add_options", "capacity", "labels", "taints", "words"]

RESERVE_DIVISOR = 10
"""A tenth of memory and tasks stays for the system if nothing else is said."""

OFFERS: dict[str, Callable[[str], int]] = {"cpu": parse_cpu, "memory": parse_memory, "tasks": int}
"""What a machine has by itself, and how an amount of it is read."""

WORDS = (
    *("name", "pool", "cpu", "memory", "tasks", "reserve_cpu", "reserve_memory", "reserve_tasks"),
    *("resource", "label", "taint", "run_as", "allow_root_user", "artifacts"),
)
"""Options that `words` writes; where state is kept and the executor are the caller's."""


class BadOptionError(HeadbayError):
    """An option cannot be meant; the worker ends with 2 and is not started again."""

    code: ClassVar[str] = "BAD_OPTION"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare them, all but the executor."""
    parser.add_argument("--name", default=socket.gethostname().split(".")[0], help="node name")
    parser.add_argument("--pool", default="default", help="pool to join (default: %(default)s)")
    parser.add_argument("--cpu", help="CPUs to offer, such as 4 or 1500m (default: all)")
    parser.add_argument("--memory", help="memory to offer, such as 8Gi (default: nine tenths)")
    parser.add_argument(
        "--tasks", type=_count, help="processes and threads to offer (default: nine tenths)"
    )
    parser.add_argument(
        "--reserve-cpu", metavar="CPU", help="keep these for the system, offer the rest"
    )
    parser.add_argument(
        "--reserve-memory", metavar="MEMORY", help="keep this for the system, offer the rest"
    )
    parser.add_argument(
        "--reserve-tasks", type=_count, metavar="TASKS", help="keep these, offer the rest"
    )
    parser.add_argument(
        "--resource", action="append", default=[], metavar="NAME=COUNT", help="counted resource"
    )
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--taint",
        action="append",
        default=[],
        metavar="KEY=VALUE:NoSchedule",
        help="only steps that tolerate it are placed here; also KEY:NoSchedule",
    )
    parser.add_argument(
        "--run-as",
        metavar="USER",
        help="user of steps that name none (default: nobody under the systemd executor, else the "
        "worker's own)",
    )
    parser.add_argument(
        "--allow-root-user", action="store_true", help="let steps run as root if they ask to"
    )
    parser.add_argument(
        "--artifacts",
        type=Path,
        default=os.environ.get("HEADBAY_ARTIFACTS"),
        help="artifact store (default: $HEADBAY_ARTIFACTS, else in the state directory)",
    )


def capacity(options: argparse.Namespace, machine: Mapping[str, int]) -> dict[str, int]:
    """What the options let a node offer.

    For each of cpu, memory and tasks: what is offered is said, or what stays for the system, or
    neither (no CPU, a tenth of memory and tasks stay); never both.

    Args:
        options: Parsed ones of `add_options`.
        machine: All that the machine has: mCPU, bytes, tasks.

    Raises:
        BadOptionError: An option cannot be read, contradicts another, or keeps back all there is.
    """
    offered = {name: _offered(options, name, machine[name]) for name in OFFERS}
    for item in options.resource:
        name, separator, count = item.partition("=")
        if not (name and separator and count.isdecimal()):
            raise BadOptionError(f"--resource {item!r}: write it as NAME=COUNT, such as licence=4")
        if name in OFFERS:
            raise BadOptionError(f"--resource {item!r}: {name} has an option of its own, --{name}")
        offered[name] = int(count)
    return offered


def _offered(options: argparse.Namespace, name: str, has: int) -> int:
    offer, reserve = getattr(options, name), getattr(options, f"reserve_{name}")
    if offer is not None and reserve is not None:
        raise BadOptionError(
            f"--{name} and --reserve-{name} contradict each other: say what is offered, or what "
            "stays for the system"
        )
    if offer is not None:
        return _read(f"--{name}", offer, OFFERS[name])
    if reserve is None:
        return has if name == "cpu" else has - has // RESERVE_DIVISOR
    kept = _read(f"--reserve-{name}", reserve, OFFERS[name])
    if kept >= has:
        raise BadOptionError(
            f"--reserve-{name} {reserve}: this machine has {_shown(name, has)} in all; keep less, "
            "something must be left to offer"
        )
    return has - kept


def _read(option: str, text: str | int, read: Callable[[Any], int]) -> int:
    if text in ("0", 0) and option.startswith("--reserve"):
        return 0
    try:
        return read(text)
    except QuantityError as error:
        raise BadOptionError(f"{option}: {error}") from error


def _shown(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{show_cpu(amount)} CPUs"
    return f"{show_memory(amount)} of memory" if name == "memory" else f"{amount} tasks"


def labels(options: argparse.Namespace) -> dict[str, str]:
    """Labels of this node.

    Raises:
        BadOptionError: One is not KEY=VALUE.
    """
    found = {}
    for item in options.label:
        key, separator, value = item.partition("=")
        if not (key and separator):
            raise BadOptionError(f"--label {item!r}: write it as KEY=VALUE")
        found[key] = value
    return found


def taints(options: argparse.Namespace) -> list[Taint]:
    """Taints of this node, each once.

    Raises:
        BadOptionError: One cannot be read.
    """
    try:
        return list(dict.fromkeys(parse_taint(item) for item in options.taint))
    except BadTaintError as error:
        raise BadOptionError(f"--taint: {error}") from error


def words(options: argparse.Namespace) -> list[str]:
    """The options as a command line that means the same wherever it is run."""
    found: list[str] = []
    for name in WORDS:
        value, option = getattr(options, name), "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            found.append(option)
        elif isinstance(value, list):
            found += [f"{option}={item}" for item in value]
        else:
            found.append(f"{option}={value}")
    return found


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes and threads")
    return int(text)
