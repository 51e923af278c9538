"""What can go wrong with a ledger."""

from typing import ClassVar

from headbay.domain.errors import HeadbayError

__all__ = ["BadLedgerUrlError", "LedgerSchemaError", "LedgerUnavailableError"]


class LedgerUnavailableError(HeadbayError):
    """The database is away, or too slow, for now: nothing is known of what was asked.

    The ledger is a projection, so workloads run on; ask again, every operation may be repeated.

    Attributes:
        url: Where it should be, without a password.
    """

    code: ClassVar[str] = "LEDGER_UNAVAILABLE"

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"the ledger at {url} does not answer: {why}; workloads run on, and what it misses is "
            "filled in from Temporal's histories once it is back"
        )
        self.url = url


class LedgerSchemaError(HeadbayError):
    """The database's tables are not those that this version knows.

    Attributes:
        url: Where it is, without a password.
    """

    code: ClassVar[str] = "LEDGER_SCHEMA"

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"the ledger at {url} {why}")
        self.url = url


class BadLedgerUrlError(HeadbayError):
    """The URL names no ledger."""

    code: ClassVar[str] = "BAD_LEDGER_URL"
