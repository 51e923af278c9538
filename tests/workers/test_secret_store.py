"""Where a node finds secrets, and what it refuses to take."""

import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headbay.activities.places import Places
from headbay.domain.attempt import LaunchSpec
from headbay.workers.node.secret_store import MOST_BYTES, SecretStore, SecretUnavailableError

VALUE = "canary-7f3a"


@pytest.fixture
def places(tmp_path):
    """With a folder of secrets as it should be, and the secret `pypi` in it."""
    made = Places(tmp_path / "state")
    made.secrets.mkdir(parents=True, mode=0o700)
    put(made.secrets / "pypi", VALUE)
    return made


def put(path, value, mode=0o600):
    path.write_bytes(value if isinstance(value, bytes) else value.encode())
    path.chmod(mode)
    return path


def spec(secrets=None, files=None):
    return LaunchSpec(
        workload="w",
        step="a",
        attempt=1,
        fence=1,
        allocation="x",
        pool="p",
        node="n",
        epoch=1,
        argv=["true"],
        secrets=secrets or {},
        secret_files=files or {},
    )


def refusal(store, name="pypi", **how):
    """The message, which never shows a value."""
    with pytest.raises(SecretUnavailableError) as caught:
        store.read(spec(**how or {"secrets": {"TOKEN": name}}))
    error = caught.value
    assert VALUE not in f"{error!r} {error.__cause__!r} {error.__context__!r}"
    return str(error)


def test_a_value_loses_its_last_newline_and_a_file_nothing(places):
    """A file may be a key or a keystore, which is not what it was without its last byte."""
    put(places.secrets / "key", b"a\0\xff\n\n")
    put(places.secrets / "line", "v\n\n")
    read = SecretStore(places).read(spec({"A": "pypi", "B": "line"}, {"K": "key", "L": "line"}))
    assert read.env == {"A": VALUE, "B": "v\n"}
    assert read.files == {"K": b"a\0\xff\n\n", "L": b"v\n\n"}
    assert VALUE not in repr(read)


def test_credentials_of_the_unit_come_first_and_the_folder_is_looked_at_only_then(places, tmp_path):
    """Owner and mode of credentials are the manager's, and not judged."""
    given_to_unit = tmp_path / "credentials"
    given_to_unit.mkdir(mode=0o750)
    put(given_to_unit / "pypi", "of-the-unit", 0o440)
    store = SecretStore.find(places, {"CREDENTIALS_DIRECTORY": str(given_to_unit)})
    put(places.secrets / "other", "of-the-folder")
    assert store.read(spec({"A": "pypi", "B": "other"})).env == {
        "A": "of-the-unit",
        "B": "of-the-folder",
    }
    text = refusal(store, "missing")
    assert str(places.secrets / "missing") in text
    assert str(given_to_unit) in text
    assert SecretStore.find(places, {}).value("pypi") == VALUE.encode()


def test_a_credential_that_cannot_be_taken_is_not_replaced_by_another(places, tmp_path):
    """What the operator gave the unit is what counts, or nothing."""
    (tmp_path / "credentials" / "pypi").mkdir(parents=True)
    assert "is no file" in refusal(SecretStore(places, tmp_path / "credentials"))


def test_a_missing_secret_says_where_to_put_it(places):
    """With the path and the chmod."""
    path = places.secrets / "missing"
    assert f"write it there and run `chmod 600 {path}`" in refusal(SecretStore(places), "missing")
    (places.secrets / "pypi").unlink()
    places.secrets.rmdir()
    assert str(places.secrets / "pypi") in refusal(SecretStore(places))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644])
def test_a_file_that_is_open_to_anybody_else_is_not_taken(places, mode):
    """In any way: who can write it can give a value, too."""
    path = places.secrets / "pypi"
    path.chmod(mode)
    assert f"run `chmod 600 {path}`" in refusal(SecretStore(places))


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o710, 0o701, 0o720, 0o755])
def test_a_folder_that_is_open_to_anybody_else_is_not_read(places, mode):
    """Even if the file is closed."""
    places.secrets.chmod(mode)
    assert f"run `chmod 700 {places.secrets}`" in refusal(SecretStore(places))


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
@pytest.mark.parametrize("which", ["folder", "file"])
def test_what_belongs_to_somebody_else_is_not_taken(places, which):
    """Its owner could open it to others at any time."""
    path = places.secrets if which == "folder" else places.secrets / "pypi"
    os.chown(path, 65534, 65534)
    text = refusal(SecretStore(places))
    assert f"run `chown root {path}`" in text
    assert "belongs to nobody" in text


def test_a_link_or_a_fifo_or_a_folder_is_no_secret(places, tmp_path):
    """A link may lead out of the folder, and nobody waits for who writes to a FIFO."""
    outside = put(tmp_path / "outside", VALUE)
    (places.secrets / "link").symlink_to(outside)
    (places.secrets / "inside").symlink_to("pypi")
    os.mkfifo(places.secrets / "fifo", 0o600)
    (places.secrets / "folder").mkdir(mode=0o700)
    store = SecretStore(places)
    assert "is a symbolic link" in refusal(store, "link")
    assert "is a symbolic link" in refusal(store, "inside")
    assert "is no file" in refusal(store, "fifo")
    assert "is no file" in refusal(store, "folder")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.one_of(st.text(max_size=12), st.text("./a\0-", max_size=8)))
@example("..")
@example(".")
@example("")
@example("../outside")
@example("/etc/passwd")
@example("pypi\0")
@example("pypi/../../outside")
@example("pypi/")
@example("pypi\n")
@example("a" * 129)
def test_no_name_leaves_the_folder(places, name):
    """Whatever it is, of either source: it is a secret of that folder, or it is refused."""
    outside = places.root / "outside"
    outside.write_text("stolen")
    outside.chmod(0o600)
    for store in (SecretStore(places), SecretStore(places, places.root / "credentials")):
        if name == "pypi":
            assert store.value(name) == VALUE.encode()
        else:
            assert "is not on this node" in (text := refusal(store, name)) or "cannot be" in text


@pytest.mark.parametrize(
    ("value", "why"),
    [(b"\xff", "not UTF-8"), (VALUE.encode() + b"\xff", "not UTF-8"), (b"a\0", "NUL")],
)
def test_what_no_environment_can_hold_is_refused_there_and_advised_as_a_file(places, value, why):
    """As a file it is given as it is."""
    put(places.secrets / "raw", value)
    text = refusal(SecretStore(places), "raw")
    assert why in text
    assert "{secret: raw, as: file}" in text
    assert SecretStore(places).read(spec(files={"K": "raw"})).files == {"K": value}


def test_the_largest_secret_is_given_and_a_larger_one_refused(places):
    """A bound on what goes through pipes and stays in memory."""
    put(places.secrets / "large", b"x" * MOST_BYTES)
    assert len(SecretStore(places).value("large")) == MOST_BYTES
    put(places.secrets / "large", b"x" * (MOST_BYTES + 1))
    assert "larger than" in refusal(SecretStore(places), files={"K": "large"})
