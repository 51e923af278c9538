"""What globs find, and what a hostile payload cannot make them find."""

import glob as stdlib_glob
import os
import shutil
import socket
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headbay.activities.artifacts import ArtifactGlobError, DirectoryStore, Limits, collecting


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def fill(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def paths_of(store: DirectoryStore, root: Path, *globs: str) -> list[str]:
    return [entry.path for entry in store.collect(root, list(globs)).entries]


def test_globs_find_what_they_say(store: DirectoryStore, root: Path):
    fill(root, "dist/a.whl", "dist/b.whl", "dist/log.txt", "dist/sub/c.whl", "c.whl", ".hid/d.whl")
    fill(root, "dist/.hidden.whl")
    assert paths_of(store, root, "dist/*.whl") == ["dist/a.whl", "dist/b.whl"]
    assert paths_of(store, root, "./c.whl", "dist/log.txt") == ["c.whl", "dist/log.txt"]
    assert paths_of(store, root, "**/*.whl") == [
        "c.whl",
        "dist/a.whl",
        "dist/b.whl",
        "dist/sub/c.whl",
    ]
    assert paths_of(store, root, "dist/**/c.whl", "**/**/c.whl") == ["c.whl", "dist/sub/c.whl"]
    assert paths_of(store, root, "dist/?.whl", "dist/[ab].whl") == ["dist/a.whl", "dist/b.whl"]
    assert paths_of(store, root, ".hid/*", "dist/.*") == [".hid/d.whl", "dist/.hidden.whl"]
    everything_below = ["dist/.hidden.whl", "dist/a.whl", "dist/b.whl", "dist/log.txt"]
    assert paths_of(store, root, "dist/") == [*everything_below, "dist/sub/c.whl"]
    assert store.collect(root, []).entries == ()


def test_contents_and_modes_are_kept(store: DirectoryStore, root: Path):
    fill(root, "tool")
    (root / "tool").chmod(0o4755)
    [entry] = store.collect(root, ["tool"]).entries
    assert (entry.mode, entry.size_bytes) == (0o755, 4)
    assert store.read(entry.sha256) == b"tool"


@pytest.mark.parametrize("glob", ["nothing", "dist/*.zip", "**/*.zip", "empty", "dist/*/x"])
def test_a_glob_that_matches_nothing_is_an_error_that_names_it(
    store: DirectoryStore, root: Path, glob: str
):
    fill(root, "dist/a.whl")
    (root / "empty").mkdir()
    with pytest.raises(ArtifactGlobError) as caught:
        store.collect(root, ["dist/a.whl", glob])
    assert caught.value.glob == glob
    assert "artifact glob matched nothing" in str(caught.value)


@pytest.mark.parametrize("glob", ["/etc/passwd", "../x", "a/../../x", "a//b", "", ".", "a/./b"])
def test_a_glob_must_be_relative_and_plain(store: DirectoryStore, root: Path, glob: str):
    with pytest.raises(ArtifactGlobError, match="must"):
        store.collect(root, [glob])


def test_links_lead_nowhere(store: DirectoryStore, root: Path, tmp_path: Path):
    fill(tmp_path, "secret/key.txt")
    fill(root, "dist/a.txt")
    (root / "dist/key.txt").symlink_to(tmp_path / "secret/key.txt")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root)
    for glob in ("dist/key.txt", "dist/*", "dist", "**", "out", "out/key.txt", "ou[t]", "**/key.*"):
        with pytest.raises(ArtifactGlobError, match="symbolic link") as caught:
            store.collect(root, [glob])
        assert caught.value.glob == glob
        assert caught.value.path
    # A pattern on the way passes links by; it neither follows nor refuses them.
    assert paths_of(store, root, "**/a.txt") == ["dist/a.txt"]
    assert paths_of(store, root, "*/a.txt") == ["dist/a.txt"]
    kept = [path.read_bytes() for path in store._root.rglob("*") if path.is_file()]
    assert b"dist/a.txt" in kept
    assert b"secret/key.txt" not in kept


def test_only_regular_files_are_kept(store: DirectoryStore, root: Path):
    fill(root, "out/a")
    os.mkfifo(root / "out/fifo")
    with pytest.raises(ArtifactGlobError, match="'out/fifo' is not a regular file"):
        store.collect(root, ["out/*"])
    (root / "out/fifo").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(root / "out/socket"))
        with pytest.raises(ArtifactGlobError, match="'out/socket' is not a regular file"):
            store.collect(root, ["out"])


