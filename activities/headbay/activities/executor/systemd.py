"""Attempts in systemd scopes: limits that are enforced, and accounts by the kernel.

`spawn` forks a blocked shim, asks systemd for a scope around it, and believes nothing: the scope's
job must be done, the shim alive and inside, and the limits readable where they should be. Only
then may anybody say *go*. Whatever is doubtful is dropped, and asked for again under the same name.
"""

import asyncio
import errno
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from headbay.activities.executor.helper import Helper, HelperGoneError, RefusedError
from headbay.activities.executor.identity import identity_of
from headbay.activities.executor.launcher import Launcher
from headbay.activities.executor.leases import LeaseUnits
from headbay.activities.executor.port import (
    Capability,
    ExecutorSettings,
    LaunchFailedError,
    Secrets,
    Started,
)
from headbay.activities.executor.records import read_record, write_new
from headbay.activities.executor.scope import (
    lease_unit,
    loose_limits,
    node_slice,
    scope_properties,
)
from headbay.activities.executor.shim.cgroup import ROOT, Cgroup, LimitError, own_cgroup
from headbay.activities.executor.shim.kernel import boottime_ns, start_ticks
from headbay.domain.attempt import LaunchSpec
from headbay.domain.errors import HeadbayError
from headbay.domain.outcome import Isolation

__all__ = ["SystemdExecutor", "SystemdUserExecutor"]

log = structlog.get_logger(__name__)

BUS = Path(__file__).parent / "bus_process.py"
PLACE_TRIES = 4
ANSWER_WITHIN_S = 8.0
CANARY_WITHIN_S = 30.0
CANARY_BYTES = 64 << 20
CANARY_TASKS = 32
NEEDED = ("cgroup.kill", "cgroup.freeze", "memory.max", "memory.oom.group", "pids.max", "cpu.max")
CPU_WEIGHT_OF_ONE = 100
MAX_WEIGHT = 10_000
DEFAULT_USER = "nobody"
SCOPE = "org.freedesktop.systemd1.Scope"
MOUNTED_AT = "/run/headbay-secrets"
"""Empty; each payload with files of secrets has a file system of its own there."""


