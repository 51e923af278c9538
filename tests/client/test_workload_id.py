"""Workload ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headbay.client.errors import BadWorkloadIdError
from headbay.client.workload_id import RANDOM_BITS, check_id, generate_id
from headbay.domain.ids import WORKLOAD_ID

NOW_MS = 1_796_000_000_000


@given(name=st.text(max_size=300), now=st.integers(0, 2**42), random=st.integers(0, 2**30 - 1))
def test_a_generated_id_is_always_valid_whatever_the_name(name, now, random):
    assert WORKLOAD_ID.fullmatch(generate_id(name, now, random))


@given(
    early=st.integers(NOW_MS, NOW_MS + 10**10),
    later_by=st.integers(1, 10**9),
    one=st.integers(0, 2**30 - 1),
    other=st.integers(0, 2**30 - 1),
)
def test_ids_of_one_name_sort_by_time(early, later_by, one, other):
    assert generate_id("ci", early, one) < generate_id("ci", early + later_by, other)


def test_every_random_bit_counts():
    ids = {generate_id("ci", NOW_MS, 1 << bit) for bit in range(RANDOM_BITS)}
    assert len(ids) == RANDOM_BITS


def test_an_id_begins_with_its_name_and_stays_short():
    made = generate_id("build and test", NOW_MS, 12345)
    assert made.startswith("build-and-test-")
    assert len(made) == len("build-and-test-") + 14


@pytest.mark.parametrize("bad", ["", "a b", "x" * 101, "a/b", "ä", "a\n", ".", ".."])
def test_an_id_that_cannot_be_one_is_refused_with_the_rule(bad):
    with pytest.raises(BadWorkloadIdError, match="1 to 100 letters") as caught:
        check_id(bad)
    assert caught.value.code == "BAD_WORKLOAD_ID"


@pytest.mark.parametrize("good", ["a", "A.b_c-1", "x" * 100, "...", "-"])
def test_an_id_of_the_allowed_characters_is_taken_as_it_is(good):
    assert check_id(good) == good
