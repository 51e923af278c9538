"""Quantities: exact, bounded, and refused with what to write instead."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headbay.domain import quantity
from headbay.domain.quantity import (
    QuantityError,
    parse_cpu,
    parse_duration,
    parse_instant,
    parse_memory,
    parse_money,
    parse_permille,
    show_cpu,
    show_duration,
    show_memory,
)


@pytest.mark.parametrize(
    ("written", "mcpu"),
    [
        (2, 2000),
        ("2", 2000),
        (0.5, 500),
        ("0.5", 500),
        ("250m", 250),
        (0.1, 100),
        (0.001, 1),
        ("1m", 1),
        (1.1, 1100),
        (100_000, 100_000_000),
    ],
)
def test_cpu_becomes_milli_cpu(written, mcpu):
    assert parse_cpu(written) == mcpu


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (0, "no CPU at all"),
        ("0m", "no CPU at all"),
        (-1, "-1 is negative"),
        ("-1", "'-1' is negative"),
        ("0.0001", "finer than a thousandth"),
        ("0.5m", "finer than a thousandth"),
        (100_001, "more CPU than any node has"),
        (2**53 + 1, "more CPU than any node has"),
        pytest.param(10**5000, "a number of over 18 digits", id="huge"),
        (True, "true is not an amount of CPU"),
        (None, "null is not"),
        ([2], "a list is not"),
        (float("nan"), "nan is not"),
        (float("inf"), "inf is not"),
        ("2 cores", "'2 cores' is not"),
        ("", "'' is not"),
        ("m", "'m' is not"),
        ("1e3", "'1e3' is not"),
        ("٢", "is not an amount of CPU"),
    ],
)
def test_cpu_is_refused(written, message):
    with pytest.raises(QuantityError) as caught:
        parse_cpu(written)
    assert message in caught.value.message
    assert caught.value.fix.startswith("write ")


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("4Gi", 4 << 30),
        ("512Mi", 512 << 20),
        ("1G", 10**9),
        ("1.5Gi", 3 << 29),
        ("2048k", 2_048_000),
        (1 << 30, 1 << 30),
        ("1073741824", 1 << 30),
        ("1Mi", 1 << 20),
        ("1024Ti", 1 << 50),
    ],
)
def test_memory_becomes_bytes(written, size):
    assert parse_memory(written) == size


@pytest.mark.parametrize(
    ("written", "message", "fix"),
    [
        ("4GB", "'GB' is not a unit", "did you mean 4G?"),
        ("4gib", "'gib' is not a unit", "did you mean 4Gi?"),
        ("512m", "'m' is not a unit", "did you mean 512M?"),
        ("4 potatoes", "'potatoes' is not a unit", "write memory such as"),
        (4, "only 4 bytes", "did you mean 4Gi?"),
        (0, "only 0 bytes", "the least is 1Mi"),
        (1.5, "1.5 has no unit", "write 1.5Gi"),
        ("-4Gi", "'-4Gi' is negative", "write memory such as"),
        ("0.3k", "only 300 bytes", "did you mean 0.3Gi?"),
        ("1048576.5", "no whole number of bytes", "write memory such as"),
        ("1025Ti", "more than any node has", "at most 1024Ti"),
        (10**30, "a number of over 18 digits", "write memory such as"),
        ("1e9", "'1e9' is not", "write memory such as"),
        (False, "false is not", "write memory such as"),
        pytest.param("9" * 5000 + "Gi", "is not an amount", "write memory such as", id="long"),
    ],
)
def test_memory_is_refused(written, message, fix):
    with pytest.raises(QuantityError) as caught:
        parse_memory(written)
    assert message in caught.value.message
    assert fix in caught.value.fix
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("1d", 86_400_000),
        ("1.5h", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        (90, 90_000),
        ("90", 90_000),
        (1.5, 1500),
        (0, 0),
    ],
)
def test_durations_become_milliseconds(written, ms):
    assert parse_duration(written) == ms


@pytest.mark.parametrize(
    "written",
    ["", "5 minutes", "1m1h", "1h1h", "PT5M", "-5s", -1, True, None, "0.1ms", "1e3s", "h", "s5"],
)
def test_durations_are_refused(written):
    with pytest.raises(QuantityError, match="write a duration such as 30s, 5m or 1h30m"):
        parse_duration(written)


def test_durations_have_bounds():
    assert parse_duration("5s", least_ms=5_000, most_ms=6_000) == 5_000
    assert parse_duration(6, least_ms=5_000, most_ms=6_000) == 6_000
    with pytest.raises(QuantityError, match="too short; write at least 5s"):
        parse_duration("4999ms", least_ms=5_000)
    with pytest.raises(QuantityError, match="too long; write at most 6s"):
        parse_duration("6001ms", most_ms=6_000)
    with pytest.raises(QuantityError, match="too long; write at most 366d"):
        parse_duration("367d")


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2030-01-31T18:00:00+02:00", 1_896_105_600_000),
        ("2030-01-31t18:00:00.1239z", 1_896_112_800_123),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_instants_become_unix_milliseconds(written, ms):
    assert parse_instant(written) == ms


@pytest.mark.parametrize(
    "written",
    [
        "2030-01-31",
        "2030-01-31T18:00:00",
        "2030-02-30T18:00:00Z",
        "2030-01-31T25:00:00Z",
        "2030-01-31T18:00:00+99:00",
        "0000-01-01T00:00:00Z",
        1_896_112_800,
        None,
    ],
)
def test_instants_are_refused(written):
    with pytest.raises(QuantityError, match="write it as 2030-01-31T18:00:00Z"):
        parse_instant(written)


def test_money_is_a_decimal_string():
    assert parse_money("2.50") == 2_500_000
    assert parse_money("0.000001") == 1
    assert parse_money("1000000") == 10**12
    for wrong in (2.5, 2, "0", "-1", "0.0000001", "1000000.000001", "$2", None):
        with pytest.raises(QuantityError):
            parse_money(wrong)


def test_factors_become_permille():
    assert parse_permille(1.5, least=1000, most=2000) == 1500
    assert parse_permille("2", least=1000, most=2000) == 2000
    for wrong in (0.999, 2.001, 1.0001, "x", True):
        with pytest.raises(QuantityError, match="write a number from 1 to 2"):
            parse_permille(wrong, least=1000, most=2000)


@given(st.integers(1, 100_000_000))
def test_cpu_survives_being_shown(mcpu):
    assert parse_cpu(show_cpu(mcpu)) == mcpu
    assert parse_cpu(float(show_cpu(mcpu))) == mcpu
    assert Decimal(show_cpu(mcpu)) * 1000 == mcpu


@given(st.integers(1 << 20, 1 << 50))
def test_memory_survives_being_shown(size_bytes):
    assert parse_memory(show_memory(size_bytes)) == size_bytes


@given(st.integers(0, quantity.MAX_DURATION_MS))
def test_durations_survive_being_shown(duration_ms):
    assert parse_duration(show_duration(duration_ms)) == duration_ms


@given(
    st.sampled_from([parse_cpu, parse_memory, parse_duration, parse_instant, parse_money]),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.from_regex(r"\A-?[0-9.]{1,25}[a-zA-Z]{0,3}\Z"),
)
def test_anything_is_parsed_to_an_integer_or_refused(parse, written):
    try:
        answer = parse(written)
    except QuantityError as error:
        answer = (error.message, error.fix)
    assert isinstance(answer, int) or all(answer)
