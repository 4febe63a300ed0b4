"""Files of traces: CSV of times and rates, and mahimahi's times of packets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from outcast import handed_in, units
from outcast.errors import InputError
from outcast.experiment.parts import LEAST_RATE_BPS, MOST_RATE_BPS

MOST_BYTES = 32 << 20
_MS_NS = 10**6
_TIMES_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_RATES_BPS = {
    f"{prefix}{unit}": factor
    for prefix, factor in {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}.items()
    for unit in ("bps", "bit")
}
_COLUMNS = (
    "allowed is a header as time_ms,rate_mbps (s, ms, us, ns; bps, kbps, mbps, gbps), or time,rate "
    "with units in the rows"
)


@dataclass(frozen=True, slots=True)
class Trace:
    """The rate of a link in steps, before it is repeated.

    Attributes:
        t_ns: from when each rate holds. The first is 0; the times ascend.
        period_ns: when it begins again; None if the last rate goes on for ever.
    """

    t_ns: tuple[int, ...]
    rate_bps: tuple[Fraction, ...]
    period_ns: int | None


def read(path: Path, frame_bits: int, *, repeat: bool) -> Trace:
    """A trace from its file.

    Args:
        path: the file.
        frame_bits: what a delivery of a mahimahi trace takes on the link.
        repeat: whether a CSV begins again at its last row's time, whose rate then does not count.

    Raises ValueError: the file cannot be read, or is no trace.
    """
    try:
        text = handed_in.read_text(path, MOST_BYTES)
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file") from None
    except InputError as error:
        raise ValueError(str(error)) from None
    try:
        return parse(text, frame_bits, repeat=repeat)
    except _LineError as error:
        raise ValueError(f"{path}:{error.line}: {error}") from None


class _LineError(ValueError):
    """What is wrong with a line of a trace."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def parse(text: str, frame_bits: int, *, repeat: bool) -> Trace:
    """A trace from its text; see `read`. Raises ValueError with the attribute `line`."""
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise _LineError(1, "is empty; allowed is a CSV of times and rates, or a mahimahi trace")
    if "," in lines[0][1]:
        return _csv(lines, repeat)
    return _deliveries(lines, frame_bits)


def _csv(lines: Sequence[tuple[int, str]], repeat: bool) -> Trace:
    (first, header), *rows = lines
    time_unit, rate_unit = _units(first, header)
    if len(rows) < 1 + repeat:
        raise _LineError(first, f"has {len(rows)} rows; allowed are {1 + repeat} or more")
    t_ns: list[int] = []
    rate_bps: list[Fraction] = []
    for number, row in rows:
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) != 2:
            raise _LineError(number, f"has {len(cells)} columns; allowed are a time and a rate")
        time_ns, rate = _time_ns(number, cells[0], time_unit), _rate(number, cells[1], rate_unit)
        if not t_ns and time_ns:
            raise _LineError(number, f"time {cells[0]}: allowed is 0 in the first row")
        if t_ns and time_ns <= t_ns[-1]:
            raise _LineError(number, f"time {cells[0]}: allowed is one after the row before's")
        t_ns.append(time_ns)
        rate_bps.append(rate)
    if not repeat:
        return Trace(tuple(t_ns), tuple(rate_bps), None)
    return Trace(tuple(t_ns[:-1]), tuple(rate_bps[:-1]), t_ns[-1])


def _units(number: int, header: str) -> tuple[str, str]:
    """The units of both columns; empty where each value has its own."""
    names = [name.strip().lower() for name in header.split(",")]
    if len(names) != 2:
        raise _LineError(number, f"has {len(names)} columns; {_COLUMNS}")
    (time, _, time_unit), (rate, _, rate_unit) = (name.partition("_") for name in names)
    if (
        (time, rate) != ("time", "rate")
        or time_unit not in ("", *_TIMES_NS)
        or rate_unit not in ("", *_RATES_BPS)
    ):
        raise _LineError(number, f"{header[:60]!r} names no time and rate; {_COLUMNS}")
    return time_unit, rate_unit


def _time_ns(number: int, cell: str, unit: str) -> int:
    try:
        if not unit:
            return units.parse_time_ns(cell)
        time_ns = _number(cell) * _TIMES_NS[unit]
    except ValueError:
        raise _LineError(number, f"{cell[:40]!r} is not a time") from None
    if time_ns > units.parse_time_ns("24h"):
        raise _LineError(number, f"time {cell[:40]}: allowed is up to 24h")
    return int(time_ns)


def _rate(number: int, cell: str, unit: str) -> Fraction:
    try:
        rate_bps = _number(cell) * _RATES_BPS[unit] if unit else _worded(cell)
    except ValueError:
        raise _LineError(number, f"{cell[:40]!r} is not a rate") from None
    if rate_bps and not LEAST_RATE_BPS <= rate_bps <= MOST_RATE_BPS:
        raise _LineError(
            number,
            f"rate {cell[:40]}: allowed are 0 and {units.format_rate(LEAST_RATE_BPS)} to "
            f"{units.format_rate(MOST_RATE_BPS)}",
        )
    return rate_bps


def _number(cell: str) -> Fraction:
    """A number of digits with a decimal point. Raises ValueError."""
    whole, _, part = cell.partition(".")
    if len(cell) > 30 or not (whole + part).isascii() or not (whole + part).isdigit():
        raise ValueError
    return Fraction(int(whole + part), 10 ** len(part))


def _worded(cell: str) -> Fraction:
    if cell.strip("0.") == "":
        return Fraction(0)
    return Fraction(units.parse_rate_bps(cell))


def _deliveries(lines: Sequence[tuple[int, str]], frame_bits: int) -> Trace:
    """A trace from mahimahi's format.

    A packet that can be delivered at t milliseconds leaves in the millisecond before.
    """
    last = 0
    counts: dict[int, int] = {}
    for number, line in lines:
        if len(line) > 10 or not line.isascii() or not line.isdigit():
            raise _LineError(
                number,
                f"{line[:40]!r} is not a whole number of milliseconds (mahimahi), and the "
                "first line is no header of a CSV",
            )
        time_ms = int(line)
        if time_ms < last:
            raise _LineError(number, f"{line} ms after {last} ms; allowed are ascending times")
        last = time_ms
        place = max(0, time_ms - 1)
        counts[place] = counts.get(place, 0) + 1
    if not last:
        raise _LineError(lines[-1][0], "the last time is 0; allowed is that at which it repeats")
    t_ns: list[int] = []
    rate_bps: list[Fraction] = []
    end_ms = 0
    for place, count in counts.items():
        if place > end_ms:
            t_ns.append(end_ms * _MS_NS)
            rate_bps.append(Fraction(0))
        t_ns.append(place * _MS_NS)
        rate_bps.append(Fraction(count * frame_bits * 1000))
        end_ms = place + 1
    return Trace(tuple(t_ns), tuple(rate_bps), last * _MS_NS)
