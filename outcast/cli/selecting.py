"""The options that select packets, and the times that people write in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcast.cli import shared
from outcast.errors import ConfigError
from outcast.units import parse_time_ns

if TYPE_CHECKING:
    from outcast.analysis.selection import Selection

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
    if within_ns > shared.MOST_NS:
        raise ConfigError(f"--within {within}: allowed is at most {shared.MOST_NS // 10**9}s")
    span = None if between is None else shared.span_between(between)
    if around is not None:
        middle_ns = shared.instant_ns(around, "--around")
        span = Span(middle_ns - within_ns, middle_ns + within_ns, f"--around {around}")
    return Selection(port, flow, dst, verdict, span, blackout, within_ns)


selection = shared.gathered("selection", _selected, *_FILTERS)
"""Gives a verb the filters of packets as one argument, `selection`."""
