"""Where the service of a machine, or of one user, has its files, and who may manage it."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headbay.domain.errors import HeadbayError
from headbay.workers.node.install.unit import UNIT

__all__ = ["ManagerError", "RightsError", "Target"]

LINGER = Path("/var/lib/systemd/linger")


class RightsError(HeadbayError):
    """Only root may do it; the message holds the line to run."""

    code: ClassVar[str] = "NO_RIGHTS"


class ManagerError(HeadbayError):
    """systemctl refused, or is not there."""

    code: ClassVar[str] = "SERVICE_MANAGER"


@dataclass(frozen=True)
class Target:
    """The system's service manager, or the caller's own.

    Attributes:
        user: Whether it is the caller's own.
        root: Folder of another system's files, such as an image's; nothing is started there.
        home: Where the caller's own configuration is.
    """

    user: bool
    root: Path
    home: Path

    @classmethod
    def find(cls, environ: Mapping[str, str], *, user: bool, root: Path | None) -> "Target":
        """The target that the options name.

        Source: XDG Base Directory Specification 0.8, systemd.unit(5).
        """
        home = environ.get("XDG_CONFIG_HOME", "")
        own = Path(home) if home.startswith("/") else Path.home() / ".config"
        return cls(user, Path("/") if root is None else root.absolute(), own)

    @property
    def elsewhere(self) -> bool:
        """Whether these are the files of another system than the running one."""
        return self.root != Path("/")

    @property
    def unit(self) -> Path:
        """The unit, as the service manager sees it."""
        return (self.home if self.user else Path("/etc")) / "systemd" / self._kind / UNIT

    @property
    def environment(self) -> Path:
        """The environment file, as the service manager sees it."""
        return (self.home if self.user else Path("/etc")) / "headbay" / "node.env"

    @property
    def local(self) -> Path:
        """The operator's own environment file."""
        return self.environment.with_name("node.local.env")

    def here(self, path: Path) -> Path:
        """Where a path of that system is in this one."""
        return self.root / path.relative_to("/")

    def demand_rights(self, module: str, arguments: Sequence[str]) -> None:
        """Say how to get them; nothing here becomes root by itself.

        Raises:
            RightsError: They are missing.
        """
        if self.user or self.elsewhere or os.geteuid() == 0:
            return
        line = shlex.join(["sudo", sys.executable, "-m", module, *arguments])
        raise RightsError(f"a service of the machine needs root; run\n  {line}\nor give --user")

    def lingers(self) -> bool:
        """Whether the caller's own manager runs while nobody is logged in.

        Source: loginctl(1), enable-linger.
        """
        import getpass

        return (LINGER / getpass.getuser()).exists()

    def command(self, *words: str) -> list[str]:
        """A command to this service manager."""
        return ["systemctl", *(["--user"] if self.user else []), *words]

    def call(self, *words: str) -> None:
        """Run it.

        Raises:
            ManagerError: It failed; with what it said.
        """
        command = self.command(*words)
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise ManagerError("systemctl is not there: this machine has no systemd") from error
        if ran.returncode != 0:
            journal = "journalctl --user -u" if self.user else "journalctl -u"
            raise ManagerError(
                f"`{shlex.join(command)}` ended with {ran.returncode}: {ran.stderr.strip()}; look "
                f"with `{journal} {UNIT} -n 50`"
            )

    @property
    def _kind(self) -> str:
        return "user" if self.user else "system"
