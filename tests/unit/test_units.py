from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast import units


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("1gbit", 10**9), ("100Mbit", 10**8), ("2.5gbit", 2_500_000_000), ("100 mbps", 10**8)],
)
def test_rates(text: str, rate_bps: int) -> None:
    assert units.parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize("text", ["100MBps", "1GBps", "800 kBps", "5Bps "])
def test_a_rate_in_bytes_is_refused_with_the_units_of_bits(text: str) -> None:
    with pytest.raises(ValueError, match=r"counts bytes; .* bit, kbit, mbit, gbit"):
        units.parse_rate_bps(text)


@pytest.mark.parametrize(
    ("text", "size"), [("16KB", 16384), ("1600B", 1600), ("128 KiB", 131072), ("1mb", 1 << 20)]
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [("2ms", 2_000_000), ("5us", 5000), ("0.5s", 500_000_000), ("5µs", 5000), ("1h", 3600 * 10**9)],
)
def test_times(text: str, time_ns: int) -> None:
    assert units.parse_time_ns(text) == time_ns


@pytest.mark.parametrize("text", ["", "16", "16 furlongs", "-1ms", "ms", 3, None, True, "1e9bit"])
def test_refusals_name_what_is_allowed(text: object) -> None:
    for parse in (units.parse_rate_bps, units.parse_size_bytes, units.parse_time_ns):
        with pytest.raises(ValueError, match="allowed is"):
            parse(text)


def test_a_fraction_of_the_base_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="whole number"):
        units.parse_time_ns("0.5ns")


@given(st.integers(0, 10**15))
def test_formats_are_read_back(value: int) -> None:
    assert units.parse_rate_bps(units.format_rate(value)) == value
    assert units.parse_size_bytes(units.format_size(value)) == value
    assert units.parse_time_ns(units.format_time(value)) == value


@pytest.mark.parametrize(
    ("rate_bps", "text"),
    [
        (0, "0 bps"),
        (999, "999 bps"),
        (10**9, "1 Gbps"),
        (123_450_000, "123.5 Mbps"),
        (33_333_300, "33.33 Mbps"),
        # A port's oscillator is up to 100 ppm off; what is farther off is told.
        (9_999_200, "10 Mbps"),
        (99_990_000, "99.99 Mbps"),
    ],
)
def test_a_rate_for_people_has_few_digits(rate_bps: int, text: str) -> None:
    assert units.round_rate(rate_bps) == text
