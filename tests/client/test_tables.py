"""What eyes get: tables, quantities, clean text."""

import pytest

from headbay.client.cli.console import clean
from headbay.client.cli.logtext import Prefixer
from headbay.client.cli.progress import fit
from headbay.client.cli.tables import amounts, duration, render, size
from headbay.client.logs import LogPiece
from headbay.domain.status import StepStatus


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, ""),
        (0, "0.0 s"),
        (1_490, "1.4 s"),
        (12_900, "12 s"),
        (185_000, "3m05s"),
        (7_620_000, "2h07m"),
        (273_600_000, "3d04h"),
        (-5, "0.0 s"),
    ],
)
def test_durations_are_short(milliseconds, text):
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(None, ""), (0, "0 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_are_short(number, text):
    assert size(number) == text


def test_amounts_show_what_is_held_of_what_there_is():
    assert amounts({"cpu": 1500}, {"cpu": 8000, "memory": 1 << 30}) == (
        "cpu 1.5/8, memory 0 B/1.0 GiB"
    )


def test_columns_are_aligned_and_nothing_is_cut():
    long = "x" * 300
    lines = render(("A", "B"), [[long, "1"], ["y", "2"]])
    assert lines == ["A".ljust(300) + "  B", long + "  1", "y".ljust(300) + "  2"]


def test_control_characters_never_reach_the_terminal():
    lines = render(("A",), [["\x1b[2Jgone\r\x07\x9b31m"]])
    assert "\x1b" not in lines[1]
    assert "\x9b" not in clean("\x9b31m")
    assert clean("two\nlines\tkept") == "two\nlines\tkept"


def steps(**states):
    return [StepStatus(name=name, base=name, state=state) for name, state in states.items()]


def test_what_fits_is_shown_in_the_documents_order():
    all_ = steps(a="PENDING", b="RUNNING")
    assert fit(all_, 5) == (all_, {})


def test_what_one_looks_for_is_shown_first_and_the_rest_is_counted():
    all_ = steps(a="SUCCEEDED", b="SUCCEEDED", c="RUNNING", d="PENDING", e="FAILED")
    shown, hidden = fit(all_, 3)
    assert [s.name for s in shown] == ["c", "e"]
    assert hidden == {"SUCCEEDED": 2, "PENDING": 1}


def test_lines_of_several_steps_are_never_mixed():
    prefixer = Prefixer()
    shown = prefixer.lines(LogPiece("a", 1, b"one\nhal"))
    shown += prefixer.lines(LogPiece("b", 2, b"other\n"))
    shown += prefixer.lines(LogPiece("a", 1, b"f\n\xff"))
    shown += prefixer.rest()
    assert shown == "a | one\nb#2 | other\na | half\na | \N{REPLACEMENT CHARACTER}\n"
