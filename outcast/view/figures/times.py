"""Draws how long flows, programs and probes took, and which share took no longer.

Flow completion times are drawn as figure 11 of the TCPRand paper.
"""

from typing import Any

import polars as pl
from matplotlib.figure import Figure

from outcast.records.run import Run
from outcast.records.summary import LONG_BYTES, SHORT_BYTES
from outcast.view.figures.parts import draw_shares
from outcast.view.figures.style import heading, log_scale, new, nothing
from outcast.view.palette import ramp, series_colour

_SIZES = (
    ("short (below 100 KB)", pl.col("size_bytes") < SHORT_BYTES),
    ("medium", pl.col("size_bytes").is_between(SHORT_BYTES, LONG_BYTES)),
    ("long (above 10 MB)", pl.col("size_bytes") > LONG_BYTES),
)


def completion_times(run: Run) -> Figure | None:
    """Draws the cumulative distribution of completion times by size.

    A curve ends below 1 if flows did not finish. Returns None without generated flows.
    """
    if "completions" not in run.tables:
        return None
    table = run.table("completions").filter(pl.col("size_bytes").is_not_null())
    if table.is_empty():
        return None
    workloads = table["workload"].unique().sort().to_list()
    figure = new((1.2 + 4.2 * len(workloads), 4.2))
    panels = figure.subplots(1, len(workloads), squeeze=False)[0]
    for axes, workload in zip(panels, workloads, strict=True):
        mine = table.filter(pl.col("workload") == workload)
        axes.set_title(f"{mine['kind'][0]} (workload {workload})")
        if mine["fct"].drop_nulls().is_empty():
            nothing(axes, "no flow finished")
            continue
        for (size, chosen), colour in zip(_SIZES, ramp(len(_SIZES)), strict=True):
            of_size = mine.filter(chosen)
            if of_size.is_empty():
                continue
            times_ms = of_size["fct"].drop_nulls().to_numpy() / 1e6
            finished = f"{times_ms.size} of {of_size.height}"
            label = f"{size}: {finished} of workload {workload} finished"
            draw_shares(axes, times_ms, colour, label, of_size.height)
        log_scale(axes, "x")
        axes.set(xlabel="flow completion time (ms)", ylabel="share of flows")
        axes.grid(alpha=0.25)
    heading(figure, f"{run.summary.name}: flow completion times")
    return figure


def execution_times(run: Run) -> Figure | None:
    """Draws the cumulative distribution of the times that executions took, a curve per program.

    A curve ends below 1 if executions failed. Returns None if no program ran twice.
    """
    if "programs" not in run.tables:
        return None
    clients = run.table("programs").filter(~pl.col("server"))
    of_each = clients.partition_by("program", maintain_order=True, as_dict=True)
    executed = {name: mine for (name,), mine in of_each.items() if mine.height > 1}
    if not executed:
        return None
    figure = new((5.4, 4.2))
    axes = figure.subplots()
    for place, (name, mine) in enumerate(executed.items()):
        well = mine.filter(pl.col("status") == 0, pl.col("ended_by") == "itself")
        label = f"{name}: {well.height} of {mine.height} ended well"
        times_ms = well["duration_ns"].to_numpy() / 1e6
        draw_shares(axes, times_ms, series_colour(place), label, mine.height)
    axes.set(xlabel="time of an execution (ms)", ylabel="share of executions", xlim=(0, None))
    axes.grid(alpha=0.25)
    heading(figure, f"{run.summary.name}: how long programs took")
    return figure


MOST_PROBES = 8
"""The most probes in the figure, from the first on."""


def probe_round_trips(run: Run) -> Figure | None:
    """Draws the round trips of probes over time, and which share took no longer.

    Packets without an answer are crosses at the top, and make a curve end below 1. A dotted line is
    what links take without queues. Returns None without probes.
    """
    probes = [*(run.summary.probes or {}).items()][:MOST_PROBES]
    if not probes:
        return None
    table = run.table("probes")
    figure = new((9, 3))
    over_time, shares = figure.subplots(1, 2, width_ratios=[1.7, 1])
    for place, (number, part) in enumerate(probes):
        mine = table.filter(pl.col("probe") == int(number))
        colour, answered = series_colour(place), mine.drop_nulls("rtt_ns")
        rtt_ms = answered["rtt_ns"].to_numpy() / 1e6
        lost = f", {part.lost} lost" if part.lost else ""
        label = f"{part.title}: {part.sent} sent{lost}"
        over_time.plot(answered["t"].to_numpy() / 1e9, rtt_ms, ".", ms=3, color=colour)
        base: Any = {"color": colour, "lw": 0.8, "linestyle": ":"}
        over_time.axhline(part.base_rtt_ms, **base, label=f"{part.title}: without queues")
        missing = mine.filter(pl.col("rtt_ns").is_null())["t"].to_numpy() / 1e9
        at_the_top = over_time.get_xaxis_transform()
        lost_at = (missing, [0.97] * missing.size, "x")
        named = f"{part.title}: lost" if missing.size else None
        over_time.plot(*lost_at, color=colour, ms=5, transform=at_the_top, label=named)
        of_interval = answered.filter(run.counts(pl.col("t")))["rtt_ns"].to_numpy() / 1e6
        draw_shares(shares, of_interval, colour, label, part.sent)
    over_time.set(xlim=(0, run.summary.duration_s), xlabel="time (s)", ylabel="round trip (ms)")
    over_time.set(ylim=(0, None))
    shares.set(xlabel="round trip (ms)", ylabel="share of packets", xlim=(0, None))
    heading(figure, f"{run.summary.name}: round trips of probes")
    return figure
