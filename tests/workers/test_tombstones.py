"""Promise: no fence that a node has seen for a step, or may have forgotten, counts as new."""

import pytest

from headbay.workers.node.tombstones import Tombstones


def opened(file, remembered=100) -> Tombstones:
    made = Tombstones(file, remembered=remembered)
    made.open()
    return made


def test_the_highest_fence_of_each_step_survives_a_restart(tmp_path):
    stones = opened(tmp_path / "t")
    stones.write("aaaaaaaaaaaa", 5)
    stones.write("bbbbbbbbbbbb", 6)
    stones.write("aaaaaaaaaaaa", 9)
    stones.write("aaaaaaaaaaaa", 7)
    for found in (stones, opened(tmp_path / "t")):
        assert found.highest("aaaaaaaaaaaa") == 9
        assert found.highest("bbbbbbbbbbbb") == 6
        assert found.highest("cccccccccccc") == 0


def test_of_a_forgotten_step_no_fence_counts_as_new_that_may_have_been_here(tmp_path):
    stones = opened(tmp_path / "t", remembered=3)
    for number in range(10):
        stones.write(f"{number:012x}", 100 + number)
    assert stones.highest(f"{9:012x}") == 109
    assert stones.highest(f"{0:012x}") == 106, "the highest forgotten one stands for it"
    assert stones.highest("f" * 12) == 106


def test_the_file_stays_small_and_says_the_same_after_it_was_written_anew(tmp_path):
    stones = opened(tmp_path / "t", remembered=5)
    for number in range(100):
        stones.write(f"{number % 8:012x}", 100 + number)
        stones.compact()
        assert len((tmp_path / "t").read_text().splitlines()) <= 12
    again = opened(tmp_path / "t", remembered=5)
    for number in range(8):
        assert again.highest(f"{number:012x}") == stones.highest(f"{number:012x}")


@pytest.mark.parametrize("torn", ["aaaaaaaaaaaa 9", "aaaaaaaa", "\0\0\0", "aaaaaaaaaaaa -3\n", "x"])
def test_a_torn_line_spoils_neither_those_before_nor_those_after(tmp_path, torn):
    file = tmp_path / "t"
    file.write_text(f"bbbbbbbbbbbb 6\n{torn}")
    opened(file).write("cccccccccccc", 8)
    again = opened(file)
    assert again.highest("bbbbbbbbbbbb") == 6
    assert again.highest("cccccccccccc") == 8
