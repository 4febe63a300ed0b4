"""Quantities as people write them (`1gbit`, `16KB`, `2ms`), parsed to integers in base units.

Rates are bits per second in powers of ten, as in tc(8). `mbps` means `mbit` here, because people
write it so, although tc(8) takes it for megabytes. `MBps` is refused, because it can only mean
bytes. A KB is 1024 bytes as in tc(8), because the papers count switch buffers so (16 KB = 16384).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*")

_BYTES_PER_SECOND = re.compile(r"Bps\s*$")

MOST_SPAN_NS = 1 << 60
"""36 years, the longest span of time. The sum of a time and a span still fits into 64 bits."""

RATE_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
RATE_ALIASES = {"bps": "bit", "kbps": "kbit", "mbps": "mbit", "gbps": "gbit"}
SIZE_UNITS = {
    "b": 1,
    "kb": 1024,
    "kib": 1024,
    "mb": 1024**2,
    "mib": 1024**2,
    "gb": 1024**3,
    "gib": 1024**3,
}
TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
TIME_ALIASES = {"µs": "us"}


def _parse(
    text: object, what: str, example: str, units: Mapping[str, int], aliases: Mapping[str, str]
) -> int:
    names = ", ".join(units)
    refusal = f"{text!r} is not a {what}; allowed is a number with a unit of {names}, as {example}"
    if not isinstance(text, str):
        raise ValueError(refusal)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(refusal)
    unit = aliases.get(match[2].lower(), match[2].lower())
    if unit not in units:
        raise ValueError(refusal)
    value = Fraction(match[1]) * units[unit]
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of {next(iter(units))}")
    return int(value)


def parse_rate_bps(text: object) -> int:
    """Parses a rate to bits per second. Raises ValueError, which says what is allowed."""
    if isinstance(text, str) and _BYTES_PER_SECOND.search(text):
        raise ValueError(
            f"{text!r} counts bytes; allowed is a number of bits with a unit of "
            f"{', '.join(RATE_UNITS)}, as 100mbit"
        )
    return _parse(text, "rate", "100mbit", RATE_UNITS, RATE_ALIASES)


def parse_size_bytes(text: object) -> int:
    """Parses a size to bytes. Raises ValueError, which says what is allowed."""
    return _parse(text, "size", "16KB", SIZE_UNITS, {"bytes": "b", "byte": "b"})


def parse_time_ns(text: object) -> int:
    """Parses a time to nanoseconds. Raises ValueError, which says what is allowed."""
    return _parse(text, "time", "2ms", TIME_UNITS, TIME_ALIASES)


def _format(value: int, units: dict[str, int]) -> str:
    for name, factor in sorted(units.items(), key=lambda item: -item[1]):
        if value and value % factor == 0:
            return f"{value // factor}{name}"
    return f"{value}{next(iter(units))}"


def format_rate(rate_bps: int) -> str:
    """The shortest exact text of a rate; `parse_rate_bps` reads it back."""
    return _format(rate_bps, RATE_UNITS)


def round_rate(rate_bps: float) -> str:
    """A rate for people, as `50 Mbps`, to 0.01 % (as oscillators differ) or to four digits."""
    sizes = (("Gbps", 10**9), ("Mbps", 10**6), ("kbps", 10**3), ("bps", 1))
    unit, factor = next((size for size in sizes if rate_bps >= 0.9999 * size[1]), sizes[-1])
    shorter = (float(f"{rate_bps:.{digits}g}") for digits in range(1, 4))
    told = next((short for short in shorter if abs(short - rate_bps) <= 1e-4 * rate_bps), rate_bps)
    return f"{told / factor:.4g} {unit}"


def format_bps(rate_bps: float) -> str:
    for unit, factor in (("Gbps", 1e9), ("Mbps", 1e6), ("kbps", 1e3)):
        if abs(rate_bps) >= factor:
            return f"{rate_bps / factor:.{_decimals(rate_bps / factor)}f} {unit}"
    return f"{rate_bps:.0f} bps"


def _decimals(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


def round_time(time_ns: float) -> str:
    """A time with four digits, as `1.234ms`, for people to read."""
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if time_ns >= 0.9999 * factor:
            return f"{time_ns / factor:.4g}{unit}"
    return f"{time_ns:.4g}ns" if time_ns else "0s"


def format_size(size_bytes: int) -> str:
    """The shortest exact text of a size; `parse_size_bytes` reads it back."""
    return _format(size_bytes, {"B": 1, "KB": 1024, "MB": 1024**2})


def format_time(time_ns: int) -> str:
    """The shortest exact text of a time; `parse_time_ns` reads it back."""
    return _format(time_ns, {name: TIME_UNITS[name] for name in ("ns", "us", "ms", "s")})


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