def test_a_name_that_is_no_text_is_refused(store: DirectoryStore, root: Path):
    (root / "out").mkdir()
    (root / "out" / os.fsdecode(b"\xff.txt")).touch()
    with pytest.raises(ArtifactGlobError, match="not UTF-8"):
        store.collect(root, ["out/*"])


def test_strange_but_proper_names_are_kept(store: DirectoryStore, root: Path):
    names = ["a b", "☾", "new\nline", "-rf", "*", "quote'\""]
    fill(root, *(f"out/{name}" for name in names))
    assert paths_of(store, root, "out/*") == sorted(f"out/{name}" for name in names)


@pytest.mark.parametrize(
    ("limits", "glob"),
    [
        (Limits(files=2), "many/*"),
        (Limits(total_bytes=30), "many/*"),
        (Limits(visited=2), "**/nothing"),
        (Limits(depth=3), "deep"),
        (Limits(depth=3), "**/x"),
    ],
)
def test_limits_are_errors(store: DirectoryStore, root: Path, limits: Limits, glob: str):
    fill(root, *(f"many/file-number-{n}" for n in range(3)), "deep/1/2/3/4/5/x")
    with pytest.raises(ArtifactGlobError, match=r"more than|deeper than"):
        store.collect(root, [glob], limits)
    assert list((store._root / "tmp").iterdir() if (store._root / "tmp").exists() else []) == []


def test_limits_count_all_globs_together(store: DirectoryStore, root: Path):
    fill(root, "a", "b", "c")
    assert len(store.collect(root, ["a", "b", "a", "*"], Limits(files=3)).entries) == 3
    with pytest.raises(ArtifactGlobError, match="more than 2 files"):
        store.collect(root, ["a", "b", "c"], Limits(files=2))


def test_a_file_that_turns_into_a_link_while_it_is_looked_at_is_refused(
    store: DirectoryStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fill(tmp_path, "secret")
    fill(root, "out/a")
    looked, times = os.stat, 0

    def swap(path, **options):
        nonlocal times
        found = looked(path, **options)
        times += path == "a"
        if times == 2:  # the last look before it is opened
            (root / "out/a").unlink()
            (root / "out/a").symlink_to(tmp_path / "secret")
        return found

    monkeypatch.setattr(collecting.os, "stat", swap)
    with pytest.raises(ArtifactGlobError, match="'out/a'"):
        store.collect(root, ["out/a"])
    assert times == 2


def test_no_descriptor_is_left_open(store: DirectoryStore, root: Path):
    fill(root, "a/b/c", "a/b/d")
    (root / "a/b/e").symlink_to("c")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(ArtifactGlobError):
            store.collect(root, ["**"])
        store.collect(root, ["a/b/[cd]"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


PARTS = st.sampled_from(["a", "b", "ab", "x.txt", "[z]"])
TREES = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), min_size=1, max_size=8)
PATTERNS = st.lists(
    st.sampled_from(["a", "b", "*", "**", "a*", "?", "*.txt", "[ab]", "[!a]", "[z]", "[[]z]"]),
    min_size=1,
    max_size=4,
).map("/".join)


@settings(max_examples=150, deadline=None)
@given(tree=TREES, pattern=PATTERNS)
def test_globs_agree_with_the_standard_library(tree: set[str], pattern: str):
    """Apart from folders, which mean what is below them."""
    folder = Path(tempfile.mkdtemp(prefix="hb-globs-"))
    try:
        files = {p for p in tree if not any(other.startswith(f"{p}/") for other in tree)}
        fill(folder, *files)
        named = {
            found.rstrip("/")
            for found in stdlib_glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207
            # It says that "file/" matches "file/**".
            if not (found.endswith("/") and (folder / found).is_file())
        }
        expected = sorted(
            file
            for file in files
            if any(part in named for part in [file, *map(str, Path(file).parents)]) or "" in named
        )
        found = []
        with suppress(ArtifactGlobError) if not expected else nullcontext():
            for path, descriptor, _ in collecting.find_files(folder, [pattern], Limits()):
                assert os.pread(descriptor, 100, 0) == path.encode()
                found.append(path)
        assert sorted(found) == expected
        assert len(found) == len(set(found))
    finally:
        shutil.rmtree(folder)
