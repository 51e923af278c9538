"""Finds the ledger that a URL names among the installed ones."""

from importlib.metadata import entry_points
from typing import Final

from headbay.activities.ledger.errors import BadLedgerUrlError
from headbay.activities.ledger.port import Ledger

__all__ = ["GROUP", "open_ledger"]

GROUP: Final = "headbay.ledgers"
"""Entry-point group: URL scheme -> class with the interface of `Ledger`."""

ALIASES: Final = {"postgres": "postgresql"}


def open_ledger(url: str) -> Ledger:
    """The ledger at ``sqlite:///PATH`` or ``postgresql://…``; nothing is connected yet.

    Raises:
        BadLedgerUrlError: No installed ledger takes such a URL.
    """
    scheme, separator, _ = url.partition("://")
    scheme = ALIASES.get(scheme, scheme)
    found = entry_points(group=GROUP)
    if not separator or scheme not in found.names:
        known = ", ".join(f"{name}://" for name in sorted(found.names))
        # The URL itself is not repeated: it may hold a password.
        raise BadLedgerUrlError(
            f"a ledger's URL begins with one of {known}, not {scheme[:20]!r}; "
            "for instance sqlite:////var/lib/headbay/ledger.db"
        )
    try:
        kind: type[Ledger] = found[scheme].load()
    except ModuleNotFoundError as error:
        raise BadLedgerUrlError(
            f"{scheme}:// needs the package {error.name}: pip install 'headbay[postgres]'"
        ) from error
    return kind.of_url(url)
