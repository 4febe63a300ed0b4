"""Draws what noise does to packets: gaps between them, and batches in which they come."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outcast.analysis.compiled import I64, Array
from outcast.records.run import Run
from outcast.view.figures.style import heading, log_scale, new
from outcast.view.palette import GREY, port_colours, run_colours

LEAST_PACKETS = 100
EDGES = 2.0 ** (np.arange(-5, 8, 0.125) - 0.0625)
"""In packet times, so that the middle of a bin is 1; what is beyond is counted at either end."""
LEAST_SHARE = 0.01
"""In percent; the axis begins there."""
WITHIN = 1.5
"""Packets that come in less than so many packet times apart belong to one batch."""
MOST_PORTS = 6
"""Inputs in the figure; those with the most packets are chosen, and at least LEAST_PACKETS."""


def gaps_and_batches(run: Run) -> Figure | None:
    """Draws gaps between the packets of each input of the first bottleneck, and their batches."""
    record = run.manifest.bottlenecks[0]
    seen = (
        run.scan("packets")
        .filter(pl.col("payload") > 0, pl.col("ingress").cast(pl.String).is_in(record.ingress))
        .select(pl.col("ingress").cast(pl.String), "t_in", "t_out")
        .collect()
    )
    came = {
        port: rows["t_in"].sort().to_numpy()
        for (port,), rows in seen.group_by("ingress", maintain_order=True)
        if rows.height >= LEAST_PACKETS
    }
    if not came:
        return None
    ports = sorted(came, key=lambda port: came[port].size, reverse=True)[:MOST_PORTS]
    out_ns = seen["t_out"].drop_nulls().sort().to_numpy()
    colours = port_colours({port: run.port_groups(port) for port in ports}, run_colours(run))
    figure = new((8.4, 3.6))
    first, second = figure.subplots(1, 2)
    for port in sorted(ports):
        label, colour = run.port_label(port), colours[port]
        _gaps(first, came[port], run.frame_ns, label, colour)
        sizes, share = batches(came[port], run.frame_ns)
        second.step(sizes, 100 * share, where="post", color=colour, lw=1.3, label=label)
    if out_ns.size >= LEAST_PACKETS:
        _gaps(first, out_ns, run.frame_ns, f"{record.egress} (out)", GREY)
    log_scale(first, "xy")
    first.set(xlim=(EDGES[0], EDGES[-1]), ylim=(LEAST_SHARE, 130))
    first.set(xlabel="gap to the packet before (packet times)", ylabel="packets (%)")
    log_scale(second, "x")
    second.set(xlim=(1, None), ylim=(0, 102), xlabel="size of the batch (packets)")
    second.set(ylabel="packets in batches of this size\nor a larger one (%)")
    number = seen["ingress"].n_unique()
    inputs = "the inputs" if number == len(ports) else f"{len(ports)} of {number} inputs"
    heading(figure, f"{run.summary.name}: gaps and batches at {inputs} of {record.egress}")
    return figure


def batches(came_ns: I64, packet_ns: int) -> tuple[Array, Array]:
    """The sizes of batches from 1 on, and the share of packets in such or larger ones."""
    begins = np.flatnonzero(np.diff(came_ns) >= WITHIN * packet_ns) + 1
    lengths = np.diff(np.concatenate([[0], begins, [came_ns.size]]))
    sizes, counts = np.unique(lengths, return_counts=True)
    held = sizes * counts
    at_least = np.cumsum(held[::-1])[::-1] / came_ns.size
    if sizes[0] > 1:
        sizes, at_least = np.concatenate([[1], sizes]), np.concatenate([[1.0], at_least])
    # A step ends where the next one begins.
    return np.append(sizes, sizes[-1] + 1), np.append(at_least, 0.0)


def _gaps(axes: Axes, times_ns: I64, packet_ns: int, label: str, colour: str) -> None:
    between = np.clip(np.diff(times_ns) / packet_ns, EDGES[0], EDGES[-1])
    counts, _ = np.histogram(between, EDGES)
    # What is 0 stands at the axis, because a logarithm has no place for it.
    share = np.maximum(100 * counts / between.size, LEAST_SHARE / 10)
    axes.stairs(share, EDGES, baseline=None, color=colour, lw=1.3, label=label)
