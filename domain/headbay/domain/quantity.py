"""Quantities as people write them, and the integers that are counted with.

CPU becomes milli-CPU, memory bytes, durations and instants milliseconds, money micro-USD. Decimals
are exact: a number that JSON or YAML delivered as a float is read by its shortest spelling
(0.1 is one tenth), never calculated with as a float, and an amount that is no whole number of the
unit is refused rather than rounded.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import ClassVar, Final

from headbay.domain.errors import HeadbayError
from headbay.domain.wording import shown

__all__ = [
    "MAX_CPU_MCPU",
    "MAX_DURATION_MS",
    "MAX_INTEGER",
    "MAX_MEMORY_BYTES",
    "MIN_MEMORY_BYTES",
    "QuantityError",
    "parse_cpu",
    "parse_duration",
    "parse_instant",
    "parse_memory",
    "parse_money",
    "parse_permille",
    "show_cpu",
    "show_duration",
    "show_memory",
]

MAX_INTEGER: Final = 2**53 - 1
"""Largest integer that every JSON reader keeps exact."""

MAX_CPU_MCPU: Final = 100_000 * 1_000
MIN_MEMORY_BYTES: Final = 1 << 20
"""Nothing runs in less; a smaller number is a forgotten unit."""
MAX_MEMORY_BYTES: Final = 1 << 50
MAX_DURATION_MS: Final = 366 * 86_400_000

_DECIMAL: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?")
_MEMORY: Final = re.compile(r"([0-9.]{1,40}) ?([A-Za-z]{0,20})")
_MEMORY_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "Pi": 1 << 50,
}
_DURATION_PART: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ms|s|m|h|d)")
_DURATION_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_INSTANT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class QuantityError(HeadbayError, ValueError):
    """A quantity that means nothing, or nothing sensible.

    Attributes:
        message: What is wrong with it.
        fix: What to write instead.
    """

    code: ClassVar[str] = "BAD_QUANTITY"

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}; {fix}")
        self.message = message
        self.fix = fix


def parse_cpu(value: object) -> int:
    """CPUs as milli-CPU.

    Args:
        value: 2, 0.5, "2", "0.5" or "250m"; 1 m to 100,000 CPUs.

    Raises:
        QuantityError: Not such a quantity, finer than 1 m, or out of bounds.
    """
    fix = 'write CPUs such as 2, 0.5 or "250m"'
    text = _spelling(value)
    milli = isinstance(value, str) and text is not None and text.endswith("m")
    amount = _scaled(text[:-1] if text and milli else text, 1 if milli else 1_000)
    if amount is None:
        raise QuantityError(_misfit(value, "an amount of CPU"), fix)
    if amount.denominator != 1:
        raise QuantityError(f"{shown(value)} is finer than a thousandth of a CPU", fix)
    if amount.value < 1:
        raise QuantityError("no CPU at all", 'write at least "1m" (a thousandth of a CPU)')
    if amount.value > MAX_CPU_MCPU:
        raise QuantityError(
            f"{shown(value)} is more CPU than any node has",
            f"write at most {MAX_CPU_MCPU // 1000}",
        )
    return amount.value


def parse_memory(value: object) -> int:
    """Memory as bytes.

    Args:
        value: Bytes as an integer, or a string with a unit: k M G T P are powers of 1000,
            Ki Mi Gi Ti Pi powers of 1024; 1 MiB to 1 PiB.

    Raises:
        QuantityError: Not such a quantity, a fraction of a byte, or out of bounds.
    """
    fix = "write memory such as 512Mi, 4Gi or 1G"
    if isinstance(value, float):
        raise QuantityError(f"{shown(value)} has no unit", f"write {shown(value)}Gi, for instance")
    match = _MEMORY.fullmatch(_spelling(value) or "")
    if match is None:
        raise QuantityError(_misfit(value, "an amount of memory"), fix)
    number, unit = match.groups()
    if unit not in _MEMORY_UNITS:
        near = _near_unit(unit)
        raise QuantityError(
            f"{shown(unit)} is not a unit of memory",
            f"did you mean {number}{near}?" if near else fix,
        )
    amount = _scaled(number, _MEMORY_UNITS[unit])
    if amount is None:
        raise QuantityError(_misfit(value, "an amount of memory"), fix)
    if amount.denominator != 1:
        raise QuantityError(f"{shown(value)} is no whole number of bytes", fix)
    if amount.value < MIN_MEMORY_BYTES:
        raise QuantityError(
            f"{shown(value)} is only {amount.value} bytes",
            f"did you mean {number}Gi? The least is 1Mi" if amount.value else "the least is 1Mi",
        )
    if amount.value > MAX_MEMORY_BYTES:
        raise QuantityError(f"{shown(value)} is more than any node has", "write at most 1024Ti")
    return amount.value


def parse_duration(value: object, *, least_ms: int = 0, most_ms: int = MAX_DURATION_MS) -> int:
    """A duration as milliseconds.

    Args:
        value: Seconds as a number, or a string of parts in falling order of their units
            d, h, m, s, ms: "30s", "5m", "1h30m", "250ms".
        least_ms: Smallest that is allowed.
        most_ms: Largest that is allowed.

    Raises:
        QuantityError: Not a duration, finer than 1 ms, or out of bounds.
    """
    fix = "write a duration such as 30s, 5m or 1h30m"
    text = _spelling(value)
    whole = _scaled(text, 1_000)
    if whole is None:
        whole = _sum_of_parts(text or "")
    if whole is None:
        raise QuantityError(_misfit(value, "a duration"), fix)
    if whole.denominator != 1:
        raise QuantityError(f"{shown(value)} is finer than a millisecond", fix)
    if whole.value < least_ms:
        raise QuantityError(
            f"{shown(value)} is too short", f"write at least {show_duration(least_ms)}"
        )
    if whole.value > most_ms:
        raise QuantityError(
            f"{shown(value)} is too long", f"write at most {show_duration(most_ms)}"
        )
    return whole.value


def parse_instant(value: object) -> int:
    """An RFC 3339 instant as Unix milliseconds; digits beyond them are cut off.

    Raises:
        QuantityError: Not such an instant, or without an offset.
    """
    fix = "write it as 2030-01-31T18:00:00Z"
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise QuantityError(f"{shown(value)} is not an instant with an offset", fix)
    fields = [int(part) for part in match.groups()[:6]]
    fraction, _, sign, hours, minutes = match.groups()[6:]
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        elapsed = datetime(*fields, tzinfo=zone) - _EPOCH  # type: ignore[arg-type,misc]
    except (ValueError, OverflowError) as error:
        raise QuantityError(f"{shown(value)} does not exist in the calendar", fix) from error
    return elapsed // timedelta(milliseconds=1) + int((fraction or "0").ljust(3, "0")[:3])


def parse_money(value: object) -> int:
    """US dollars as micro-USD: a decimal string, so that no float ever stands for money.

    Raises:
        QuantityError: Not a string of a decimal, finer than a millionth, or above 1,000,000.
    """
    fix = 'write dollars as a quoted decimal such as "2.50"'
    amount = _scaled(value if isinstance(value, str) else None, 10**6)
    if amount is None:
        raise QuantityError(_misfit(value, "an amount of money"), fix)
    if amount.denominator != 1:
        raise QuantityError(f"{shown(value)} is finer than a millionth of a dollar", fix)
    if not 0 < amount.value <= 10**12:
        raise QuantityError(f"{shown(value)} is out of bounds", 'write "0.000001" to "1000000"')
    return amount.value


def parse_permille(value: object, *, least: int, most: int) -> int:
    """A plain factor such as 1.5 as permille.

    Args:
        value: A number or a string of a decimal.
        least: Smallest that is allowed, in permille.
        most: Largest that is allowed, in permille.

    Raises:
        QuantityError: Not such a number, finer than a thousandth, or out of bounds.
    """
    amount = _scaled(_spelling(value), 1_000)
    fix = f"write a number from {show_cpu(least)} to {show_cpu(most)}"
    if amount is None:
        raise QuantityError(_misfit(value, "a factor"), fix)
    if amount.denominator != 1:
        raise QuantityError(f"{shown(value)} is finer than a thousandth", fix)
    if not least <= amount.value <= most:
        raise QuantityError(f"{shown(value)} is out of bounds", fix)
    return amount.value


def show_cpu(mcpu: int) -> str:
    """Milli-CPU as CPUs for people: 1500 is "1.5"."""
    whole, rest = divmod(mcpu, 1_000)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def show_memory(size_bytes: int) -> str:
    """Bytes for people, exact: the largest power of 1024 that divides them."""
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if size_bytes and size_bytes % _MEMORY_UNITS[unit] == 0:
            return f"{size_bytes // _MEMORY_UNITS[unit]}{unit}"
    return str(size_bytes)


def show_duration(duration_ms: int) -> str:
    """Milliseconds for people, exact and readable by `parse_duration`: "1h30m", "250ms"."""
    parts, rest = [], duration_ms
    for unit, size in _DURATION_UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


class _Fraction:
    """A non-negative amount; ``denominator`` is 1 where it is whole and ``value`` is exact."""

    __slots__ = ("denominator", "value")

    def __init__(self, numerator: int, denominator: int) -> None:
        whole, rest = divmod(numerator, denominator)
        self.value = whole
        self.denominator = 1 if rest == 0 else denominator


def _scaled(text: str | None, factor: int) -> _Fraction | None:
    """``text`` times ``factor``; None unless it is a plain decimal."""
    match = _DECIMAL.fullmatch(text) if text is not None else None
    if match is None:
        return None
    whole, fraction = match.group(1), match.group(2) or ""
    return _Fraction(int(whole + fraction) * factor, 10 ** len(fraction))


def _sum_of_parts(text: str) -> _Fraction | None:
    """The sum of "1h30m"-like parts, each unit at most once and in falling order."""
    order, numerator, scale = list(_DURATION_UNITS), 0, 10**18
    position, last = 0, -1
    while position < len(text):
        part = _DURATION_PART.match(text, position)
        if part is None or order.index(part.group(2)) <= last:
            return None
        last, position = order.index(part.group(2)), part.end()
        whole, _, fraction = part.group(1).partition(".")
        thousandths = int(whole + fraction.ljust(18, "0"))
        numerator += thousandths * _DURATION_UNITS[part.group(2)]
    return _Fraction(numerator, scale) if text else None


def _spelling(value: object) -> str | None:
    """The decimal spelling of a number or string; None for anything else.

    A float's shortest repr is what the person wrote; integers beyond any bound are cut off before
    they are spelt, since spelling them costs quadratic time.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else None
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 (NaN)
        return None
    return format(Decimal(repr(value)), "f")


def _near_unit(unit: str) -> str | None:
    """The unit that was probably meant: 4gb and 4GB are 4G, 4gib is 4Gi."""
    bare = unit.lower().removesuffix("ytes").removesuffix("b")
    for known in _MEMORY_UNITS:
        if known and known.lower() == bare:
            return known
    return None


def _misfit(value: object, noun: str) -> str:
    """Why ``value`` is no such quantity."""
    negative = (value < 0) if isinstance(value, int | float) else str(value)[:1] == "-"
    return f"{shown(value)} is negative" if negative else f"{shown(value)} is not {noun}"
