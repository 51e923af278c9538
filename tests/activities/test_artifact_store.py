"""The directory store: contents by digest, manifests by attempt and fence."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headbay.activities.artifacts import (
    ArtifactConflictError,
    ArtifactCorruptError,
    ArtifactMissingError,
    DirectoryStore,
    Manifest,
    ManifestEntry,
)
from headbay.activities.places import BadNameError

NOBODY = "0" * 64


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def entry(path: str, data: bytes = b"", mode: int = 0o644) -> ManifestEntry:
    sha256 = hashlib.sha256(data).hexdigest()
    return ManifestEntry(path=path, mode=mode, sha256=sha256, size_bytes=len(data))


def blob_path(store: DirectoryStore, sha256: str) -> Path:
    return store._root / "blobs" / "sha256" / sha256[:2] / sha256


def test_bytes_come_back_under_their_digest(store: DirectoryStore, tmp_path: Path):
    data = os.urandom(3 * 1024 * 1024 + 7)
    sha256 = store.put_bytes(data)
    assert sha256 == hashlib.sha256(data).hexdigest()
    assert store.put_bytes(data) == sha256
    assert store.has(sha256)
    assert store.has(sha256, len(data))
    assert not store.has(sha256, 1)
    assert store.read(sha256) == data
    with store.open(sha256) as blob:
        assert blob.read(10) == data[:10]
        assert blob.read() == data[10:]
    assert store.get_to(sha256, tmp_path / "copy", mode=0o600) == len(data)
    assert (tmp_path / "copy").read_bytes() == data
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert store.read(store.put_bytes(b"")) == b""


def test_a_file_is_kept_by_its_contents(store: DirectoryStore, tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"same")
    first = store.put_file(tmp_path / "one")
    written = blob_path(store, first[0]).stat()
    assert store.put_file(tmp_path / "two") == first == (hashlib.sha256(b"same").hexdigest(), 4)
    assert blob_path(store, first[0]).stat() == written, "an existing blob was written again"
    assert written.st_mode & 0o777 == 0o444
    assert list((store._root / "tmp").iterdir()) == []


def test_the_store_is_private(store: DirectoryStore):
    sha256 = store.put_bytes(b"x")
    store.keep("w", "s", 1, 1, Manifest(entries=(entry("x", b"x"),)))
    for folder in [store._root, *(p for p in store._root.rglob("*") if p.is_dir())]:
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    assert store.has(sha256)


def test_what_is_missing_is_named(store: DirectoryStore, tmp_path: Path):
    for ask in (store.read, store.open, store.manifest):
        with pytest.raises(ArtifactMissingError, match=NOBODY):
            ask(NOBODY)
    with pytest.raises(ArtifactMissingError):
        store.get_to(NOBODY, tmp_path / "copy")
    with pytest.raises(ArtifactMissingError):
        store.read("../../../../etc/passwd")
    assert not store.has(NOBODY)


def test_damage_is_noticed_and_leaves_nothing_behind(store: DirectoryStore, tmp_path: Path):
    data = b"a" * 5_000
    sha256 = store.put_bytes(data)
    blob = blob_path(store, sha256)
    blob.chmod(0o600)
    blob.write_bytes(data[:-1] + b"b")
    with pytest.raises(ArtifactCorruptError, match="another digest"):
        store.read(sha256)
    with pytest.raises(ArtifactCorruptError):
        store.get_to(sha256, tmp_path / "copy")
    with pytest.raises(ArtifactCorruptError):
        store.materialise(Manifest(entries=(entry("deep/copy", data),)), tmp_path / "inputs")
    assert [p for p in tmp_path.rglob("*") if p.is_file() and store._root not in p.parents] == []


def test_a_blob_of_another_size_is_replaced(store: DirectoryStore):
    sha256 = store.put_bytes(b"whole")
    blob = blob_path(store, sha256)
    blob.chmod(0o600)
    blob.write_bytes(b"who")
    assert store.put_bytes(b"whole") == sha256
    assert store.read(sha256) == b"whole"


def test_reading_is_bounded(store: DirectoryStore):
    sha256 = store.put_bytes(b"x" * 100)
    assert store.read(sha256, max_bytes=100) == b"x" * 100
    with pytest.raises(ValueError, match="larger than 99 bytes"):
        store.read(sha256, max_bytes=99)


def test_a_manifest_is_kept_once_for_an_attempt_and_fence(store: DirectoryStore):
    store.put_bytes(b"x")
    store.put_bytes(b"y")
    first = Manifest(entries=(entry("x", b"x"),))
    second = Manifest(entries=(entry("x", b"y"),))
    assert store.kept("w", "s", 1, 7) is None
    ref = store.keep("w", "s", 1, 7, first)
    assert (ref.files, ref.size_bytes) == (1, 1)
    assert store.keep("w", "s", 1, 7, first) == ref
    with pytest.raises(ArtifactConflictError, match=r"attempts/w/s/a1\.f7\.json"):
        store.keep("w", "s", 1, 7, second)
    assert store.kept("w", "s", 1, 7) == first
    assert store.manifest(ref.sha256) == first
    store.keep("w", "s", 1, 8, second)
    assert store.kept("w", "s", 1, 8) == second
    assert store.read(ref.sha256) == first.canonical()


def test_a_manifest_names_only_what_is_there(store: DirectoryStore):
    with pytest.raises(ArtifactMissingError):
        store.keep("w", "s", 1, 1, Manifest(entries=(entry("x", b"never put"),)))
    assert store.kept("w", "s", 1, 1) is None


@pytest.mark.parametrize(
    ("workload", "step"), [("..", "s"), (".", "s"), ("a/b", "s"), ("", "s"), ("w", "../x")]
)
def test_names_cannot_leave_the_store(store: DirectoryStore, workload: str, step: str):
    with pytest.raises(BadNameError):
        store.keep(workload, step, 1, 1, Manifest())


def test_a_blob_that_is_no_manifest_is_not_taken_for_one(store: DirectoryStore):
    for text in (b"[]x", b"{}", b'[{"path":"/etc/passwd","mode":1,"sha256":"","size_bytes":0}]'):
        with pytest.raises(ArtifactCorruptError, match="no manifest"):
            store.manifest(store.put_bytes(text))


@pytest.mark.parametrize("path", ["/x", "../x", "a/../x", "a//x", "./x", "a/", "", "a\0b"])
def test_a_manifest_holds_only_paths_that_stay_inside(path: str):
    with pytest.raises(ValidationError):
        entry(path)


def test_a_manifest_holds_distinct_files():
    with pytest.raises(ValidationError, match="twice"):
        Manifest(entries=(entry("x"), entry("x")))
    with pytest.raises(ValidationError, match="below a file"):
        Manifest(entries=(entry("x"), entry("x/y")))


NAMES = st.text(min_size=1, max_size=6).filter(lambda s: "/" not in s and s not in (".", ".."))


@given(st.sets(NAMES.map(lambda s: s.replace("\0", "0")), max_size=5), st.randoms())
def test_equal_manifests_have_one_text(names: set[str], random):
    entries = [entry(name, name.encode("utf-8", "replace")) for name in names]
    shuffled = random.sample(entries, len(entries))
    one, other = Manifest(entries=tuple(entries)), Manifest(entries=tuple(shuffled))
    assert one.canonical() == other.canonical()
    assert one.ref() == other.ref()
    assert Manifest.parse(one.canonical()) == one


def test_inputs_are_read_only_copies(store: DirectoryStore, tmp_path: Path):
    for data in (b"tool", b"text"):
        store.put_bytes(data)
    manifest = Manifest(
        entries=(entry("bin/tool", b"tool", 0o700), entry("text", b"text", 0o4664 & 0o777))
    )
    folder = tmp_path / "inputs" / "build"
    store.materialise(manifest, folder)
    store.materialise(manifest, folder)
    assert (folder / "bin/tool").stat().st_mode & 0o7777 == 0o544
    assert (folder / "text").stat().st_mode & 0o7777 == 0o444
    assert (folder / "text").read_bytes() == b"text"
    (folder / "text").chmod(0o600)
    (folder / "text").write_bytes(b"changed by the payload")
    assert store.read(hashlib.sha256(b"text").hexdigest()) == b"text"
    assert sorted(p.name for p in folder.iterdir()) == ["bin", "text"]


def test_inputs_are_never_written_through_a_link(store: DirectoryStore, tmp_path: Path):
    """The folder may have been in the hands of an earlier attempt."""
    store.put_bytes(b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_bytes(b"precious")
    folder = tmp_path / "inputs"
    folder.mkdir()
    (folder / "a").symlink_to(outside)
    with pytest.raises(OSError, match=r"a"):
        store.materialise(Manifest(entries=(entry("a/victim", b"x"),)), folder)
    (folder / "victim").symlink_to(outside / "victim")
    store.materialise(Manifest(entries=(entry("victim", b"x"),)), folder)
    assert (outside / "victim").read_bytes() == b"precious"
    assert not (folder / "victim").is_symlink()
    assert sorted(p.name for p in outside.iterdir()) == ["victim"]
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError, match=r"link"):
        store.materialise(Manifest(entries=(entry("z", b"x"),)), tmp_path / "link")


def test_many_writers_of_the_same_contents_agree(tmp_path: Path):
    stores = [DirectoryStore(tmp_path / "store") for _ in range(4)]
    contents = [bytes([n]) * 50_000 for n in range(10)]
    barrier = threading.Barrier(8)

    def write(number: int) -> list[str]:
        store = stores[number % 4]
        barrier.wait()
        digests = [store.put_bytes(data) for data in contents]
        entries = tuple(entry(f"f{n}", data) for n, data in enumerate(contents))
        store.keep("w", "s", 1, 1, Manifest(entries=entries))
        return digests

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(write, range(8)))
    assert all(digests == done[0] for digests in done)
    assert [stores[0].read(digest) for digest in done[0]] == contents
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


def test_rubbish_of_killed_writers_is_swept_but_not_what_is_being_written(store: DirectoryStore):
    assert store.sweep() == 0
    store.put_bytes(b"x")
    old, young = store._root / "tmp" / "old", store._root / "tmp" / "young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    assert store.sweep() == 1
    assert not old.exists()
    assert young.exists()
