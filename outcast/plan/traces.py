"""Rate traces: a file that says at which rate a link sends at which time.

Two formats are read. The first line shows which it is:

* CSV, with a header that names a column of times and one of rates with their units, as
  `time_ms,rate_mbps`. With the header `time,rate` each value has its own unit, as `20ms,5mbit`.
* mahimahi's (mm-link(1)): a whole number of milliseconds a line, at which the link can deliver one
  packet of 1500 bytes. After its last line it begins again.

The file may come from anybody, so whatever is wrong with it is one line with its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from outcast import handed_in, units
from outcast.errors import InputError, refusals_at
from outcast.experiment import MTU_FRAME_BYTES, Experiment
from outcast.experiment.links import RateTrace
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
    if not re.fullmatch(r"[0-9.]{1,30}", cell):
        raise ValueError
    return Fraction(cell)


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


MOST_STEPS = 200_000
"""The most changes of one link's rate in a run."""
_ALMOST_NS = 1000
"""A part of a frame that takes no longer counts as none."""
_EARLY_NS = 3000
"""So much before a frame begins its rate is set, because a change takes some time."""


_MOST_FRAME_BITS = 8 * 1_800
"""More than a full frame with all that a link may add to it (experiment/links.py)."""


Steps = tuple[tuple[int, ...], tuple[int, ...]]
"""From when each rate of a link holds, in ns after the traffic's start, and the rates in bit/s.

The first time is 0. The last rate is the mean, from the end of the duration on, because senders
have to hand over what they hold at whatever rate the trace ends with."""


@dataclass(frozen=True, slots=True)
class LinkTrace:
    """What a trace does to directions of a link in a run; times and rates are as in Steps."""

    file: str
    directions: tuple[tuple[str, str], ...]
    t_ns: tuple[int, ...]
    rate_bps: tuple[int, ...]


def lasting_bps(t_ns: Sequence[int], rate_bps: Sequence[int]) -> list[int]:
    """The rates that hold for more than a full frame, and the last one.

    The others are of no file: a frame during which a trace changes has a rate of its own.
    """
    ends = zip(pairwise(t_ns), rate_bps, strict=False)
    found = [rate for (begin, end), rate in ends if rate * (end - begin) > _MOST_FRAME_BITS * 10**9]
    return [*found, *rate_bps[-1:]]


def read_all(experiment: Experiment) -> dict[int, Trace]:
    """The traces of `links.overrides`, by the override's number.

    Raises ConfigError: a file cannot be read, or is no trace.
    """
    found = {}
    for number, override in enumerate(experiment.links.overrides):
        if isinstance(override.rate_bps, RateTrace):
            with refusals_at(f"links.overrides.{number}.rate.trace"):
                file, repeat = override.rate_bps.trace, override.rate_bps.repeat
                found[number] = read(file, _usual_frame_bits(experiment), repeat=repeat)
    return found


def _usual_frame_bits(experiment: Experiment) -> int:
    return 8 * experiment.links.everywhere.framing.wire_bytes(MTU_FRAME_BYTES)


def steps_of(
    experiment: Experiment, number: int, trace: Trace, frame_bits: int | None = None
) -> Steps:
    """The steps of an override's trace for frames of this size, or of the usual one.

    Raises ConfigError: the trace does not fit the duration.
    """
    override = experiment.links.overrides[number]
    assert isinstance(override.rate_bps, RateTrace)
    with refusals_at(f"links.overrides.{number}.rate.trace: {override.rate_bps.trace}"):
        return steps(trace, experiment.duration_ns, frame_bits or _usual_frame_bits(experiment))


def of_links(
    experiment: Experiment,
    by_override: Mapping[int, Trace],
    wire_bytes: Mapping[tuple[str, str], int],
) -> tuple[LinkTrace, ...]:
    """What the traces that `read_all` has read do to the links of the experiment.

    `wire_bytes` is how much the full frames that are sent take, by direction of a link.

    Raises ConfigError: a trace has too many steps for these frames.
    """
    found = []
    for number, trace in by_override.items():
        override = experiment.links.overrides[number]
        assert isinstance(override.rate_bps, RateTrace)
        alike: dict[int, list[tuple[str, str]]] = {}
        for end in override.directions:
            alike.setdefault(8 * wire_bytes[end], []).append(end)
        for frame_bits, ends in alike.items():
            made = steps_of(experiment, number, trace, frame_bits)
            found.append(LinkTrace(override.rate_bps.trace.name, tuple(ends), *made))
    return tuple(found)


