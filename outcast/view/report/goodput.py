"""The report's parts on goodput and fairness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from outcast.analysis.compiled import Array
from outcast.plan.grouping import control_of
from outcast.records.run import Run
from outcast.records.summary import GroupSummary
from outcast.view.figures.goodput import flow_rates
from outcast.view.figures.senders import flow_label
from outcast.view.palette import GREY, flow_colours, run_colours, series_colour
from outcast.view.report import charts
from outcast.view.report.charts import Bar, Line
from outcast.view.report.markup import Element, Part, element, table
from outcast.view.report.page import section
from outcast.view.terminal.tables import format_bps, format_ratio, main_ratio, noun, ratio_name

MOST_FLOWS = 200
"""The most flows that are listed. flows.parquet has all of them."""
MOST_COLUMNS = 8
"""The most groups with a column in the table of windows."""
MOST_CURVES = 6
"""The most flows of a single group that have a curve each in the chart."""
MOST_BINS = 500
MOST_STEPS = 110
"""Points of the small curves in the list of flows."""


def _rates(run: Run) -> tuple[Array, dict[int, Array]]:
    """Returns the bins' edges in seconds, and by flow the goodput in each bin in bit/s.

    Neighbouring bins of a long run are merged, until there are at most MOST_BINS.
    """
    edges, rates = flow_rates(run)
    together = -(-(edges.size - 1) // MOST_BINS)
    if together > 1:
        edges = np.append(edges[:-1:together], edges[-1])
        rates = {flow: coarser(rate, together) for flow, rate in rates.items()}
    return edges, rates


def coarser(rate: Array, together: int) -> Array:
    """Returns means over groups of `together` bins. The last group may have fewer."""
    first = np.arange(0, rate.size, together)
    return np.asarray(np.add.reduceat(rate, first) / np.diff(np.append(first, rate.size)))


def goodput(run: Run) -> Element:
    """Returns the section on goodput: of each group over time and on average, and of each flow."""
    edges, rates = _rates(run)
    colours = run_colours(run)
    fair_bps = run.fair_bps
    lines = []
    for place, group in enumerate(run.groups):
        of_group = [rates[flow] for flow in group.flows if flow in rates]
        if of_group:
            mean = np.mean(of_group, axis=0) / 1e6
            label = (
                f"{group.title}, mean of {len(of_group)} flow{'' if len(of_group) == 1 else 's'}"
            )
            lines.append(Line(label, colours[group.label], mean, charts.dash(place)))
    of_what = f"a flow of each {noun(run)}"
    if len(run.groups) == 1 and 1 < len(run.manifest.flows) <= MOST_CURVES:
        of_what, of_flow = "every flow", flow_colours(run.group_of, colours)
        lines = [
            Line(
                flow_label(run, flow),
                of_flow[flow.flow],
                rates[flow.flow] / 1e6,
                charts.dash(place),
            )
            for place, flow in enumerate(f for f in run.manifest.flows if f.flow in rates)
        ]
    bin_ms = (edges[1] - edges[0]) * 1e3 if edges.size > 1 else 0.0
    over_time = charts.line_chart(
        f"Goodput of {of_what}, in bins of {bin_ms:g} ms",
        "; ".join(f"{line.label}: {float(line.y.mean()):.1f} Mbps on average" for line in lines),
        edges,
        lines,
        "time (s)",
        "Mbps",
        limits=[] if fair_bps is None else [("equal share", fair_bps / 1e6)],
    )
    means = charts.bars(
        f"Mean goodput of a flow of each {noun(run)}",
        [
            Bar(
                group.counted,
                group.summary.mean_goodput_bps,
                format_bps(group.summary.mean_goodput_bps),
                colours[group.label],
            )
            for group in run.groups
        ],
        "The flows do not share one output, so they have no equal share."
        if fair_bps is None
        else f"If all flows had shared equally, each would have got {format_bps(fair_bps)}.",
    )
    return section(
        "goodput",
        "Goodput",
        means,
        _groups(run),
        over_time,
        _windows(run),
        _flows(run, rates, fair_bps),
    )


def _groups(run: Run) -> Element:
    """Returns a table of the groups: goodput, losses and timeouts, each with its controls."""
    if run.captured is not None:
        return _captured_groups(run)
    head = [noun(run), "congestion control", "flows", "mean goodput", "least"]
    head += ["packets", "drops", "retransmits", "timeouts", "waiting for timeouts"]
    sized = any(group.summary.times for group in run.groups)
    rows: list[list[Part]] = []
    for group in run.groups[:MOST_FLOWS]:
        part = group.summary
        waiting = None if part.halted_s is None else part.halted_s / part.flows
        row: list[Part] = [
            group.label,
            ", ".join(group.controls),
            str(part.flows),
            format_bps(part.mean_goodput_bps),
            format_bps(part.min_goodput_bps),
            _or_dash(part.packets, ",d"),
            _or_dash(part.dropped, ",d"),
            _or_dash(part.retransmits, ",d"),
            _or_dash(part.timeouts, ",d"),
            "-" if waiting is None else f"{waiting / run.summary.duration_s:.1%}",
        ]
        if sized:
            row.append(_completions(part))
        rows.append(row)
    if sized:
        head.append("completion, median")
    return table(f"By {noun(run)}; packets and drops at the bottleneck", head, rows, numbers_from=2)


def _captured_groups(run: Run) -> Element:
    """Returns a table of the groups of joined captures, with what captures tell."""
    head = [noun(run), "flows", "mean goodput", "least", "packets", "drops", "retransmissions"]
    rows: list[list[Part]] = [
        [
            group.label,
            str(group.summary.flows),
            format_bps(group.summary.mean_goodput_bps),
            format_bps(group.summary.min_goodput_bps),
            _or_dash(group.summary.packets, ",d"),
            _or_dash(group.summary.dropped, ",d"),
            _or_dash(group.summary.retransmissions_seen, ",d"),
        ]
        for group in run.groups[:MOST_FLOWS]
    ]
    return table(f"By {noun(run)}; packets, drops and retransmissions that came in", head, rows)


def _completions(part: GroupSummary) -> str:
    times = part.times
    if times is None or times.p50_ms is None:
        return "-"
    unfinished = times.flows - times.finished
    return f"{times.p50_ms:.4g} ms" + (f", {unfinished} unfinished" if unfinished else "")


def _windows(run: Run) -> Element | None:
    if not run.summary.windows:
        return None
    rows: list[list[Part]] = []
    shown = run.groups[:MOST_COLUMNS]
    for name, window in run.summary.windows.items():
        where = f"{window.start_s:g}-{window.end_s:g} s"
        row: list[Part] = [f"{name} ({where})", _or_dash(window.jain_index, ".3f")]
        row.append(format_ratio(main_ratio(window)))
        parts = window.grouped(run.summary.group_by)
        row += [format_bps(parts[group.label].mean_goodput_bps) for group in shown]
        rows.append(row)
    head = ["window", "Jain's index", ratio_name(run.summary)]
    head += [f"{group.title} mean" for group in shown]
    begins = (
        "the traffic's start"
        if run.summary.windows_from == "start"
        else "when all flows are active"
    )
    return table(f"The same over windows from {begins}", head, rows)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _flows(run: Run, rates: dict[int, Array], fair_bps: float | None) -> Element:
    colours = run_colours(run)
    peak = max((float(np.percentile(rate, 99)) for rate in rates.values()), default=1.0)
    ceiling = max(peak, (fair_bps or 0.0) * 1.5)
    named = run.summary.group_by not in ("hops", "sender")
    order = {flow: place for place, flow in enumerate(f for g in run.groups for f in g.flows)}
    known = {flow.flow: flow for flow in run.manifest.flows}
    rows: list[list[Part]] = []
    frame = run.table("flows").sort(pl.col("flow").replace_strict(order, default=len(order)))
    for row in frame.head(MOST_FLOWS).iter_rows(named=True):
        rate = rates.get(row["flow"], np.zeros(1))
        curve = charts.sparkline(
            coarser(rate, -(-rate.size // MOST_STEPS)),
            ceiling,
            colours.get(run.group_of.get(row["flow"], ""), GREY),
            fair_bps,
            f"goodput of flow {row['flow']} over time, from {format_bps(float(rate.min()))} to "
            f"{format_bps(float(rate.max()))}",
        )
        share = row["share"]
        flow = known.get(row["flow"])
        of_run: list[Part] = ["-" if flow is None else control_of(flow), str(row["hops"])]
        counts: list[Part] = [_or_dash(row[name], "d") for name in ("retransmits", "timeouts")]
        if run.captured is not None:
            of_run = [f"{row['dst']}:{row['dport']}"]
            counts = [str(row["retransmissions_seen"])]
        rows.append(
            [
                f"{row['flow']}: {row['src']}"
                + (f":{row['sport']}" if run.captured is not None else ""),
                curve,
                *([run.group_of.get(row["flow"], "-")] if named else []),
                *of_run,
                format_bps(row["goodput_bps"]),
                "-" if share is None else f"{share:.1%}",
                f"{row['dropped']:,}",
                str(row["longest_chain"]),
                *counts,
            ]
        )
    head = ["flow", f"over time, to {format_bps(ceiling)}", *([noun(run)] if named else [])]
    is_run = run.captured is None
    head += ["congestion control", "hops"] if is_run else ["to"]
    head += ["goodput", "share", "drops", "longest chain"]
    head += ["retransmits", "timeouts"] if is_run else ["retransmissions"]
    caption = "Every flow" + ("" if fair_bps is None else "; the dotted line is an equal share")
    listed = table(caption, head, rows, 3 + named)
    if frame.height > MOST_FLOWS:
        note = f"The first {MOST_FLOWS} of {frame.height} flows; flows.parquet has them all."
        listed = element("div", listed, element("p", note, class_="note"))
    return listed


def fairness(run: Run) -> Element:
    """Returns the section on Jain's index over time, in the windows of the analysis."""
    text = f"Over the whole interval Jain's index is {_or_dash(run.summary.jain_index, '.3f')}"
    compare = run.summary.compare
    if compare is not None and compare.ratio is not None:
        first, second = compare.groups
        name = ratio_name(run.summary)
        article = "the " if name == "outcast ratio" else ""
        text += (
            f" and {article}{name} is {compare.ratio:.2f}: the mean goodput of {first} over that "
            f"of {second}"
        )
    chart = element("p", "At no time two flows were active.")
    if "fairness" in run.tables:
        chart = _sliding_fairness(run.table("fairness"))
    return section("fairness", "Fairness over time", element("p", f"{text}."), chart)


