"""The secrets that one node holds: read when a payload starts, kept and written nowhere.

Two sources, in this order: the systemd credentials of the worker's unit, then the folder of
secrets in the state directory. The first that has a secret of that name gives it; one that has it
and cannot give it is an error, never a reason to look further.

Source: systemd.exec(5), LoadCredential=. Credentials come in a file system of the manager's own,
which nobody can write to; they may be root's, with a list that lets the unit's user read them, so
that owner and mode tell nothing. Those of the folder of secrets are checked.
"""

import errno
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from headbay.activities.executor.port import Secrets
from headbay.activities.places import BadNameError, Places
from headbay.domain.attempt import LaunchSpec
from headbay.domain.errors import HeadbayError

__all__ = ["MOST_BYTES", "SecretStore", "SecretUnavailableError"]

MOST_BYTES: Final = 1 << 20
"""Of one secret; also what systemd allows for all credentials of a unit."""

_OTHERS: Final = 0o077
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Of a FIFO, O_NONBLOCK makes that nobody waits for who writes to it."""


class SecretUnavailableError(HeadbayError):
    """A secret is not on this node, or must not be taken from where it is.

    The message names the secret, the path and what to do, never the value.

    Attributes:
        name: The secret's name.
    """

    code: ClassVar[str] = "SECRET_UNAVAILABLE"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"secret {name!r} {message}")
        self.name = name


class SecretStore:
    """Reads secrets anew for every attempt, so that a changed one needs no restart.

    Args:
        places: Whose folder of secrets is the second source.
        credentials: The manager's folder of credentials; None if the unit has none.
    """

    def __init__(self, places: Places, credentials: Path | None = None) -> None:
        self._places = places
        self._credentials = credentials

    @classmethod
    def find(cls, places: Places, environ: Mapping[str, str]) -> "SecretStore":
        """With the credentials that ``CREDENTIALS_DIRECTORY`` tells of."""
        told = environ.get("CREDENTIALS_DIRECTORY")
        return cls(places, Path(told) if told else None)

    def read(self, spec: LaunchSpec) -> Secrets:
        """All that an attempt needs.

        Raises:
            SecretUnavailableError: One cannot be had, or is none that it can be given as.
        """
        env = {variable: self._text(variable, name) for variable, name in spec.secrets.items()}
        files = {variable: self.value(name) for variable, name in spec.secret_files.items()}
        return Secrets(env, files)

    def _text(self, variable: str, name: str) -> str:
        """As an environment variable holds it: without the newline that an editor puts there."""
        as_file = f"give {variable} as a file: {{secret: {name}, as: file}}"
        try:
            text = self.value(name).decode()
        except UnicodeDecodeError:  # It holds the value, and must not be anybody's cause.
            text = None
        if text is None:
            raise SecretUnavailableError(name, f"is not UTF-8, as an environment is: {as_file}")
        if "\0" in text:
            raise SecretUnavailableError(name, f"holds a NUL, which no environment can: {as_file}")
        return text.removesuffix("\n")

    def value(self, name: str) -> bytes:
        """A secret, byte for byte.

        Raises:
            SecretUnavailableError: It cannot be had.
        """
        try:
            path = self._places.secret(name)
        except BadNameError as error:
            raise SecretUnavailableError(name, f"cannot be: {error}") from error
        if self._credentials is not None:
            value = _read(name, self._credentials / name, checked=False)
            if value is not None:
                return value
        value = _read(name, path, checked=True)
        if value is None:
            beside = "" if self._credentials is None else f", nor in {self._credentials}"
            raise SecretUnavailableError(
                name,
                f"is not on this node: there is no {path}{beside}; write it there and run "
                f"`chmod 600 {path}`, or name it in LoadCredential= of the worker's unit",
            )
        return value


def _read(name: str, path: Path, *, checked: bool) -> bytes | None:
    """What a file of a folder holds; None if either is not there.

    The checks look at what was opened: nobody can exchange it in between.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(name, path.parent, error) from error
    try:
        if checked:
            _check(name, path.parent, os.fstat(folder), 0o700)
        fd = os.open(path.name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(name, path, error) from error
    finally:
        os.close(folder)
    try:
        return _content(name, path, fd, checked=checked)
    except OSError as error:
        raise _unreadable(name, path, error) from error
    finally:
        os.close(fd)


def _content(name: str, path: Path, fd: int, *, checked: bool) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise SecretUnavailableError(name, f"is no file: replace {path} by one with the value")
    if checked:
        _check(name, path, status, 0o600)
    with os.fdopen(fd, "rb", closefd=False) as file:
        value = file.read(MOST_BYTES + 1)
    if len(value) > MOST_BYTES:
        raise SecretUnavailableError(
            name, f"is larger than {MOST_BYTES} bytes: keep only the key to it in {path}"
        )
    return value


def _unreadable(name: str, path: Path, error: OSError) -> SecretUnavailableError:
    if error.errno == errno.ELOOP:
        return SecretUnavailableError(
            name, f"is a symbolic link: put a file with the value itself at {path}"
        )
    me = os.geteuid()
    return SecretUnavailableError(
        name, f"cannot be read: {path}: {error.strerror}; let it belong to {_user(me)}"
    )


def _check(name: str, path: Path, status: os.stat_result, mode: int) -> None:
    """Only the worker's user may have it."""
    me = os.geteuid()
    if status.st_uid != me:
        whose, mine = _user(status.st_uid), _user(me)
        raise SecretUnavailableError(
            name,
            f"is not safe: {path} belongs to {whose}, and this worker runs as {mine}; run "
            f"`chown {mine} {path}` and `chmod {mode:o} {path}`",
        )
    if status.st_mode & _OTHERS:
        raise SecretUnavailableError(
            name,
            f"is not safe: {path} is open to others (mode {stat.S_IMODE(status.st_mode):o}); run "
            f"`chmod {mode:o} {path}`, and replace the value if somebody may have read it",
        )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