def steps(trace: Trace, duration_ns: int, frame_bits: int) -> Steps:
    """The steps of a trace within a duration.

    The shaper gives a frame the rate at which it begins, also where that changes before its end. So
    each step here holds whole frames of `frame_bits` of a queue that is never empty. A frame during
    which the trace changes has a step of its own, in which it takes as long as the trace says.

    Raises ValueError: the trace has too many steps for this duration, or never a rate above 0.
    """
    wanted: list[tuple[int, Fraction]] = []
    for time_ns, rate_bps in _repeated(trace, duration_ns):
        if not wanted or wanted[-1][1] != rate_bps:
            wanted.append((time_ns, rate_bps))
        if len(wanted) > MOST_STEPS:
            raise _too_many(duration_ns)
    if not any(rate for _, rate in wanted):
        raise ValueError("has no rate above 0 within the duration")
    spans = [
        (begin, end, rate)
        for (begin, rate), (end, _) in pairwise([*wanted, (duration_ns, Fraction(0))])
    ]
    t_ns: list[int] = []
    rates: list[int] = []
    for begin, rate_bps in _of_whole_frames(spans, frame_bits):
        kept_bps = _kept(rate_bps)
        if rates and rates[-1] == kept_bps:
            continue
        frame_ns = frame_bits * 10**9 // rates[-1] if rates else 0
        early_ns = min(_EARLY_NS, frame_ns // 2)
        t_ns.append(max(int(begin) - early_ns, t_ns[-1] + 1) if t_ns else 0)
        rates.append(kept_bps)
        if len(rates) > MOST_STEPS:
            raise _too_many(duration_ns)
    carried = sum(rate * (end - begin) for begin, end, rate in spans)
    return (*t_ns, duration_ns), (*rates, _kept(Fraction(carried) / duration_ns))


def _too_many(duration_ns: int) -> ValueError:
    return ValueError(
        f"has more than {MOST_STEPS} steps within {units.format_time(duration_ns)}; "
        "allowed are longer steps, or a shorter duration"
    )


def _of_whole_frames(
    spans: Iterable[tuple[int, int, Fraction]], frame_bits: int
) -> Iterator[tuple[Fraction, Fraction]]:
    """From when each rate holds, and the rate in bit/s; the spans have theirs (see `steps`).

    Times are those of the rates that the kernel keeps, so that rounding does not add up.
    """
    at, unsent_bits = Fraction(0), Fraction(0)
    for begin, end, rate_bps in spans:
        after, whole = Fraction(begin), 0
        if unsent_bits:
            if (most := rate_bps * (end - begin) / 10**9) < unsent_bits:
                unsent_bits -= most
                continue
            # The frame that began before ends in this span.
            after += unsent_bits * 10**9 / rate_bps
            own_bps = _kept(frame_bits * 10**9 / (after - at))
            yield at, Fraction(own_bps)
            # The kernel's least rate may send it long before the trace does.
            soonest = after - _ALMOST_NS
            at, unsent_bits = max(at + Fraction(frame_bits * 10**9, own_bps), soonest), Fraction(0)
        frames = rate_bps * (end - at) / 10**9 / frame_bits
        almost = min(Fraction(1, 1000), rate_bps * _ALMOST_NS / 10**9 / frame_bits)
        whole = int(frames + almost)
        if whole > 0:
            yield at, rate_bps
            at += Fraction(whole * frame_bits * 10**9, _kept(rate_bps))
        if frames - whole > almost or (not rate_bps and at < end):
            unsent_bits = frame_bits * (1 - (frames - whole))
    if unsent_bits and not whole:
        # The last rate goes on.
        until = end + unsent_bits * 10**9 / rate_bps if rate_bps else Fraction(end)
        yield at, Fraction(frame_bits * 10**9) / max(Fraction(1), until - at)


def _repeated(trace: Trace, duration_ns: int) -> Iterator[tuple[int, Fraction]]:
    offset_ns = 0
    while True:
        for time_ns, rate_bps in zip(trace.t_ns, trace.rate_bps, strict=True):
            if offset_ns + time_ns >= duration_ns:
                return
            yield offset_ns + time_ns, rate_bps
        if trace.period_ns is None:
            return
        offset_ns += trace.period_ns


def _kept(rate_bps: Fraction) -> int:
    """A rate in whole bytes a second, as the kernel keeps it, and within its bounds."""
    size = round(rate_bps / 8)
    return max(-(-LEAST_RATE_BPS // 8), min(MOST_RATE_BPS // 8, int(size))) * 8
