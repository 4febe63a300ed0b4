"""Draws generated traffic: its rate and drops over time, and what each UDP flow got and lost."""

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from outcast.analysis.machine_code import Array
from outcast.records.run import Run
from outcast.view.figures.goodput import flow_rates
from outcast.view.figures.style import heading, name_ticks, new
from outcast.view.palette import BLUE, DROPPED, GREEN, GREY, series_colour

MOST_CURVES = 6
"""The most UDP flows with a curve each. If there are more, each workload has one."""
MOST_BARS = 40


def rate_curves(run: Run) -> tuple[Array, dict[str, Array]]:
    """The edges of the bins in seconds, and rates in bit/s by label of UDP flow or workload."""
    frame = run.table("workloads")
    edges_s = np.append(frame["t"].unique().sort().to_numpy() / 1e9, run.summary.duration_s)
    sources = {}
    if "streams" in run.tables:
        sources = dict(run.table("streams")["flow", "src"].iter_rows())
    each = frame["flow"].drop_nulls().n_unique() <= MOST_CURVES
    keys = ["workload", "kind", "flow"] if each else ["workload", "kind"]
    curves = {}
    for values, part in frame.group_by(keys, maintain_order=True):
        label = f"workload {values[0]} ({values[1]})"
        if each and values[2] is not None:
            label = f"{sources.get(values[2], 'flow')} #{values[2]} (UDP)"
        curves[label] = _summed(part, "goodput_bps")
    return edges_s, curves


def _summed(frame: pl.DataFrame, column: str) -> Array:
    return frame.group_by("t").agg(pl.col(column).sum()).sort("t")[column].to_numpy()


def rate_over_time(run: Run) -> Figure | None:
    """Draws the rates and drops of generated traffic over time, beside the TCP flows' sum."""
    if "workloads" not in run.tables:
        return None
    edges, curves = rate_curves(run)
    width_ms = (edges[1] - edges[0]) * 1e3
    figure = new((8, 4.2))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    for place, (label, rate_bps) in enumerate(curves.items()):
        colour = series_colour(place)
        upper.stairs(rate_bps / 1e6, edges, baseline=None, color=colour, lw=1.2, label=label)
    if run.manifest.flows:
        of_flows, rates = flow_rates(run)
        total = np.sum([*rates.values()], axis=0) / 1e6
        label = f"{len(rates)} TCP flows together" if len(rates) > 1 else "the TCP flow"
        upper.stairs(total, of_flows, baseline=None, color=GREY, lw=1.2, ls="--", label=label)
    upper.set(ylim=(0, None), ylabel="rate (Mbps)")
    per_ms = _summed(run.table("workloads"), "dropped") / np.diff(edges) / 1e3
    lower.stairs(per_ms, edges, fill=True, color=DROPPED, alpha=0.8, label="dropped")
    lower.set(ylim=(0, None), ylabel="drops per ms", xlim=(0, run.summary.duration_s))
    lower.set_xlabel("time (s)")
    what = f"generated traffic at the bottleneck, bins of {width_ms:g} ms"
    heading(figure, f"{run.summary.name}: {what}")
    return figure


def datagrams_by_flow(run: Run) -> Figure | None:
    """Draws what each UDP flow sent, as received and lost, its delays and its jitter."""
    if "streams" not in run.tables:
        return None
    frame = run.table("streams")
    rows = np.unique(np.linspace(0, frame.height - 1, min(frame.height, MOST_BARS)).astype(int))
    frame = frame[rows.tolist()]
    places = np.arange(frame.height)
    ticks = [f"{src} #{flow}" for src, flow in frame["src", "flow"].rows()]
    figure = new((max(5, 1.2 + 0.5 * frame.height), 5.4))
    upper, middle, lower = figure.subplots(3, 1, sharex=True, height_ratios=[1.4, 1.4, 1])
    received = frame["received_bps"].to_numpy() / 1e6
    # Not the difference of both rates, because the last packets may have waited.
    lost = (frame["sent_bps"] * frame["loss_share"].fill_null(0)).to_numpy() / 1e6
    upper.bar(places, received, 0.736, color=BLUE, label="received")
    upper.bar(places, lost, 0.736, bottom=received, color=DROPPED, hatch="//", label="lost")
    for place, share in enumerate(frame["loss_share"].to_list()):
        if share is not None:
            top = received[place] + lost[place]
            upper.text(place, top, f"{share:.1%}", ha="center", va="bottom", fontsize=8)
    upper.margins(y=0.12)
    upper.set_ylabel("rate (Mbps)")
    known = frame["delay_mean"].is_not_null().to_numpy()
    if known.any():
        median, high, jitter = (
            frame[name].to_numpy()[known] / 1e6 for name in ("delay_p50", "delay_p99", "jitter")
        )
        at = places[known]
        middle.vlines(at, median, high, color=BLUE, lw=1.5)
        middle.plot(at, median, "o", color=BLUE, ms=5, label="delay, median")
        middle.plot(at, high, "_", color=BLUE, ms=9, clip_on=False, label="delay, 99 %")
        lower.plot(at, jitter, "D", color=GREEN, ms=5, clip_on=False, label="jitter")
    middle.set(ylim=(0, None), ylabel="delay at the\nqueue (ms)")
    lower.set(ylim=(0, None), ylabel="jitter (ms)")
    name_ticks(lower, ticks)
    heading(figure, f"{run.summary.name}: UDP flows")
    return figure
