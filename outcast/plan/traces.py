"""Rate traces: a file that says at which rate a link sends at which time.

Two formats are read. The first line shows which it is:

* CSV, with a header that names a column of times and one of rates with their units, as
  `time_ms,rate_mbps`. With the header `time,rate` each value has its own unit, as `20ms,5mbit`.
* mahimahi's (mm-link(1)): a whole number of milliseconds a line, at which the link can deliver one
  packet of 1500 bytes. After its last line it begins again.

The file may come from anybody, so whatever is wrong with it is one line with its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from outcast import units
from outcast.errors import refusals_at
from outcast.experiment import MTU_FRAME_BYTES, Experiment
from outcast.experiment.parts import LEAST_RATE_BPS, MOST_RATE_BPS
from outcast.experiment.rate import RateTrace
from outcast.plan.trace_files import Trace, read

MOST_STEPS = 200_000
"""The most changes of one link's rate in a run."""
_ALMOST_NS = 1000
"""A part of a frame that takes no longer counts as none."""
_EARLY_NS = 3000
"""So much before a frame begins its rate is set, because a change takes some time."""


_MOST_FRAME_BITS = 8 * 1_800
"""More than a full frame with all that a link may add to it (experiment/links.py)."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The rates that a link gets in a run.

    Attributes:
        t_ns: from when each rate holds, after the traffic's start. The first is 0.
        rate_bps: the rates, in whole bytes a second.
        trace: what they are made of.
    """

    t_ns: tuple[int, ...]
    rate_bps: tuple[int, ...]
    mean_bps: int
    trace: Trace


@dataclass(frozen=True, slots=True)
class LinkTrace:
    """What a trace does to a link in a run.

    Attributes:
        directions: the directions of the link that have these rates.
        rate_bps: the rates. The last one is the mean, from the end of the duration on, because
            senders have to hand over what they hold at whatever rate the trace ends with.
    """

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


def read_all(experiment: Experiment) -> dict[int, Steps]:
    """The steps of every trace of `links.overrides`, by the override's number.

    Raises ConfigError: a file cannot be read, is no trace, or does not fit the duration.
    """
    framing = experiment.links.everywhere.framing
    frame_bits = 8 * framing.wire_bytes(MTU_FRAME_BYTES)
    by_override = {}
    for number, override in enumerate(experiment.links.overrides):
        if not isinstance(override.rate_bps, RateTrace):
            continue
        path = override.rate_bps.trace
        with refusals_at(f"links.overrides.{number}.rate.trace"):
            trace = read(path, frame_bits, repeat=override.rate_bps.repeat)
            by_override[number] = _steps_of(path, trace, experiment.duration_ns, frame_bits)
    return by_override


def _steps_of(path: Path, trace: Trace, duration_ns: int, frame_bits: int) -> Steps:
    """As `steps`, but the text of its ValueError begins with the file."""
    try:
        return steps(trace, duration_ns, frame_bits)
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None


def of_links(
    experiment: Experiment,
    by_override: Mapping[int, Steps],
    wire_bytes: Mapping[tuple[str, str], int],
) -> tuple[LinkTrace, ...]:
    """What the traces that `read_all` has read do to the links of the experiment.

    `wire_bytes` is how much the full frames that are sent take, by direction of a link.

    Raises ConfigError: a trace has too many steps for these frames.
    """
    duration_ns = experiment.duration_ns
    found = []
    for number, override in enumerate(experiment.links.overrides):
        if not isinstance(override.rate_bps, RateTrace):
            continue
        file = override.rate_bps.trace
        trace, mean_bps = by_override[number].trace, by_override[number].mean_bps
        alike: dict[int, list[tuple[str, str]]] = {}
        for end in override.directions:
            alike.setdefault(8 * wire_bytes[end], []).append(end)
        for frame_bits, ends in alike.items():
            with refusals_at(f"links.overrides.{number}.rate.trace"):
                made = _steps_of(file, trace, duration_ns, frame_bits)
            t_ns, rate_bps = (*made.t_ns, duration_ns), (*made.rate_bps, mean_bps)
            found.append(LinkTrace(file.name, tuple(ends), t_ns, rate_bps))
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
    return Steps(tuple(t_ns), tuple(rates), _kept(Fraction(carried) / duration_ns), trace)


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