def _sliding_fairness(frame: pl.DataFrame) -> Element:
    """Draws the analysis's windows. A window counts the flows that are active during all of it."""
    frame = frame.with_columns(width=pl.col("t_end") - pl.col("t_start"))
    grid = frame.select("t_end").unique().sort("t_end")
    widths = frame["width"].unique().sort().to_list()
    lines = []
    for place, width in enumerate(widths):
        mine = frame.filter(pl.col("width") == width).select("t_end", "jain")
        y = grid.join(mine, on="t_end", how="left").sort("t_end")["jain"]
        label = f"over the {width / 1e6:g} ms before"
        lines.append(Line(label, series_colour(place), y.to_numpy().astype(float), None))
    known = frame["jain"].drop_nulls().to_list()
    seen = f"between {min(known):.2f} and {max(known):.2f}" if known else "nowhere known"
    # The title names the window of a single curve, because that has no legend.
    window = f" over the {widths[0] / 1e6:g} ms before" if len(widths) == 1 else ""
    return charts.line_chart(
        f"Jain's index of the flows active{window}: 1 where all got the same",
        f"Jain's index {seen}",
        np.append(0.0, grid["t_end"].to_numpy() / 1e9),
        [replace(line, y=np.append(np.nan, line.y)) for line in lines],
        "time (s)",
        "Jain's index",
        top=1.0,
        height=180,
    )
