"""Promise: `auto` takes the strongest executor that proves itself; a named one or none."""

from types import SimpleNamespace

import pytest

from headbay.activities.executor import AUTO, Capability, ExecutorSettings, port, prove_executor
from headbay.domain.errors import HeadbayError
from headbay.domain.outcome import Isolation

SETTINGS = ExecutorSettings(node="n", folder=None)


@pytest.fixture
def machine(monkeypatch):
    """A machine on which these executors prove themselves; what was closed there."""
    proves, closed = set(), []

    def load(name, settings):
        async def prove():
            if name not in proves:
                raise HeadbayError(f"no {name} here")
            return Capability(Isolation.ENFORCED if name == "systemd" else Isolation.UNENFORCED)

        async def close():
            closed.append(name)

        return SimpleNamespace(name=name, prove=prove, close=close)

    monkeypatch.setattr(port, "load_executor", load)
    return SimpleNamespace(proves=proves, closed=closed)


@pytest.mark.parametrize(
    ("proves", "taken", "refused"),
    [
        ({"systemd", "systemd-user", "process"}, "systemd", []),
        ({"systemd-user", "process"}, "systemd-user", ["systemd"]),
        ({"process"}, "process", ["systemd", "systemd-user"]),
    ],
)
async def test_the_strongest_is_taken_and_why_no_stronger_one_is_told(
    machine, proves, taken, refused
):
    machine.proves.update(proves)
    name, executor, capability, why = await prove_executor(AUTO, SETTINGS)
    assert (name, executor.name) == (taken, taken)
    assert (capability.isolation == Isolation.ENFORCED) == (taken == "systemd")
    assert why == {one: f"no {one} here" for one in refused}
    assert machine.closed == refused


async def test_a_named_one_is_never_replaced_by_a_weaker_one(machine):
    machine.proves.add("process")
    with pytest.raises(HeadbayError, match="no systemd here"):
        await prove_executor("systemd", SETTINGS)


async def test_if_none_proves_itself_the_last_reason_is_told(machine):
    with pytest.raises(HeadbayError, match="no process here"):
        await prove_executor(AUTO, SETTINGS)
