"""The text of the node worker's systemd unit and of its environment file; pure.

Source: systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.kill(5).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headbay.workers.node.options import BadOptionError

__all__ = ["UNIT", "Service", "environment_text", "unit_text"]

UNIT = "headbay-node.service"
STATE_PARENT = Path("/var/lib")

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_TEMPLATE = """\
[Unit]
Description=Headbay node worker
{order}\
# Tried for ever: a server may be away for longer than any count of tries.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
EnvironmentFile={environment}
# Yours, never written by Headbay: TEMPORAL_API_KEY, TEMPORAL_TLS_*, HEADBAY_LOG_LEVEL, ...
EnvironmentFile=-{local}
ExecStart={command}
# Steps run in scopes of their own, outside of this unit's control group, and a stop or an upgrade
# leaves them alone. Inside are the worker, its helpers, and supervisors that have not been told to
# go and start nothing. The worker alone hears SIGTERM, and lets its helpers finish what it asked
# of them; what is still here when it has ended is killed, so that no helper outlives it.
KillMode=mixed
# Ready means registered, which needs the server and a control worker; then it is tried anew.
TimeoutStartSec=3min
TimeoutStopSec=30s
Restart=always
RestartSec=1s
# 2: an option cannot be meant; 3: the node was refused. Starting again changes neither.
RestartPreventExitStatus=2 3
# The event loop itself gives the signs of life: one that hangs is started again.
WatchdogSec=30s
# A helper that is killed for memory is replaced by the worker.
OOMPolicy=continue
{place}\
# No sandboxing (Protect*=, Private*=, NoNewPrivileges=): steps are forked here and inherit it.

[Install]
WantedBy={wanted}
"""


@dataclass(frozen=True)
class Service:
    """A node worker to be kept running by systemd.

    Attributes:
        command: Program and arguments.
        environment: Path of the environment file that is ours.
        local: Path of the one that is the operator's.
        state: State directory; None for the user's own.
        user: Whether it belongs to the user manager rather than the system's.
    """

    command: Sequence[str]
    environment: Path
    local: Path
    state: Path | None
    user: bool = False


def unit_text(service: Service) -> str:
    """The unit.

    Raises:
        BadOptionError: A word of it holds a control character.
    """
    order = "" if service.user else "Wants=network-online.target\nAfter=network-online.target\n"
    return _TEMPLATE.format(
        order=order + _mounts(service.state),
        environment=_path(service.environment),
        local=_path(service.local),
        command=" ".join(_word(word) for word in service.command),
        place="" if service.user else _place(service.state),
        wanted="default.target" if service.user else "multi-user.target",
    )


def environment_text(variables: Mapping[str, str]) -> str:
    """The environment file.

    Raises:
        BadOptionError: A value holds a control character.
    """
    return "".join(f"{name}={_value(value)}\n" for name, value in variables.items())


def _place(state: Path | None) -> str:
    """What only the system's manager can give: protection, a slice, and the state directory.

    What the worker logs goes to the journal, and what payloads print into the state directory, so
    there is no directory of logs.
    """
    lines = [
        "# Who supervises steps is among the last to be killed for memory; steps are not.",
        "OOMScoreAdjust=-900",
        "Slice=system.slice",
    ]
    if state is not None and STATE_PARENT in state.parents:
        lines += [
            f"StateDirectory={_path(state.relative_to(STATE_PARENT))}",
            "# Steps of other users must reach their own folders below it, and list nothing.",
            "StateDirectoryMode=0711",
        ]
    return "\n".join(lines) + "\n"


def _mounts(state: Path | None) -> str:
    return "" if state is None else f"RequiresMountsFor={_path(state)}\n"


def _word(word: str) -> str:
    """A word of a command line: no specifier, no variable, no quote means anything in it."""
    _check(word)
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _path(path: Path) -> str:
    """A path as the value of a setting; spaces would end it where settings take several."""
    text = str(path)
    if not _PLAIN.fullmatch(text):
        raise BadOptionError(
            f"{text!r} cannot be written into a unit: use letters, digits and `_@+=:,./-` in paths"
        )
    return text


def _value(value: str) -> str:
    """A value in an environment file, which is quoted like a shell's but expands nothing."""
    _check(value)
    if _PLAIN.fullmatch(value):
        return value
    escaped = re.sub(r'(["\\$`])', r"\\\1", value)
    return f'"{escaped}"'


def _check(text: str) -> None:
    if _CONTROL.search(text):
        raise BadOptionError(f"{text!r} holds a control character, no unit can: leave it out")
