"""The pictures of a run, from its directory alone.

They follow the figures of Prakash et al., "The TCP Outcast Problem" (NSDI 2012): 3(a)-(c) goodput
of every flow over time, 3(d)-(f) mean per class, 10 drops over time, 11 chains of drops, 12 the
queue during a blackout. Colours are Okabe and Ito's, which the colour-blind tell apart; marks
differ in shape too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.analysis.summary import Summary, Window
from outcast.analysis.tables import format_bps, read_summary
from outcast.errors import InputError
from outcast.run import BottleneckRecord, Manifest, RunDirectory

VERMILION, BLUE, GREEN, ORANGE, PURPLE, SKY, GREY = (
    "#D55E00",
    "#0072B2",
    "#009E73",
    "#E69F00",
    "#CC79A7",
    "#56B4E9",
    "#8C8C8C",
)
CLASS_COLOURS = (VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY)
EVENT_MARKS = (("enqueue", "^", BLUE), ("drop", "x", VERMILION), ("dequeue", "v", GREEN))
MOST_CURVES = 40
"""Beyond this many flows, the flows of one sender are added up; of still more senders, so many are
chosen."""
ZOOM_PACKETS = 40
"""So many packet times are shown of a blackout, that each packet can be told apart."""
DENSE_PACKETS = 4
"""Drops that follow each other within so many packet times, on average, are one dense episode."""
LONGEST_BAR = 10
"""Chains longer than this share one bar."""

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "savefig.dpi": 150,
}


@dataclass(frozen=True)
class _Run:
    directory: RunDirectory
    manifest: Manifest
    summary: Summary

    def table(self, name: str) -> pl.LazyFrame:
        return pl.scan_parquet(self.directory.path / f"{name}.parquet")

    @property
    def hops(self) -> list[int]:
        return sorted({flow.hops for flow in self.manifest.flows})

    @property
    def packet_ns(self) -> int:
        """How long a full frame takes at the bottleneck."""
        rate_bps = self.manifest.bottlenecks[0].queue.rate_bps
        return 1514 * 8 * 10**9 // rate_bps if rate_bps else 100_000

    def colour(self, hops: int) -> str:
        """The class with the fewest hops is vermilion."""
        return CLASS_COLOURS[self.hops.index(hops) % len(CLASS_COLOURS)]

    def port_label(self, port: str) -> str:
        hops = sorted({flow.hops for flow in self.manifest.flows if flow.ingress == port})
        classes = ", ".join(f"{count}-hop" for count in hops)
        return f"{port} ({classes})" if classes else port

    def port_colour(self, port: str) -> str:
        hops = [flow.hops for flow in self.manifest.flows if flow.ingress == port]
        return self.colour(min(hops)) if hops else GREY


def draw(directory: RunDirectory) -> list[Path]:
    """Draws all figures of an analysed run. Returns their paths.

    Raises InputError where the run has not been analysed.
    """
    run = _Run(directory, directory.read_manifest(), read_summary(directory))
    try:
        with matplotlib.rc_context(STYLE):
            figures = {
                "goodput.png": goodput_over_time(run),
                "classes.png": goodput_by_class(run),
                "chains.png": chain_lengths(run),
                "drops.png": drops_over_time(run),
                "queue.png": queue_in_blackout(run),
            }
            return [_save(figure, directory.path / name) for name, figure in figures.items()]
    except (OSError, pl.exceptions.PolarsError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{directory.path}: its tables cannot be read: {first}") from None


def _save(figure: Figure, path: Path) -> Path:
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        figure.savefig(temporary, metadata={"Software": None} if path.suffix == ".png" else None)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _nothing(axes: Axes, text: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes.transAxes)


# --- figure 3


@dataclass(frozen=True)
class _Curve:
    label: str
    hops: int
    flows: int
    goodput_bps: np.ndarray


def _curves(run: _Run) -> tuple[np.ndarray, list[_Curve]]:
    """Time in seconds and one curve per flow or, if they are many, per sender; the fewest hops
    come last, which is on top.
    """
    frame = run.table("throughput").collect()
    time_s = frame["t"].unique().sort().to_numpy() / 1e9
    rates = frame["goodput_bps"].to_numpy().reshape(-1, time_s.size)
    order = frame["flow"].to_numpy()[:: time_s.size]
    rows = {int(flow): rate for flow, rate in zip(order, rates, strict=True)}
    together = len(run.manifest.flows) > MOST_CURVES
    grouped: dict[tuple[int, str], list[int]] = {}
    for flow in run.manifest.flows:
        key = flow.src if together else f"{flow.src} #{flow.flow}"
        grouped.setdefault((flow.hops, key), []).append(flow.flow)
    curves = [
        _Curve(key, hops, len(flows), np.sum([rows[flow] for flow in flows], axis=0))
        for (hops, key), flows in grouped.items()
    ]
    curves.sort(key=lambda curve: -curve.hops)
    if len(curves) > MOST_CURVES:
        # Evenly chosen, from both ends on.
        curves = [curves[at] for at in np.linspace(0, len(curves) - 1, MOST_CURVES).astype(int)]
    return time_s, curves


def goodput_over_time(run: _Run) -> Figure:
    """Figure 3(a)-(c): every flow's goodput over time, one above the other."""
    time_s, curves = _curves(run)
    bin_s = float(time_s[1] - time_s[0]) if time_s.size > 1 else run.summary.duration_s
    edges = np.append(time_s, time_s[-1] + bin_s)
    peak = max(float(np.percentile(curve.goodput_bps, 99)) for curve in curves)
    step = max(peak, 1.0) * 0.8
    figure = Figure(figsize=(8, 1.4 + 0.3 * len(curves)), layout="constrained")
    axes = figure.subplots()
    fair = run.summary.total_goodput_bps / len(run.manifest.flows)
    for index, curve in enumerate(curves):
        base = index * step
        colour = run.colour(curve.hops)
        lone = curve.hops == run.hops[0] and len(run.hops) > 1
        axes.stairs(
            base + curve.goodput_bps,
            edges,
            baseline=base,
            fill=True,
            color=colour,
            alpha=0.85 if lone else 0.45,
            zorder=2 * (len(curves) - index),
        )
        axes.stairs(
            base + curve.goodput_bps,
            edges,
            baseline=None,
            color=colour,
            linewidth=0.9,
            zorder=2 * (len(curves) - index) + 1,
        )
        axes.axhline(base, color=GREY, linewidth=0.5, zorder=1)
        axes.axhline(base + fair * curve.flows, color=GREY, linewidth=0.5, linestyle=":", zorder=1)
        mean = format_bps(float(curve.goodput_bps.mean()))
        axes.text(
            1.01,
            base + step * 0.1,
            mean,
            color=colour,
            fontweight="bold" if lone else "normal",
            transform=axes.get_yaxis_transform(),
        )
    axes.set_yticks(
        [index * step for index in range(len(curves))],
        [f"{curve.label} ({curve.hops}-hop)" for curve in curves],
    )
    for tick, curve in zip(axes.get_yticklabels(), curves, strict=True):
        tick.set_color(run.colour(curve.hops))
        tick.set_verticalalignment("bottom")
        if curve.hops == run.hops[0] and len(run.hops) > 1:
            tick.set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, (len(curves) - 1) * step + max(peak, curves[-1].goodput_bps.max()) * 1.05)
    axes.set_xlabel("time (s)")
    senders = len({flow.src for flow in run.manifest.flows})
    what = "every flow"
    if len(run.manifest.flows) > MOST_CURVES:
        what = "every sender" if senders <= MOST_CURVES else f"{len(curves)} of {senders} senders"
    figure.suptitle(
        f"{run.summary.name}: goodput of {what}, in bins of {bin_s * 1000:g} ms, one above "
        f"the other\nspacing of the lines {format_bps(step)}; dotted: an equal share "
        f"({format_bps(fair)} a flow); at the right: the mean",
        fontsize=9.5,
        x=0.01,
        ha="left",
    )
    return figure


