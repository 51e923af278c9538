"""Where a payload runs and what it sees: directories, inputs, environment, output, artifacts."""

import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from headbay.activities.artifacts import ArtifactStore, Reader
from headbay.activities.places import NodePlaces, private
from headbay.domain.attempt import (
    INLINE_OUTPUT_BYTES,
    ArtifactsRef,
    LaunchSpec,
    OutputRef,
)
from headbay.domain.errors import HeadbayError
from headbay.workers.node.folders import Folders
from headbay.workers.node.output import BadOutputError, parse_output, read_output
from headbay.workers.node.spool import SHARED_PREFIX

__all__ = ["Kept", "PreparationError", "Workspace", "Workspaces"]

log = structlog.get_logger(__name__)

PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR")
"""The node worker's own environment that payloads may see. Nothing else of it: no PYTHON*, LD_*,
TEMPORAL_*, NOTIFY_SOCKET, credentials or tokens."""

FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class PreparationError(Exception):
    """The payload cannot be started as ordered; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a successful payload left, safe in the artifact store.

    Attributes:
        violation: Why the output is not one, "" if it is.
    """

    output: OutputRef | None = None
    artifacts: ArtifactsRef | None = None
    violation: str = ""


class NoInputs:
    """The inputs of whoever has none: one file for all, made anew once somebody has changed it."""

    def __init__(self, work: Path) -> None:
        self.file = work / "no-inputs.json"
        self._made: tuple[int, int] | None = None

    def make(self) -> None:
        """Let it be there, as it should be."""
        if self._made is None or self._state() != self._made:
            draft = self.file.with_name(f"{self.file.name}.{secrets.token_hex(4)}")
            draft.write_text("{}")
            draft.chmod(0o444)
            draft.replace(self.file)
            self._made = self._state()

    def _state(self) -> tuple[int, int] | None:
        try:
            status = self.file.lstat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns


class Workspaces:
    """Those of one node.

    Attributes:
        store: Where inputs come from, and outputs and artifacts go.
        folders: Private folders, used again if they were left empty.
        passed: What payloads see of the worker's own environment.
    """

    def __init__(self, places: NodePlaces, store: ArtifactStore) -> None:
        self.places = places
        self.store = store
        self.folders = Folders(places.work)
        self.no_inputs = NoInputs(places.work)
        self.passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        self.passed.setdefault("PATH", FALLBACK_PATH)

    def let_through(self) -> None:
        """Let other users reach their workspaces below this folder, and look at nothing else."""
        work = self.places.work
        for folder in (work, work.parent, work.parent.parent, work.parent.parent.parent):
            mode = folder.stat().st_mode & 0o7777
            if mode & 0o011 != 0o011:
                folder.chmod(mode | 0o011)

    def open(self) -> None:
        """Clean up what a former worker gave up."""
        private(self.places.work)
        self.folders.open()

    def of(self, spec: LaunchSpec, unit: str) -> "Workspace":
        """The surroundings of one attempt."""
        return Workspace(spec, unit, self)


