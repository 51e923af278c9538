"""Where a payload runs and what it sees: directories, inputs, environment, output, artifacts."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headbay.activities.artifacts import ArtifactStore
from headbay.activities.places import BadNameError, NodePlaces, Places, private
from headbay.domain.attempt import (
    INLINE_OUTPUT_BYTES,
    MAX_OUTPUT_BYTES,
    ArtifactsRef,
    LaunchSpec,
    OutputRef,
)
from headbay.domain.errors import HeadbayError

__all__ = ["Kept", "PreparationError", "Workspace", "read_secrets"]

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
        try:
            values[variable] = places.secret(name).read_text().removesuffix("\n")
        except (FileNotFoundError, BadNameError) as error:
            raise PreparationError(
                f"secret {name!r} (for {variable}) is not on node {spec.node!r}: put its value "
                f"into {places.secrets / name} (mode 0600) and retry"
            ) from error
    return values


class Workspace:
    """Prepares one attempt's surroundings and takes what it leaves."""

    def __init__(self, spec: LaunchSpec, unit: str, node: NodePlaces, store: ArtifactStore) -> None:
        self._spec = spec
        self._store = store
        self._unit = unit
        self._spool = str(node.spool)
        self._private = node.work / unit
        shared = node.work / f"shared.{spec.workload}"
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
            if self._private.exists():
                shutil.rmtree(self._private)
            private(self._private)
            private(self.root)
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
                target = self.root / "inputs" / step
                shutil.rmtree(target, ignore_errors=True)
                self._store.materialise(self._store.manifest(upstream.artifacts), target)
        self.inputs_file.write_text(json.dumps(values))

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
        return bool(self._spec.artifacts) or self.output_file.exists()

    def keep(self) -> Kept:
        """Put output and artifacts of a successful payload into the store."""
        spec = self._spec
        output: OutputRef | None = None
        if self.output_file.exists():
            size = self.output_file.stat().st_size
            if size > MAX_OUTPUT_BYTES:
                return Kept(
                    violation=f"the output has {size} bytes, more than {MAX_OUTPUT_BYTES}; keep "
                    "large results as artifacts"
                )
            raw = self.output_file.read_bytes()
            try:
                value = json.loads(raw, parse_constant=_no_constant)
            except (ValueError, RecursionError) as error:
                return Kept(violation=f"the file $HEADBAY_OUTPUT is not JSON: {error}")
            inline = size <= INLINE_OUTPUT_BYTES
            output = OutputRef(
                sha256=self._store.put_bytes(raw),
                size_bytes=size,
                inline=inline,
                value=value if inline else None,
            )
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
        shutil.rmtree(self._private, ignore_errors=True)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
