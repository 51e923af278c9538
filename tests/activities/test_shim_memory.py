"""Promise: a supervisor to which the kernel refuses memory for a while loses nothing by it."""

import errno
import os

import pytest

from headbay.activities.executor.shim import files, kernel
from headbay.activities.executor.shim.cgroup import Cgroup, LimitError

CALLS = ("open", "read", "write", "ftruncate", "fsync", "link", "unlink")


@pytest.fixture(params=CALLS)
def refused(request, monkeypatch):
    """The first three calls of one kind are refused; how often that was."""
    real = getattr(os, request.param)
    times = []

    def call(*args, **named):
        if len(times) < 3:
            times.append(args)
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return real(*args, **named)

    monkeypatch.setattr(os, request.param, call)
    return request.param, times


def test_a_record_is_written_in_the_end(refused, tmp_path):
    call, times = refused
    files.write_durably(str(tmp_path), "exit.json", {"outcome": "x" * 10_000})
    assert len(times) == 3 or call == "read"
    assert files.read(str(tmp_path), "exit.json") == {"outcome": "x" * 10_000}
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]


@pytest.fixture
def group(tmp_path):
    """Looks like a control group."""
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    return Cgroup(str(tmp_path))


def test_a_group_is_read_and_written_in_the_end(refused, group, tmp_path):
    assert group.populated()
    (tmp_path / "memory.max").touch()
    group.limit("memory.max", "4096")
    assert (tmp_path / "memory.max").read_text() == "4096"


def test_a_group_that_does_not_answer_is_not_taken_for_empty(group, tmp_path):
    (tmp_path / "cgroup.events").unlink()
    with pytest.raises(LimitError, match="does not say"):
        group.populated()
    assert not Cgroup(str(tmp_path / "gone")).populated()


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(kernel, "PATIENCE_S", 0.05)

    def refuse():
        raise OSError(errno.ENOMEM, "no")

    with pytest.raises(OSError, match="no"):
        kernel.patiently(refuse)


def test_what_is_not_for_want_of_memory_is_not_tried_again():
    calls = []

    def fail():
        calls.append(1)
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        kernel.patiently(fail)
    assert len(calls) == 1