def goodput_by_class(run: _Run) -> Figure:
    """Figure 3(d)-(f): mean goodput per class over the windows."""
    main = Window(
        start_s=run.summary.start_s,
        end_s=run.summary.end_s,
        jain_index=run.summary.jain_index,
        total_goodput_bps=run.summary.total_goodput_bps,
        classes=run.summary.classes,
        outcast_ratio=run.summary.outcast_ratio,
    )
    windows = list(run.summary.windows.values())
    if all((window.start_s, window.end_s) != (main.start_s, main.end_s) for window in windows):
        windows.append(main)
    figure = Figure(figsize=(3.2 + 1.4 * len(windows), 3.4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(run.hops)
    top = 0.0
    for place, hops in enumerate(run.hops):
        for index, window in enumerate(windows):
            mean = window.classes[str(hops)].mean_goodput_bps / 1e6
            top = max(top, mean)
            at = index - 0.4 + (place + 0.5) * width
            label = None
            if index == 0:
                count = window.classes[str(hops)].flows
                label = f"{hops}-hop ({count} flow{'s' if count > 1 else ''})"
            axes.bar(at, mean, width * 0.92, color=run.colour(hops), label=label)
            axes.annotate(
                f"{mean:.3g}",
                (at, mean),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8,
                bbox={"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"},
                zorder=5,
            )
    for index, window in enumerate(windows):
        flows = sum(part.flows for part in window.classes.values())
        equal = window.total_goodput_bps / flows / 1e6
        label = "an equal share" if index == 0 else ""
        axes.hlines(
            equal, index - 0.45, index + 0.45, color="black", linestyle=":", lw=1, label=label
        )
    axes.set_xticks(
        range(len(windows)),
        [
            f"{window.start_s:g}-{window.end_s:g} s"
            + (f"\nratio {window.outcast_ratio:.2f}" if window.outcast_ratio is not None else "")
            for window in windows
        ],
    )
    axes.set_ylim(0, (top or 1) * 1.12)
    axes.set_ylabel("mean goodput of a flow (Mbps)")
    figure.suptitle(
        f"{run.summary.name}: mean goodput per class",
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    figure.legend(loc="outside right center")
    return figure


# --- figure 11


def chain_lengths(run: _Run) -> Figure:
    """Figure 11: how many chains of consecutive drops there were of each length."""
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    ports = {
        port: (run.port_label(port), run.port_colour(port), part.chains, 1)
        for port, part in run.summary.drops.items()
    }
    classes = {
        hops: (
            f"{hops}-hop ({run.summary.classes[hops].flows} flows, mean)"
            if run.summary.classes[hops].flows > 1
            else f"{hops}-hop (1 flow)",
            run.colour(int(hops)),
            chains,
            run.summary.classes[hops].flows,
        )
        for hops, chains in run.summary.flow_chains.items()
    }
    _chain_bars(left, list(ports.values()), "chains of drops of a port")
    _chain_bars(right, list(classes.values()), "chains of drops of a flow")
    figure.suptitle(
        f"{run.summary.name}: consecutive drops", x=0.01, ha="left", fontsize=10, fontweight="bold"
    )
    return figure


def _chain_bars(axes: Axes, groups: list[tuple[str, str, dict[str, int], int]], what: str) -> None:
    if not any(chains for _, _, chains, _ in groups):
        _nothing(axes, "no packet was dropped")
        return
    longest = min(
        max(int(length) for _, _, chains, _ in groups for length in chains), LONGEST_BAR + 1
    )
    width = 0.84 / len(groups)
    lowest = 1.0
    for place, (label, colour, chains, share) in enumerate(groups):
        heights = np.zeros(longest)
        for length, count in chains.items():
            heights[min(int(length), longest) - 1] += count / share
        at = np.arange(1, longest + 1) - 0.42 + (place + 0.5) * width
        lowest = min(lowest, *heights[heights > 0], 1.0)
        axes.bar(at, heights, width * 0.92, color=colour, label=label)
    axes.set_yscale("log")
    axes.set_ylim(lowest / 2, None)
    names = [str(length) for length in range(1, longest + 1)]
    if longest > LONGEST_BAR:
        names[-1] = f"> {LONGEST_BAR}"
    axes.set_xticks(range(1, longest + 1), names)
    axes.set_xlabel("packets dropped in a row")
    axes.set_ylabel(what)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, ncols=2, borderaxespad=0.2)


# --- figure 10


def drops_over_time(run: _Run) -> Figure:
    """Figure 10: packets sent and dropped per input port, and each port's densest blackout."""
    ports = [port for record in run.manifest.bottlenecks for port in record.ingress]
    zooms = [(port, row) for port in ports if (row := _worst(run, port)) is not None]
    zooms = sorted(zooms, key=lambda zoom: -int(zoom[1]["drops"]))[:2]
    figure = Figure(figsize=(9, 1.1 + 1.15 * len(ports) + 2.2), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[1.15 * len(ports), 2.2])
    upper, lower = halves
    begin = run.manifest.traffic.t_start_ns
    duration_s = run.summary.duration_s
    overview = upper.subplots(len(ports), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    bins = 400
    edges = np.linspace(0, duration_s, bins + 1)
    for axes, port in zip(overview, ports, strict=True):
        frame = (
            run.table("packets")
            .filter(pl.col("ingress") == port)
            .select("t_in", pl.col("verdict") == "dropped")
            .collect()
        )
        time_s = (frame["t_in"].to_numpy() - begin) / 1e9
        lost = frame["verdict"].to_numpy()
        width_ms = duration_s / bins * 1e3
        sent, _ = np.histogram(time_s[~lost], edges)
        dropped, _ = np.histogram(time_s[lost], edges)
        axes.stairs(sent / width_ms, edges, fill=True, color=BLUE, alpha=0.55, label="forwarded")
        axes.stairs(-dropped / width_ms, edges, fill=True, color=VERMILION, label="dropped")
        axes.axhline(0, color="black", linewidth=0.5)
        axes.set_title(run.port_label(port), fontsize=9, pad=3)
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    overview[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    overview[-1].set_xlim(0, duration_s)
    overview[-1].set_xlabel("time (s)")
    upper.supylabel("packets per ms", fontsize=9)
    upper.suptitle(
        f"{run.summary.name}: packets forwarded and dropped, by input port",
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    if not zooms:
        _nothing(lower.subplots(), "no blackout: no chain of drops while other ports got through")
        return figure
    panels = lower.subplots(1, len(zooms), squeeze=False)[0]
    for axes, (port, row) in zip(panels, zooms, strict=True):
        _zoom(run, axes, ports, port, row)
        for mark in overview:
            mark.axvline((row["t_start"] - begin) / 1e9, color="black", lw=0.6, ls=":")
    return figure


def _worst(run: _Run, port: str) -> dict[str, Any] | None:
    """The port's densest blackout: of those whose drops follow each other closely the one with
    the most drops; among equals the shortest. Without such, the same of all.
    """
    lasts = pl.col("t_end") - pl.col("t_start")
    close = lasts <= (pl.col("drops") - 1) * DENSE_PACKETS * run.packet_ns
    rows = (
        run.table("blackouts")
        .filter((pl.col("ingress") == port) & (pl.col("others_through") > 0))
        .with_columns(lasts=lasts, close=close)
        .sort(["close", "drops", "lasts", "t_start"], descending=[True, True, False, False])
        .head(1)
        .collect()
    )
    return rows.row(0, named=True) if rows.height else None


def _around(run: _Run, row: dict[str, Any]) -> tuple[int, int]:
    """A blackout's beginning, `ZOOM_PACKETS` packet times at most, and somewhat around it."""
    lasts = min(row["t_end"] - row["t_start"], ZOOM_PACKETS * run.packet_ns)
    margin = max(lasts * 3 // 10, 5 * run.packet_ns)
    return row["t_start"] - margin, row["t_start"] + lasts + margin


def _zoom(run: _Run, axes: Axes, ports: list[str], port: str, row: dict[str, Any]) -> None:
    low, high = _around(run, row)
    frame = (
        run.table("packets")
        .filter(pl.col("t_in").is_between(low, high))
        .select("t_in", pl.col("ingress").cast(pl.String), pl.col("verdict").cast(pl.String))
        .collect()
    )
    scale, unit = _time_unit(high - low)
    axes.axvspan(0, (row["t_end"] - row["t_start"]) / scale, color=GREY, alpha=0.15, lw=0)
    for place, name in enumerate(reversed(ports)):
        for verdict, marker, colour, size in (
            ("forwarded", "o", BLUE, 18),
            ("dropped", "x", VERMILION, 26),
            ("unknown", "d", GREY, 18),
        ):
            rows = frame.filter((pl.col("ingress") == name) & (pl.col("verdict") == verdict))
            x = (rows["t_in"].to_numpy() - row["t_start"]) / scale
            y = np.full(x.size, place + (0.12 if verdict == "dropped" else -0.12))
            axes.scatter(x, y, s=size, marker=marker, color=colour, linewidths=1.2)
    axes.set_yticks(range(len(ports)), list(reversed(ports)))
    axes.set_ylim(-0.6, len(ports) - 0.4)
    axes.set_xlim((low - row["t_start"]) / scale, (high - row["t_start"]) / scale)
    axes.set_xlabel(f"time after the first of these drops ({unit})")
    at_s = (row["t_start"] - run.manifest.traffic.t_start_ns) / 1e9
    axes.set_title(
        f"blackout of {port} at {at_s:.4f} s: {row['drops']} dropped,\n"
        f"{row['others_through']} of other ports through (o forwarded, x dropped)",
        fontsize=8.5,
    )


def _time_unit(span_ns: int) -> tuple[float, str]:
    if span_ns >= 5 * 10**9:
        return 1e9, "s"
    return (1e6, "ms") if span_ns >= 5 * 10**6 else (1e3, "µs")


# --- figure 12


def draw_queue(directory: RunDirectory, around_ns: int, within_ns: int, path: Path) -> None:
    """Draws figure 12 for any time of an analysed run, of the output with most packets then.

    Args:
        directory: the run.
        around_ns: the middle, after the traffic's start.
        within_ns: how far either way.
        path: the picture's name; the ending says its format (png, pdf, svg).

    Raises InputError where there is nothing to draw or the picture cannot be written.
    """
    run = _Run(directory, directory.read_manifest(), read_summary(directory))
    middle = run.manifest.traffic.t_start_ns + around_ns
    low, high = middle - within_ns, middle + within_ns
    with matplotlib.rc_context(STYLE):
        busiest = (
            run.table("queue")
            .filter(pl.col("t").is_between(low, high))
            .group_by(pl.col("egress").cast(pl.String))
            .len()
            .sort("len", "egress", descending=True)
            .collect()
        )
        if not busiest.height:
            raise InputError(
                f"{directory.path}: no packet within {within_ns / 1e6:g} ms of "
                f"{around_ns / 1e9:g} s"
            )
        record = next(
            item for item in run.manifest.bottlenecks if item.egress == busiest["egress"][0]
        )
        title = f"{run.summary.name}: queue of {record.egress} around {around_ns / 1e9:g} s"
        try:
            _save(_queue(run, record, (low, high), middle, "", title), path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{path}: cannot be written: {reason}") from None


def queue_in_blackout(run: _Run) -> Figure:
    """Figure 12: the queue and what happened to it around the densest blackout."""
    worst = [
        (port, row)
        for record in run.manifest.bottlenecks
        for port in record.ingress
        if (row := _worst(run, port)) is not None
    ]
    if not worst:
        figure = Figure(figsize=(9, 4.2), layout="constrained")
        _nothing(figure.subplots(), "no blackout: no chain of drops while other ports got through")
        return figure
    port, row = max(worst, key=lambda item: (bool(item[1]["close"]), int(item[1]["drops"])))
    record = next(item for item in run.manifest.bottlenecks if item.egress == row["egress"])
    title = (
        f"{run.summary.name}: queue of {record.egress} in the densest blackout, of "
        f"{run.port_label(port)}: {row['drops']} dropped, {row['others_through']} of other ports "
        f"through"
    )
    # Packets reach the queue only after the link's delay.
    delay_ns = record.queue.delay_ns
    low, high = (time_ns + delay_ns for time_ns in _around(run, row))
    zero_ns = row["t_start"] + delay_ns
    figure = _queue(run, record, (low, high), zero_ns, "the first of these drops, at ", title)
    upper = figure.axes[0]
    scale, _ = _time_unit(high - low)
    upper.axvspan(0, (row["t_end"] - row["t_start"]) / scale, color=GREY, alpha=0.15, lw=0)
    return figure


def _queue(
    run: _Run,
    record: BottleneckRecord,
    span: tuple[int, int],
    zero_ns: int,
    zero_is: str,
    title: str,
) -> Figure:
    """The queue of an output over a span of time, with a mark for every event of every port."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=[2.2, 0.5 + 0.42 * len(record.ingress)]
    )
    low, high = span
    scale, unit = _time_unit(high - low)
    events = (
        run.table("queue")
        .filter((pl.col("egress") == record.egress) & pl.col("t").is_between(low, high))
        .select("t", pl.col("event").cast(pl.String), "packet", "queue_bytes")
        .collect()
    )
    ingress = (
        run.table("packets")
        .select(pl.col("ingress").cast(pl.String))
        .with_row_index("packet")
        .with_columns(pl.col("packet").cast(pl.Int32))
        .join(events.lazy().select("packet").unique(), on="packet", how="semi")
        .collect()
    )
    events = events.join(ingress, on="packet", how="left").sort("t", maintain_order=True)
    time = (events["t"].to_numpy() - zero_ns) / scale
    held = events["queue_bytes"].to_numpy() / 1024
    upper.step(time, held, where="post", color="black", linewidth=1)
    if record.queue.limit_bytes:
        limit = record.queue.limit_bytes / 1024
        upper.axhline(limit, color=VERMILION, linestyle="--", linewidth=1)
        upper.annotate(
            f"limit\n{limit:g} KiB",
            (1.005, limit),
            (0, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=8,
            color=VERMILION,
        )
    upper.set_ylabel("queue (KiB)")
    upper.set_title(title, fontsize=9)
    rows = [*record.ingress, record.egress]
    for place, name in enumerate(reversed(rows)):
        lower.axhline(place, color=GREY, linewidth=0.4, zorder=0)
        for event, marker, colour in EVENT_MARKS:
            if (event == "dequeue") != (name == record.egress):
                continue
            chosen = events["event"].eq(event).to_numpy()
            if event != "dequeue":
                chosen &= events["ingress"].eq_missing(name).to_numpy()
            lower.scatter(
                time[chosen],
                np.full(int(chosen.sum()), place),
                s=24,
                marker=marker,
                color=colour,
                linewidths=1.2,
                label=event if place in (0, len(rows) - 1) else None,
            )
    lower.set_yticks(range(len(rows)), list(reversed(rows)))
    lower.set_ylim(-0.6, len(rows) - 0.4)
    lower.set_xlim((low - zero_ns) / scale, (high - zero_ns) / scale)
    at_s = (zero_ns - run.manifest.traffic.t_start_ns) / 1e9
    lower.set_xlabel(f"time after {zero_is}{at_s:.6f} s ({unit})")
    handles, labels = lower.get_legend_handles_labels()
    distinct = dict(zip(labels, handles, strict=True))
    lower.legend(
        [distinct[name] for name in ("enqueue", "drop", "dequeue") if name in distinct],
        [name for name in ("enqueue", "drop", "dequeue") if name in distinct],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=3,
        borderaxespad=0,
        handletextpad=0.2,
    )
    return figure
