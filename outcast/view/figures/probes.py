"""Draws the round trips of probes: latency under load."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.view.figures.parts import draw_shares, legend_inches
from outcast.view.figures.style import OWN, Canvas, heading
from outcast.view.palette import series_colour

MOST_PROBES = 8
"""The most probes in the figure, from the first on."""


def probe_round_trips(run: Run, on: Canvas = OWN) -> Figure | None:
    """Draws the round trips of probes over time, and which share took no longer.

    Packets without an answer are crosses at the top, and make a curve end below 1. A dotted line is
    what links take without queues. Returns None without probes.
    """
    probes = [*(run.summary.probes or {}).items()][:MOST_PROBES]
    if not probes:
        return None
    table = run.table("probes")
    figure = on.new((9, 3 + legend_inches(len(probes), columns=2)))
    over_time, shares = figure.subplots(1, 2, width_ratios=[1.7, 1])
    for place, (number, part) in enumerate(probes):
        mine = table.filter(pl.col("probe") == int(number))
        colour, answered = series_colour(place), mine.drop_nulls("rtt_ns")
        rtt_ms = answered["rtt_ns"].to_numpy() / 1e6
        lost = f", {part.lost} lost" if part.lost else ""
        label = f"{part.title}: {part.sent} sent{lost}"
        over_time.plot(answered["t"].to_numpy() / 1e9, rtt_ms, ".", ms=3, color=colour)
        over_time.axhline(part.base_rtt_ms, color=colour, lw=0.8, linestyle=":")
        missing = mine.filter(pl.col("rtt_ns").is_null())["t"].to_numpy() / 1e9
        over_time.plot(
            *(missing, [0.97] * missing.size, "x"),
            color=colour,
            ms=5,
            transform=over_time.get_xaxis_transform(),
        )
        draw_shares(shares, rtt_ms, colour, label, part.sent)
    over_time.set_xlim(0, run.summary.duration_s)
    over_time.set_xlabel("time (s)")
    over_time.set_ylabel("round trip (ms)")
    over_time.set_ylim(0, None)
    shares.set_xlabel("round trip (ms)")
    shares.set_ylabel("share of packets")
    shares.set_xlim(0, None)
    heading(figure, f"{run.summary.name}: round trips of probes")
    figure.legend(*shares.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