class SystemdExecutor:
    """Scopes of the system's service manager; needs root.

    Attributes:
        manager: ``system`` or ``user``.
        isolation: What it promises once proven.
        secret_folder: Where payloads find files of secrets; None where none can be mounted.
    """

    manager = "system"
    isolation = Isolation.ENFORCED
    secret_folder: str | None = MOUNTED_AT

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._slice = node_slice(settings.node)
        self._launcher = Launcher()
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"):
            if self.manager == "user" and name in os.environ:
                environment[name] = os.environ[name]
        command = [sys.executable, "-I", str(BUS), self.manager]
        self._bus = Helper(
            "bus helper", command, environment=environment, answer_within_s=ANSWER_WITHIN_S
        )
        self._leases = LeaseUnits(settings.node, settings.folder / "leases", self._bus)
        self._cgroup = ""

    # -- capability ----------------------------------------------------------------------------

    async def prove(self) -> Capability:
        """Run a canary through the whole way of an attempt, every limit read back.

        Raises:
            HeadbayError: This machine cannot keep the limits; says what is missing.
        """
        self._preflight()
        (self._settings.folder / "leases").mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._settings.folder / "canary"
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        try:
            record = await asyncio.wait_for(self._canary(folder), CANARY_WITHIN_S)
        except TimeoutError as error:
            raise HeadbayError(f"the canary did not end within {CANARY_WITHIN_S:.0f} s") from error
        if record["limit_failure"] is not None:
            raise HeadbayError(f"a limit cannot be kept on this machine: {record['limit_failure']}")
        if record["exit_code"] != 0:
            raise HeadbayError(f"the canary ended with {record}")
        missing = {"memory_peak_bytes", "cpu_user_us", "oom_kill"} - record.keys()
        if missing:
            raise HeadbayError(f"this kernel does not account for {', '.join(sorted(missing))}")
        return Capability(self.isolation, self._reservations())

    def _preflight(self) -> None:
        if importlib.util.find_spec("pystemd") is None:
            raise HeadbayError("the systemd executor needs pystemd: pip install 'headbay[node]'")
        if self.manager == "system" and os.geteuid() != 0:
            raise HeadbayError(
                "the systemd executor needs root; as another user take --executor systemd-user"
            )
        if not Path(ROOT, "cgroup.controllers").exists():
            raise HeadbayError(f"{ROOT} is not a unified control group hierarchy (cgroup v2)")
        self.identity(None)

    def _reservations(self) -> tuple[str, ...]:
        return ()

    async def _canary(self, folder: Path) -> dict[str, Any]:
        unit = f"hb.canary.{os.getpid()}.{boottime_ns()}"
        nonce = os.urandom(32).hex()
        launch = {
            "unit": unit,
            "nonce": nonce,
            "fence": 1,
            "argv": ["/bin/sh", "-c", 'test -s "$CANARY"'],
            "cwd": "/",
            "env": {},
            "timeout_ms": int(CANARY_WITHIN_S * 1_000),
            "grace_ms": 1_000,
            "log_cap_bytes": 4_096,
            "user": self.identity(None),
            "secret_folder": self.secret_folder,
            "scope": self._terms(1_000, CANARY_BYTES, CANARY_TASKS, None, None),
        }
        deadline = boottime_ns() + int(CANARY_WITHIN_S * 1e9)
        os.close(write_new(folder / "order.json", {"launch": launch}))
        os.close(write_new(folder / "lease", {"fence": 1, "deadline_ns": deadline}))
        shim = await self.spawn(folder)
        cgroup = Cgroup(ROOT + own_cgroup(shim.pid))
        self._cgroup = cgroup.path.rpartition("/")[0]
        absent = [name for name in NEEDED if not cgroup.has(name)]
        if absent:
            await self.drop(shim)
            raise HeadbayError(f"the kernel or the hierarchy lacks {', '.join(absent)}")
        await self.go(shim, nonce, Secrets(files={"CANARY": b"canary"}))
        while start_ticks(shim.pid) == shim.ticks:  # noqa: ASYNC110 - it is no child of this one
            await asyncio.sleep(0.01)
        record: dict[str, Any] = read_record(folder / "exit.json")
        return record

    # -- attempts ------------------------------------------------------------------------------

    def terms(self, spec: LaunchSpec) -> dict[str, Any]:
        """Limits and user of an attempt, for its order.

        Raises:
            BadUserError: It may not run as that user here.
        """
        resources = spec.resources
        unit = lease_unit(self._settings.node, spec.lease_ms)
        return {
            "user": self.identity(spec.user),
            "secret_folder": self.secret_folder,
            "scope": self._terms(
                resources.get("cpu", 1_000),
                resources.get("memory"),
                resources.get("tasks"),
                spec.cpu_limit,
                (unit, spec.lease_ms),
            ),
        }

    def identity(self, user: str | None) -> dict[str, Any] | None:
        """Whom an attempt runs as."""
        name = user or self._settings.run_as or DEFAULT_USER
        return identity_of(name, allow_root=self._settings.allow_root_user)

    def _terms(
        self,
        cpu: int,
        memory: int | None,
        tasks: int | None,
        cpu_limit: int | None,
        lease: tuple[str, int] | None,
    ) -> dict[str, Any]:
        weight = cpu * CPU_WEIGHT_OF_ONE // 1_000
        return {
            "slice": self._slice,
            "memory": memory,
            "tasks": tasks,
            "cpu_weight": min(max(weight, 1), MAX_WEIGHT),
            "cpu_max": cpu_limit,
            "lease_unit": None if lease is None else lease[0],
            "lease_ms": None if lease is None else lease[1],
        }

    def renewed(self, lease_ms: int, deadline_ns: int) -> None:
        """A lease of this class was renewed: the second layer waits longer, too."""
        self._leases.renew(lease_ms, deadline_ns)

    def present(self, sent_ns: int) -> None:
        """The node's own presence was acknowledged: lease classes without steps stay good."""
        self._leases.present(sent_ns)

    async def spawn(self, directory: Path) -> Started:
        """A blocked shim inside of its scope.

        Raises:
            LaunchFailedError: There is no such scope; its shim leaves.
        """
        launch = read_record(directory / "order.json")["launch"]
        shim = await self._launcher.spawn(directory)
        try:
            await self._place(launch, shim)
        except LaunchFailedError:
            await self._launcher.drop(shim)
            raise
        return shim

    async def _place(self, launch: dict[str, Any], shim: Started) -> None:
        """Put a scope around a shim; what is doubtful is looked at, or asked for again."""
        unit = launch["unit"]
        properties = scope_properties(unit, shim.pid, launch)
        for tries_left in reversed(range(PLACE_TRIES)):
            try:
                if launch["scope"]["lease_ms"] is not None:
                    await self._leases.ensure(launch["scope"]["lease_ms"])
                answer = await self._bus.ask("start", unit=f"{unit}.scope", properties=properties)
                if answer["result"] != "done":
                    self._doubt(launch)
                    raise LaunchFailedError(f"{unit}.scope: its start ended as {answer['result']}")
            except HelperGoneError:
                if not tries_left:
                    raise
                continue
            except RefusedError as error:
                if _inside(unit, shim):
                    break  # An answer was lost.
                self._doubt(launch)
                if error.errno != errno.EEXIST or not tries_left:
                    raise
                await self._bus.ask("stop", unit=f"{unit}.scope")
                continue
            break
        if not _inside(unit, shim):
            raise LaunchFailedError(f"{unit}.scope has started without its supervisor")
        self._read_back(launch, shim)

    def _doubt(self, launch: dict[str, Any]) -> None:
        if launch["scope"]["lease_ms"] is not None:
            self._leases.doubt(launch["scope"]["lease_ms"])

    @staticmethod
    def _read_back(launch: dict[str, Any], shim: Started) -> None:
        cgroup = Cgroup(ROOT + own_cgroup(shim.pid))
        for name, value in loose_limits(launch["scope"]).items():
            found = cgroup.read(name)
            if found != value:
                why = f"{name} of {launch['unit']}.scope is {found} instead of {value}"
                raise LaunchFailedError(why)

    async def go(self, started: Started, nonce: str, secrets: Secrets) -> None:
        """Let the shim start its payload."""
        await self._launcher.go(started, nonce, secrets)

    async def drop(self, started: Started) -> None:
        """Let the shim leave; its scope goes with it."""
        await self._launcher.drop(started)

    # -- what is left --------------------------------------------------------------------------

    async def sweep(self, known: Callable[[str], bool]) -> list[str]:
        """End every scope of this node that nobody knows; their names.

        By control groups, not by units: a unit's state tells nothing of its processes.
        """
        ended = []
        for scope in await asyncio.to_thread(self._scopes):
            unit = scope.removesuffix(".scope")
            if known(unit):
                continue
            cgroup = Cgroup(f"{self._cgroup}/{scope}")
            if cgroup.populated():
                ended.append(unit)
                await asyncio.to_thread(cgroup.end)
            else:
                await self._bus.ask("stop", unit=scope)
        return ended

    def _scopes(self) -> list[str]:
        return [path.name for path in Path(self._cgroup).glob("hb.*.scope")]

    async def close(self) -> None:
        """End the helpers; scopes go on."""
        await self._launcher.close()
        await self._bus.close()


class SystemdUserExecutor(SystemdExecutor):
    """Scopes of a user's own service manager: a payload of the same user could change them."""

    manager = "user"
    isolation = Isolation.COOPERATIVE
    secret_folder = None

    def identity(self, user: str | None) -> dict[str, Any] | None:
        """Nobody but the worker's own user.

        Raises:
            BadUserError: Another one was asked for.
        """
        if user is not None:
            asked = identity_of(user, allow_root=True)
            if asked["uid"] != os.getuid():
                raise HeadbayError(
                    f"this node runs as user {os.getuid()} and cannot run a step as {user!r}"
                )
        return None

    def _reservations(self) -> tuple[str, ...]:
        return ("user manager: a step of the same user can lift its own limits",)


def _inside(unit: str, shim: Started) -> bool:
    """Whether this very shim lives in the scope of that name; zombies live nowhere."""
    try:
        inside = own_cgroup(shim.pid)
    except (OSError, LimitError):
        return False
    return f"/{unit}.scope" in f"{inside}/" and start_ticks(shim.pid) == shim.ticks
