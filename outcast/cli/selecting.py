"""The options that select packets, and the times that people write in them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from outcast.cli import shared
from outcast.errors import ConfigError
from outcast.units import parse_time_ns

if TYPE_CHECKING:
    from outcast.analysis.selection import Selection, Span

_FILTERS = (
    shared.option("--port PORT", "Only packets that came in or left by this port."),
    shared.option("--flow FLOW", "Only this flow: its number, or source ADDRESS:PORT."),
    shared.option("--dst DST", "Only packets to this ADDRESS, ADDRESS:PORT or host of a run."),
    shared.option(
        "--verdict",
        "Only packets with this verdict.",
        type=shared.Choice(["forwarded", "dropped", "unknown"]),
    ),
    shared.option(
        "--between FROM TO",
        "Only packets that came in between these times, as 10ms 12.5ms or 03:54:45 03:55:00.",
        nargs=2,
    ),
    shared.option(
        "--around TIME", "Only packets that came in around this time: 1.2ms, or 0.0012 in seconds."
    ),
    shared.option(
        "--blackout N",
        "Only packets around a blackout: its row in blackouts.parquet, from 0.",
        type=int,
    ),
    shared.option(
        "--within TIME", "How far before and after --around or --blackout [default: 1ms]."
    ),
)


_ON_CLOCK = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d)[T ])?(?P<time>\d\d:\d\d(?::\d\d)?)"
    r"(?:\.(?P<fraction>\d{1,9}))?"
)

_MOST_NS = 10**18
"""30 years. The sum with a time of day still fits into 64 bits."""


def _selected(
    port: str | None,
    flow: str | None,
    dst: str | None,
    verdict: str | None,
    between: tuple[str, str] | None,
    around: str | None,
    blackout: int | None,
    within: str | None,
) -> Selection:
    from outcast.analysis.selection import AROUND_BLACKOUT_NS, Selection, Span

    spans = {"--between": between, "--around": around, "--blackout": blackout}
    given = [name for name, value in spans.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0]}: not together with {given[1]}")
    if within is not None and given not in (["--around"], ["--blackout"]):
        raise ConfigError("--within: only together with --around or --blackout")
    within_ns = AROUND_BLACKOUT_NS
    if within is not None:
        within_ns = shared.parsed("--within", within, parse_time_ns)
    if within_ns > _MOST_NS:
        raise ConfigError(f"--within {within}: allowed is at most {_MOST_NS // 10**9}s")
    span = None if between is None else span_between(between)
    if around is not None:
        middle_ns, clock = _instant(around, "--around")
        span = Span(middle_ns - within_ns, middle_ns + within_ns, f"--around {around}", clock)
    return Selection(port, flow, dst, verdict, span, blackout, within_ns)


selection = shared.gathered("selection", _selected, *_FILTERS)
"""Gives a verb the filters of packets as one argument, `selection`."""


def _instant(text: str, option: str) -> tuple[int, Literal["traffic", "day", "epoch"]]:
    """Parses a time of the run, or one on the clock, in nanoseconds. Raises ConfigError."""
    match = _ON_CLOCK.fullmatch(text.strip())
    if match is None:
        return instant_ns(text, option, ", or on the clock, as 03:54:45.5"), "traffic"
    try:
        at = datetime.fromisoformat(f"{match['date'] or '1970-01-01'} {match['time']}")
        fraction_ns = int((match["fraction"] or "").ljust(9, "0"))
        if match["date"]:
            return int(at.timestamp()) * 10**9 + fraction_ns, "epoch"
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{option} {text}: no time of day; allowed are 00:00:00 to 23:59:59, also behind a "
            "date as 2026-03-31T"
        ) from None
    return (at.hour * 3600 + at.minute * 60 + at.second) * 10**9 + fraction_ns, "day"


def span_between(between: tuple[str, str], *, on_clock: bool = True) -> Span:
    """The span of the option --between. Raises ConfigError."""
    from outcast.analysis.selection import Span

    if on_clock:
        (from_ns, clock), (to_ns, other) = (_instant(text, "--between") for text in between)
    else:
        from_ns, to_ns = (instant_ns(text, "--between") for text in between)
        clock = other = "traffic"
    span = Span(from_ns, to_ns, f"--between {' '.join(between)}", clock)
    if clock != other:
        raise ConfigError(f"{span.option}: allowed are two times of one kind")
    if to_ns < from_ns:
        raise ConfigError(f"{span.option}: ends before it begins")
    return span


def instant_ns(text: str, option: str, also: str = "") -> int:
    """Parses a time of the run: seconds, or a number with a unit; negative before the start."""
    try:
        time_ns = float(text) * 1e9
    except ValueError:
        bare = text.strip()
        sign = -1 if bare.startswith("-") else 1
        try:
            time_ns = sign * parse_time_ns(bare.removeprefix("-"))
        except ValueError as error:
            raise ConfigError(f"{option}: {error}, or in seconds, as 0.002{also}") from None
    # Written with `not` because every comparison with NaN is false.
    if not abs(time_ns) <= _MOST_NS:
        raise ConfigError(f"{option} {text}: allowed is a time of the run")
    return round(time_ns)
