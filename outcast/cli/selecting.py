"""The options that select packets, and the times that people write in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        "Only packets that came in between these times, as 10ms 12.5ms.",
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


_MOST_NS = 10**18
"""30 years. The sum with a time since 1970 still fits into 64 bits."""


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
        middle_ns = instant_ns(around, "--around")
        span = Span(middle_ns - within_ns, middle_ns + within_ns, f"--around {around}")
    return Selection(port, flow, dst, verdict, span, blackout, within_ns)


selection = shared.gathered("selection", _selected, *_FILTERS)
"""Gives a verb the filters of packets as one argument, `selection`."""


def span_between(between: tuple[str, str]) -> Span:
    """The span of the option --between. Raises ConfigError."""
    from outcast.analysis.selection import Span

    from_ns, to_ns = (instant_ns(text, "--between") for text in between)
    span = Span(from_ns, to_ns, f"--between {' '.join(between)}")
    if to_ns < from_ns:
        raise ConfigError(f"{span.option}: ends before it begins")
    return span


def instant_ns(text: str, option: str) -> int:
    """Parses a time of the run: seconds, or a number with a unit; negative before the start."""
    try:
        time_ns = float(text) * 1e9
    except ValueError:
        bare = text.strip()
        sign = -1 if bare.startswith("-") else 1
        try:
            time_ns = sign * parse_time_ns(bare.removeprefix("-"))
        except ValueError as error:
            raise ConfigError(f"{option}: {error}, or in seconds, as 0.002") from None
    # Written with `not` because every comparison with NaN is false.
    if not abs(time_ns) <= _MOST_NS:
        raise ConfigError(f"{option} {text}: allowed is a time of the run")
    return round(time_ns)