class Workspace:
    """Prepares one attempt's surroundings and takes what it leaves.

    Attributes:
        quick: Whether preparing it is a rename and no more.
    """

    def __init__(self, spec: LaunchSpec, unit: str, among: "Workspaces") -> None:
        node = among.places
        self._spec = spec
        self._unit = unit
        self._among = among
        self._store = among.store
        self._spool = str(node.spool)
        self._private = spec.workspace == "private"
        shared = f"{SHARED_PREFIX}{spec.workload}"
        self.root = node.work / (unit if self._private else shared)
        self.output_file = node.work / f"{unit}.output.json"
        self.inputs_file = self._own_inputs if spec.inputs else among.no_inputs.file
        self.quick = self._private and not (spec.inputs or spec.workdir or spec.base_dir)
        self._user: dict[str, Any] | None = None

    def belongs_to(self, user: dict[str, Any] | None) -> None:
        """The payload runs as another user than the worker; None if it does not.

        Its output gets a folder of its own then, since it may write nowhere else.
        """
        self._user = user
        if user is not None:
            self.quick = False
            self.output_file = self._outbox / "output.json"

    @property
    def _outbox(self) -> Path:
        return self._among.places.work / f"{self._unit}.outbox"

    @property
    def _own_inputs(self) -> Path:
        return self._among.places.work / f"{self._unit}.inputs.json"

    @property
    def _drafts(self) -> Path:
        return self._among.places.work / f"{self._unit}.drafts"

    @property
    def cwd(self) -> Path:
        """The workspace; with a `workdir`, that folder below the submitter's, or below it."""
        if self._spec.workdir is None:
            return self.root
        base = Path(self._spec.base_dir) if self._spec.base_dir else self.root
        return base / self._spec.workdir

    @property
    def _below_own(self) -> bool:
        """Whether its folder is the step's own one, or below it."""
        return not self._spec.base_dir and not Path(self._spec.workdir or ".").is_absolute()

    def describe(self) -> dict[str, Any]:
        """Folder (``cwd``) and environment of the payload.

        What is missing of a folder below its own (``make_cwd``) the payload makes itself: with its
        own rights a link that a sibling put in the way leads nowhere that it could not go.
        """
        make = self._spec.workdir is not None and self._below_own
        return {"cwd": str(self.cwd), "make_cwd": make, "env": self._environment()}

    def prepare(self) -> None:
        """Make the directories and inputs.

        Raises:
            PreparationError: Something that it needs is not there.
        """
        if self._below_own and not Path(os.path.normpath(self.cwd)).is_relative_to(self.root):
            raise PreparationError(
                f"workdir {self._spec.workdir!r} leaves the step's own folder: name a folder below "
                "it, or an absolute path of the node"
            )
        try:
            if self._private:
                self._among.folders.take(self.root)
            else:
                private(self.root)
                os.utime(self.root)  # It is kept while it is used.
            self._hand_over()
            self._inputs()
        except (HeadbayError, OSError) as error:
            raise PreparationError(f"could not prepare the step's folder: {error}") from error

    def _hand_over(self) -> None:
        """Give its folders to the payload's user, and the right to reach them."""
        user = self._user
        if user is None:
            return
        self._among.let_through()
        self._outbox.mkdir(mode=0o700)
        for folder in (self.root, self._outbox):
            owner = folder.stat().st_uid
            if owner not in (os.geteuid(), user["uid"]):
                raise PreparationError(
                    f"the shared workspace belongs to user {owner} and this step runs as "
                    f"{user['name']!r}: let all its steps run as one user"
                )
            os.chown(folder, user["uid"], user["gid"])

    def _inputs(self) -> None:
        if not self._spec.inputs:
            self._among.no_inputs.make()
            return
        values: dict[str, Any] = {}
        for step, upstream in sorted(self._spec.inputs.items()):
            if upstream.output is not None:
                values[step] = json.loads(self._store.read(upstream.output))
            if upstream.artifacts is not None:
                self._materialise(step, upstream.artifacts)
        self.inputs_file.write_text(json.dumps(values))

    def _materialise(self, step: str, manifest: str) -> None:
        """Put an upstream's artifacts under ``inputs/<step>/``, whole or not at all.

        In a shared workspace a sibling may be reading them already: they are the same.
        """
        with _folder_below(self.root, "inputs") as inputs:
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(step, dir_fd=inputs, follow_symlinks=False).st_mode):
                    return
            draft = self._drafts / step
            self._store.materialise(self._store.manifest(manifest), draft)
            if self._user is not None:
                os.fchmod(inputs, 0o755)
            try:
                os.rename(draft, step, dst_dir_fd=inputs)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise  # Otherwise a sibling was quicker.

    def _environment(self) -> dict[str, str]:
        spec = self._spec
        return (
            self._among.passed
            | self._login()
            | spec.env
            | {
                "HEADBAY_WORKLOAD": spec.workload,
                "HEADBAY_STEP": spec.step,
                "HEADBAY_ATTEMPT": self._unit,
                "HEADBAY_SPOOL": self._spool,
                "HEADBAY_ATTEMPT_NUMBER": str(spec.attempt),
                "HEADBAY_FENCE": str(spec.fence),
                "HEADBAY_NODE": spec.node,
                "HEADBAY_INPUTS": str(self.inputs_file),
                "HEADBAY_INPUT_DIR": f"{self.root}/inputs",
                "HEADBAY_OUTPUT": str(self.output_file),
                "HEADBAY_WORKSPACE": str(self.root),
            }
        )

    def _login(self) -> dict[str, str]:
        user = self._user
        if user is None:
            return {}
        names = {"USER": user["name"], "LOGNAME": user["name"]}
        return names | {"HOME": user["home"], "SHELL": user["shell"]}

    def left_something(self) -> bool:
        """Whether there is anything to keep."""
        return bool(self._spec.artifacts) or os.path.lexists(self.output_file)

    def keep(self) -> Kept:
        """Put output and artifacts of a successful payload into the store.

        Raises:
            OSError: The store could not be written to.
        """
        spec = self._spec
        output: OutputRef | None = None
        try:
            raw = read_output(self.output_file)
            if raw is not None:
                value = parse_output(raw)
                inline = len(raw) <= INLINE_OUTPUT_BYTES
                output = OutputRef(
                    sha256=self._store.put_bytes(raw),
                    size_bytes=len(raw),
                    inline=inline,
                    value=value if inline else None,
                )
        except BadOutputError as error:
            return Kept(violation=str(error))
        artifacts: ArtifactsRef | None = None
        if spec.artifacts:
            fault = self._misplaced()
            if fault:
                return Kept(violation=f"artifacts: {fault}")
            try:
                artifacts = self._collect()
            except HeadbayError as error:
                return Kept(violation=f"artifacts: {error}")
        return Kept(output, artifacts)

    def _misplaced(self) -> str:
        """What became of the folder that artifacts are collected in, "" if it is as it was."""
        cwd = self.cwd
        if not cwd.is_dir():
            return f"the folder {cwd} is not there any more"
        real, home = cwd.resolve(), self.root.parent.resolve() / self.root.name
        if self._below_own and not real.is_relative_to(home):
            return f"the folder {cwd} was replaced by a link to {real}"
        return ""

    def _collect(self) -> ArtifactsRef:
        spec = self._spec
        user = self._user
        reader = None if user is None else Reader(user["uid"], user["groups"])
        manifest = self._store.collect(self.cwd, spec.artifacts, reader=reader)
        return self._store.keep(spec.workload, spec.step, spec.attempt, spec.fence, manifest)

    def release(self) -> bool:
        """Give the folder back if the payload left nothing in it; quick.

        Returns:
            Whether nothing is left to `remove`.
        """
        clean = not self._spec.inputs and self._user is None
        try:
            self.output_file.unlink()
        except FileNotFoundError:
            pass
        except OSError:
            clean = False  # The payload made something else of it.
        if not self._private:
            return clean
        try:
            return self._among.folders.give(self.root) and clean
        except FileNotFoundError:
            return clean

    def remove(self) -> None:
        """Remove what belongs to this attempt alone; a shared workspace stays for its siblings."""
        own = (self.root, self._drafts, self._own_inputs, self.output_file, self._outbox)
        for path in own if self._private else own[1:]:
            try:
                _remove(path)
            except OSError as error:
                log.warning("workspace.kept", folder=str(path), error=str(error))


@contextmanager
def _folder_below(root: Path, name: str) -> Iterator[int]:
    """A folder in one that payloads write to, made if need be; nothing can be swapped for it.

    Raises:
        PreparationError: Something else is in its place.
    """
    folder = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    above = os.open(root, folder)
    try:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
        try:
            found = os.open(name, folder, dir_fd=above)
        except OSError as error:
            raise PreparationError(
                f"the workspace's `{name}` is a symbolic link or no folder: remove it"
            ) from error
    finally:
        os.close(above)
    try:
        yield found
    finally:
        os.close(found)


def _remove(folder: Path) -> None:
    """Remove what a payload left; it may have made parts of it unwritable to its owner."""
    if not folder.is_dir() or folder.is_symlink():
        folder.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:
        folder.chmod(0o700)
        for above, names, _ in os.walk(folder):  # lists a folder only after its parent's turn
            for path in (Path(above, name) for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)
