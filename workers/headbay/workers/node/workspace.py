"""Where a payload runs and what it sees: directories, inputs, environment, output, artifacts."""

import errno
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from headbay.activities.artifacts import ArtifactStore
from headbay.activities.places import BadNameError, NodePlaces, Places, private
from headbay.domain.attempt import (
    INLINE_OUTPUT_BYTES,
    ArtifactsRef,
    LaunchSpec,
    OutputRef,
)
from headbay.domain.errors import HeadbayError
from headbay.workers.node.output import BadOutputError, parse_output, read_output
from headbay.workers.node.spool import SHARED_PREFIX

__all__ = ["Kept", "PreparationError", "Workspace", "read_secrets"]

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


def read_secrets(spec: LaunchSpec, places: Places) -> dict[str, str]:
    """Values of a step's secrets, by environment name; never written anywhere.

    Raises:
        PreparationError: One is missing.
    """
    values: dict[str, str] = {}
    for variable, name in spec.secrets.items():
        where = f"secret {name!r} (for {variable}) is not on node {spec.node!r}"
        what = f"put its value into {places.secrets / name} (mode 0600) and retry"
        try:
            value = places.secret(name).read_text().removesuffix("\n")
        except (FileNotFoundError, BadNameError) as error:
            raise PreparationError(f"{where}: {what}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise PreparationError(f"{where} readable ({type(error).__name__}): {what}") from error
        if "\0" in value:
            raise PreparationError(f"{where}: it holds a NUL byte, no environment can; {what}")
        values[variable] = value
    return values


class Workspace:
    """Prepares one attempt's surroundings and takes what it leaves."""

    def __init__(self, spec: LaunchSpec, unit: str, node: NodePlaces, store: ArtifactStore) -> None:
        self._spec = spec
        self._store = store
        self._unit = unit
        self._spool = str(node.spool)
        self._private = node.work / unit
        shared = node.work / f"{SHARED_PREFIX}{spec.workload}"
        self.root = self._private / "work" if spec.workspace == "private" else shared
        self.output_file = self._private / "output.json"
        self.inputs_file = self._private / "inputs.json"

    @property
    def cwd(self) -> Path:
        """The workspace; with a `workdir`, that folder below the submitter's, or below it."""
        if self._spec.workdir is None:
            return self.root
        base = Path(self._spec.base_dir) if self._spec.base_dir else self.root
        return base / self._spec.workdir

    def prepare(self) -> dict[str, Any]:
        """Make the directories and inputs; returns cwd and environment of the payload.

        Raises:
            PreparationError: Something that it needs is not there.
        """
        cwd = self.cwd
        relative = not self._spec.base_dir and not Path(self._spec.workdir or ".").is_absolute()
        if relative and not Path(os.path.normpath(cwd)).is_relative_to(self.root):
            raise PreparationError(
                f"workdir {self._spec.workdir!r} leaves the step's own folder: name a folder below "
                "it, or an absolute path of the node"
            )
        try:
            _remove(self._private)
            private(self._private)
            private(self.root)
            os.utime(self.root)  # A shared one is kept while it is used.
            if relative:
                cwd.mkdir(parents=True, exist_ok=True)
            self._inputs()
        except (HeadbayError, OSError) as error:
            raise PreparationError(f"could not prepare the step's folder: {error}") from error
        return {"cwd": str(cwd), "env": self._environment()}

    def _inputs(self) -> None:
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
        target = self.root / "inputs" / step
        if target.parent.is_symlink():
            raise PreparationError("the workspace's `inputs` is a symbolic link: remove it")
        if target.is_dir():
            return
        draft = self._private / "inputs" / step
        self._store.materialise(self._store.manifest(manifest), draft)
        private(target.parent)
        try:
            draft.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise  # Otherwise a sibling was quicker.

    def _environment(self) -> dict[str, str]:
        spec = self._spec
        env = {name: os.environ[name] for name in PASSED if name in os.environ}
        env.setdefault("PATH", FALLBACK_PATH)
        return (
            env
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
                "HEADBAY_INPUT_DIR": str(self.root / "inputs"),
                "HEADBAY_OUTPUT": str(self.output_file),
                "HEADBAY_WORKSPACE": str(self.root),
            }
        )

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
            try:
                artifacts = self._collect()
            except HeadbayError as error:
                return Kept(violation=f"artifacts: {error}")
        return Kept(output, artifacts)

    def _collect(self) -> ArtifactsRef:
        spec = self._spec
        manifest = self._store.collect(self.cwd, spec.artifacts)
        return self._store.keep(spec.workload, spec.step, spec.attempt, spec.fence, manifest)

    def remove(self) -> None:
        """Remove what belongs to this attempt alone; a shared workspace stays for its siblings."""
        try:
            _remove(self._private)
        except OSError as error:
            log.warning("workspace.kept", folder=str(self._private), error=str(error))


def _remove(folder: Path) -> None:
    """Remove a folder of a payload, which may have made parts of it unwritable to its owner."""
    if not folder.exists():
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
