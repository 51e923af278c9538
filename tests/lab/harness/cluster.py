"""The control side on the host, and node workers as services of machines."""

import shlex
import sys
from pathlib import Path
from typing import Any

from support.cluster import Cluster, until
from temporalio.client import WorkflowHandle

from headbay.domain.ids import workload_workflow_id

from .machine import DISK, Machine, wait_for
from .network import CLUSTER, HOST

__all__ = ["STORE", "LabCluster", "left_behind", "wait_clean"]

STORE = Path("/srv/artifacts")
"""Where machines have the artifact store that they share with the host."""
UNIT = "/etc/systemd/system/headbay-node.service"
SERVICE = """\
[Unit]
Description=Headbay node worker

[Service]
Type=exec
ExecStart={command}
{environment}
KillMode=mixed
TimeoutStopSec=30
OOMScoreAdjust=-900
{service}

[Install]
WantedBy=multi-user.target
"""
NODE_UP_S = 60.0
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")


class LabCluster(Cluster):
    """Temporal and a control worker in the test's network namespace; nodes on the bridge."""

    store: Path
    workers: list[Machine]

    @classmethod
    async def start(cls, root: Path, store: Path) -> "LabCluster":
        """Server and control worker up."""
        made = cls(root, ip="0.0.0.0")  # noqa: S104 - a network namespace of the test's own
        made.store, made.workers = store, []
        await made.start_server()
        made.start_control()
        return made

    @property
    def env(self) -> dict[str, str]:
        """What parts on the host see: the artifact store is the machines' too."""
        return super().env | {"HEADBAY_ARTIFACTS": str(self.store)}

    def install_worker(
        self, machine: Machine, *options: str, executor: str = "systemd", service: str = ""
    ) -> None:
        """Write the worker's unit and start it."""
        command = [sys.executable, "-m", "headbay.workers.node", "--name", machine.name]
        command += ["--executor", executor, *options]
        variables = {
            "TEMPORAL_ADDRESS": f"{CLUSTER}.{HOST}:{self.port}",
            "HEADBAY_STATE": str(DISK),
            "HEADBAY_ARTIFACTS": str(STORE),
        }
        environment = "\n".join(f"Environment={k}={v}" for k, v in variables.items())
        text = SERVICE.format(command=shlex.join(command), environment=environment, service=service)
        if machine not in self.workers:
            self.workers.append(machine)
        machine.write(UNIT, text)
        machine.check("systemctl daemon-reload && systemctl start headbay-node")

    async def start_worker(
        self, machine: Machine, *options: str, executor: str = "systemd", service: str = ""
    ) -> None:
        """`install_worker`, and wait until the pool has the node."""
        self.install_worker(machine, *options, executor=executor, service=service)
        try:
            await self.node_up(machine.name, NODE_UP_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.worker_log(machine)}") from error

    def forget_worker(self, machine: Machine) -> None:
        """Stop it and empty its state, for the next cluster."""
        machine.run("systemctl stop headbay-node; systemctl reset-failed headbay-node", seconds=60)
        machine.check(f"rm -rf {DISK}/* {UNIT} && systemctl daemon-reload")

    def worker_log(self, machine: Machine) -> str:
        """The last lines that it and the kernel printed."""
        return machine.run(
            "journalctl -u headbay-node -n 60 --no-pager -o cat; dmesg | tail -40"
        ).out

    async def run(
        self, workload: str, document: dict[str, Any], seconds: float = 120.0
    ) -> dict[str, Any]:
        """Submit, and wait for the end: the workload's final status."""
        await self.submit(workload, document)
        return await self.ended(workload, seconds)

    async def ended(self, workload: str, seconds: float = 120.0) -> dict[str, Any]:
        """The workload's status once it is final."""

        async def final() -> Any:
            status = await self.status(workload)
            if status is None:  # Refused, perhaps: then this raises, and says why.
                await self.handle(workload).result()
            return status if status and status["status"] in FINAL else None

        return dict(await until(final, seconds, f"{workload} ended"))

    def handle(self, workload: str) -> WorkflowHandle[Any, Any]:
        """Its workflow."""
        assert self.client is not None
        return self.client.get_workflow_handle(workload_workflow_id(workload))

    async def attempts(self, workload: str, step: str = "s") -> list[dict[str, Any]]:
        """All attempts of a step so far."""
        return list((await self.step(workload, step))["attempts"])

    def spool(self, machine: Machine) -> Path:
        """Where the node's spool is, as the machine sees it."""
        return DISK / "nodes" / machine.name / "spool"


def left_behind(machine: Machine, spool: Path) -> list[str]:
    """What an attempt may leave and must not: units, cgroups, processes and spool entries."""
    found = machine.check(
        "systemctl list-units --all --plain --no-legend --type=scope 'hb.*'; "
        "find /sys/fs/cgroup/headbay.slice -mindepth 2 -type d 2>/dev/null; "
        "pgrep -a headbay-shim; "
        f"ls {spool} | grep '^hb\\..*' | xargs -I@ find {spool}/@ -maxdepth 0 -type d; true"
    )
    return [line for line in found.splitlines() if line.strip()]


def wait_clean(machine: Machine, spool: Path, seconds: float = 30.0) -> None:
    """Until nothing is left behind."""
    found: list[str] = []

    def clean() -> str | None:
        found[:] = left_behind(machine, spool)
        return None if found else "clean"

    try:
        wait_for(clean, seconds, f"{machine.name} clean")
    except AssertionError as error:
        raise AssertionError(f"{error}: left {found}") from error
