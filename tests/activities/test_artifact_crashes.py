"""A writer that dies at any instruction leaves either nothing or all of what it wrote."""

import subprocess
import sys
from pathlib import Path

RUNNER = '''
"""Forks a writer for every system call that it makes, and kills it there."""
import hashlib, os, signal, sys
from itertools import count
from pathlib import Path

from headbay.activities.artifacts import DirectoryStore

CALLS = {"open", "write", "flush", "fsync", "fchmod", "rename", "link", "unlink", "mkdir", "close"}


def work(store, root, said):
    manifest = store.collect(root / "in", ["**"])
    said("collected")
    store.keep("w", "s", 1, 7, manifest)
    said("kept")
    store.put_bytes(b"output")
    said("output")


def killed_at(point, store, root, pipe):
    """The child: dies before its call number `point`; leaves with 0 if it makes fewer."""
    seen = 0

    def watch(frame, event, function):
        nonlocal seen
        if event == "c_call" and getattr(function, "__name__", "") in CALLS:
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    sys.setprofile(watch)
    work(store, root, lambda word: os.write(pipe, word.encode() + b" "))
    sys.setprofile(None)
    os._exit(0)


def check(folder, said):
    """What another process finds afterwards."""
    store = DirectoryStore(folder)
    blobs = list(folder.glob("blobs/sha256/*/*"))
    for blob in blobs:
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name, "half a blob"
        assert blob.stat().st_mode & 0o777 == 0o444, "a blob that can be written to"
    kept = store.kept("w", "s", 1, 7)
    if kept is not None:
        assert {e.sha256 for e in kept.entries} <= {b.name for b in blobs}, "a hollow manifest"
    assert (kept is not None) or "kept" not in said, "acknowledged, and gone"
    assert store.has(hashlib.sha256(b"output").hexdigest()) or "output" not in said
    return store, kept


def main():
    root = Path(sys.argv[1])
    folder = root / "in" / "sub"
    folder.mkdir(parents=True)
    (folder / "big").write_bytes(b"b" * 3_000_000)
    (root / "in" / "small").write_bytes(b"s")
    outcomes = set()
    for point in count():
        home = root / f"store-{point}"
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            killed_at(point, DirectoryStore(home), root, write)
        os.close(write)
        _, status = os.waitpid(child, 0)
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read().decode().split()
        store, kept = check(home, said)
        outcomes.add((kept is not None, len(said)))
        # Doing it again works, and nothing but what was meant to be is left.
        work(store, root, lambda word: None)
        check(home, ["kept", "output"])
        store.sweep(-1)
        files = [p for p in home.rglob("*") if p.is_file()]
        assert len(files) == 5, files  # two files, manifest, its name, output
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    print(point, sorted(outcomes))


main()
'''

ORDER = '''
"""Prints the calls that make one blob and one manifest durable, in order."""
import os, sys
from pathlib import Path

from headbay.activities.artifacts import DirectoryStore, Manifest, ManifestEntry

store = DirectoryStore(Path(sys.argv[1]))
store.put_bytes(b"warm up: the folders are made")
calls = []


def watch(frame, event, function):
    name = getattr(function, "__name__", "")
    if event == "c_call" and name in ("fsync", "rename", "link"):
        if name == "fsync":
            fd = frame.f_locals.get("descriptor")
            name = "fsync folder" if fd is not None else "fsync file"
        calls.append(name)


sys.setprofile(watch)
sha256 = store.put_bytes(b"x" * 10)
sys.setprofile(None)
print(",".join(calls))
calls.clear()
entry = ManifestEntry(path="x", mode=0o644, sha256=sha256, size_bytes=10)
sys.setprofile(watch)
store.keep("w", "s", 1, 1, Manifest(entries=(entry,)))
sys.setprofile(None)
print(",".join(calls))
'''


def run(script: str, folder: Path) -> list[str]:
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_kill_at_any_call_leaves_nothing_half_done(tmp_path: Path):
    [line] = run(RUNNER, tmp_path)
    points, outcomes = line.split(" ", 1)
    assert int(points) > 40, "the writer was killed at too few points to show anything"
    assert "(False, 0)" in outcomes  # early: nothing
    assert "(True, 1)" in outcomes  # between the manifest's name and the acknowledgement
    assert "(True, 3)" in outcomes  # late: everything


def test_contents_are_on_the_disk_before_their_name_and_the_name_before_the_answer(
    tmp_path: Path,
):
    blob, manifest = run(ORDER, tmp_path)
    calls = blob.split(",")
    assert calls.index("fsync file") < calls.index("rename")
    assert calls[-1] == "fsync folder"
    calls = manifest.split(",")
    name = calls.index("link")
    assert "fsync file" in calls[calls.index("rename") : name], "the manifest's draft"
    assert calls[name + 1 :] == ["fsync folder"]
