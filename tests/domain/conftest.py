"""The domain is tested with the clock, randomness, files and the environment made to raise."""

from collections.abc import Iterator

import pytest
from support.purity import world_is_closed


@pytest.fixture(autouse=True, scope="module")
def closed_world() -> Iterator[None]:
    """Domain code that reaches for the world fails its test."""
    with world_is_closed():
        yield
