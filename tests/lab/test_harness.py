"""Promise: the machines are real, can be cut, frozen and power-failed, and no overlap is missed."""

from dataclasses import replace

import pytest

from .harness import oracle
from .harness.machine import DISK
from .harness.network import CLUSTER, HOST


def test_a_machine_has_systemd_and_cgroup_v2(lab):
    (machine,) = lab.machines(1)
    assert machine.read("/proc/1/comm").strip() == "systemd"
    controllers = machine.read("/sys/fs/cgroup/cgroup.controllers").split()
    assert {"cpu", "io", "memory", "pids"} <= set(controllers)
    assert "ext4" in machine.check(f"findmnt -no FSTYPE {DISK}")


def test_a_cut_machine_reaches_nobody_and_answers_the_test(lab):
    (machine,) = lab.machines(1)
    ping = f"python3 -c 'import socket; socket.create_connection((\"{CLUSTER}.{HOST}\", 9), 2)'"
    assert "refused" in machine.run(ping).err
    machine.cut()
    try:
        assert "refused" not in machine.run(ping).err
    finally:
        machine.heal()
    machine.wait_until(f"{ping} 2>&1 | grep refused")


def test_a_frozen_machine_does_nothing(lab):
    (machine,) = lab.machines(1)
    machine.freeze()
    try:
        with pytest.raises(OSError, match="timed out"):
            machine.run("true", seconds=-4)
    finally:
        machine.thaw()
    assert machine.run("true").status == 0


def test_power_loss_keeps_what_was_synced_and_gives_another_boot_id(lab):
    (machine,) = lab.machines(1)
    machine.check(f"echo kept > {DISK}/synced; sync; echo lost > {DISK}/unsynced")
    boot = machine.boot_id()
    machine.power_off()
    machine.boot()
    machine.wait_ready()
    assert machine.boot_id() != boot
    assert machine.read(DISK / "synced") == "kept\n"
    assert machine.run(f"cat {DISK}/unsynced").out != "lost\n"
    machine.check(f"rm -f {DISK}/synced {DISK}/unsynced")


def test_a_planted_overlap_is_caught(lab):
    (machine,) = lab.machines(1)
    run = "HEADBAY_ATTEMPT_NUMBER={n} HEADBAY_FENCE={n} python3 -I -S /lab/ticker.py planted {s}"
    machine.check(run.format(n=1, s=0.5))
    machine.check(run.format(n=2, s=0.5))
    assert len(oracle.check(oracle.traces([machine]))["planted"]) == 2
    machine.check(f"{run.format(n=3, s=1)} & sleep 0.3; {run.format(n=4, s=0.5)}; wait")
    found = oracle.traces([machine])
    with pytest.raises(AssertionError, match="ran twice at once"):
        oracle.check(found)
    first, second, *_ = found
    with pytest.raises(AssertionError, match="a lower fence ran later"):
        oracle.check([first, replace(second, fence=1)])
    for file in machine.records.iterdir():
        file.unlink()
