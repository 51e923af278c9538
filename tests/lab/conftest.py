"""The lab: machines that are booted when first asked for, and a cluster for every test file."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .harness.cluster import STORE, LabCluster
from .harness.image import cached
from .harness.machine import Machine
from .harness.network import Network

REPOSITORY = Path(__file__).parents[2]


def pytest_collection_modifyitems(items):
    """Outside of the lab nothing here can run; `scripts/lab` is the way in."""
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.fspath).parents:
            item.add_marker(pytest.mark.timeout(400))
            if os.environ.get("HEADBAY_LAB_INSIDE") != "1":
                item.add_marker(pytest.mark.skip(reason="runs on real nodes: make lab"))


class Lab:
    """Machines by number, made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "artifacts"
        self.store.mkdir()
        self._image = cached()
        self._network = Network()
        self._machines: dict[int, Machine] = {}

    def machines(self, count: int) -> list[Machine]:
        """The first ``count``, all up; those that are off are started together."""
        numbers = range(11, 11 + count)
        booting = []
        for number in numbers:
            if number not in self._machines:
                machine = Machine(number, self._image, self.folder, self._network)
                mounts = {REPOSITORY: REPOSITORY, self.store: STORE}
                if sys.base_prefix != "/usr":
                    mounts[Path(sys.base_prefix)] = Path(sys.base_prefix)
                machine.prepare(mounts)
                self._machines[number] = machine
            machine = self._machines[number]
            if not machine.is_on:
                machine.boot()
                booting.append(machine)
        for machine in booting:
            machine.wait_ready()
        return [self._machines[number] for number in numbers]

    def close(self) -> None:
        """Every machine off."""
        for machine in self._machines.values():
            if machine.is_on:
                machine.power_off()


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """All machines of this session."""
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


@pytest.fixture
async def cluster(lab, tmp_path, request) -> AsyncIterator[LabCluster]:
    """A cluster without nodes; whatever nodes the test adds are stopped and emptied after it."""
    made = await LabCluster.start(tmp_path / "cluster", lab.store)
    try:
        yield made
    finally:
        if getattr(request.node, "rep_call", None) is None or request.node.rep_call.failed:
            for machine in made.workers:
                if machine.is_on:
                    print(f"--- {machine.name}\n{made.worker_log(machine)}")  # noqa: T201 - for failed tests
            print(made.logs())  # noqa: T201 - for failed tests
        for machine in made.workers:
            if machine.is_on:
                made.forget_worker(machine)
        made.stop()
