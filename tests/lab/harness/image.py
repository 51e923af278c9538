"""The root file system that every machine starts from: built once, then copied."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["Image", "cached"]

HARNESS = Path(__file__).parent
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "ca-certificates", "iproute2", "procps", "python3",
    "util-linux", "e2fsprogs",
)  # fmt: skip
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "e2scrub_reap.service", "fstrim.timer", "getty@.service", "serial-getty@.service",
    "console-getty.service", "systemd-tmpfiles-clean.timer", "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path", "systemd-pcrphase.service", "systemd-networkd.service",
    "systemd-timesyncd.service", "getty-static.service", "getty.target",
)  # fmt: skip
UNITS = {
    "lab-setup.service": """\
[Unit]
DefaultDependencies=no
After=local-fs.target systemd-tmpfiles-setup.service
Before=lab-agent.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /lab/setup.sh
""",
    "lab-agent.service": """\
[Unit]
Requires=lab-setup.service
After=lab-setup.service

[Service]
ExecStart=/usr/bin/python3 -I -S /lab/agent.py
OOMScoreAdjust=-1000
Slice=system.slice

[Install]
WantedBy=multi-user.target
""",
}


class Image:
    """One suite's image in the cache.

    Attributes:
        suite: Debian's name of it, such as ``bookworm``.
        root: Folder with the file system; never started from itself.
    """

    def __init__(self, suite: str, cache: Path) -> None:
        self.suite = suite
        recipe = repr((suite, PACKAGES, MASKED, UNITS, _libraries()))
        recipe += (HARNESS / "agent.py").read_text()
        key = hashlib.sha256(recipe.encode()).hexdigest()[:12]
        self.root = cache / f"{suite}-{key}"

    def build(self) -> None:
        """Build it unless it is there; others that build at the same time are waited for."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        with (self.root.parent / f".{self.suite}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.root.exists():
                return
            with tempfile.TemporaryDirectory(dir=self.root.parent, prefix=".building-") as folder:
                made = Path(folder) / "root"
                self._bootstrap(made)
                self._furnish(made)
                made.rename(self.root)

    def copy(self, to: Path) -> None:
        """A root of its own for one machine."""
        subprocess.run(["cp", "-a", "--reflink=auto", str(self.root), str(to)], check=True)

    def _bootstrap(self, root: Path) -> None:

        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        # What only documents and translates is left out: every machine has a copy of the rest.
        unwanted = ("doc", "man", "locale", "info")
        command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in unwanted]
        subprocess.run([*command, self.suite, str(root)], check=True)

    def _furnish(self, root: Path) -> None:
        """What makes it a machine of the lab."""
        lab = root / "lab"
        lab.mkdir()
        shutil.copy(HARNESS / "agent.py", lab / "agent.py")
        units = root / "etc/systemd/system"
        for name in MASKED:
            (units / name).unlink(missing_ok=True)
            (units / name).symlink_to("/dev/null")
        for name, text in UNITS.items():
            (units / name).write_text(text)
        wanted = units / "multi-user.target.wants"
        wanted.mkdir(exist_ok=True)
        (wanted / "lab-agent.service").symlink_to("/etc/systemd/system/lab-agent.service")
        (root / "etc/machine-id").write_text("")
        journal = root / "etc/systemd/journald.conf.d"
        journal.mkdir(parents=True)
        (journal / "lab.conf").write_text("[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\n")
        # 3. Libraries of this machine that its Python needs and the image lacks.
        own = root / "usr/local/lib/host"
        own.mkdir(parents=True)
        for name, path in _libraries().items():
            if not any(root.glob(f"usr/lib/x86_64-linux-gnu/{name}")):
                shutil.copy(path, own / name)
        (root / "etc/ld.so.conf.d/host.conf").write_text("/usr/local/lib/host\n")
        subprocess.run(["ldconfig", "-r", str(root)], check=True)


def _libraries() -> dict[str, str]:
    """Shared libraries that this Python and its extension modules load, by name."""
    folders = [Path(sys.base_prefix) / f"lib/python3.{sys.version_info.minor}/lib-dynload"]
    files = [Path(os.path.realpath(sys.executable))]
    files += [file for folder in folders for file in sorted(folder.glob("*.so"))]
    said = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, check=False
    ).stdout
    found = {}
    for line in said.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        path = rest.split(" (")[0]
        if arrow and path.startswith(("/lib", "/usr/lib")) and not name.startswith("libc.so"):
            found[name] = path
    return dict(sorted(found.items()))


def cached() -> Image:
    """The image of the suite that $HEADBAY_LAB_SUITE names, else of bookworm."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headbay/lab"
    return Image(os.environ.get("HEADBAY_LAB_SUITE") or "bookworm", cache)


if __name__ == "__main__":
    cached().build()
