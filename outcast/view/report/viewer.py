"""The report's section with the blackout viewer and the list of the longest blackouts."""

import polars as pl

from outcast.analysis import selection
from outcast.experiment.engine import properties
from outcast.records.run import Run
from outcast.view.report import timeline
from outcast.view.report.page import Element, Part, asset, element, note, parsed, section, table
from outcast.view.report.timeline import Timeline

LISTED = 10
SCRIPTS = ("unpack.js", "lanes.js", "painter.js", "senders.js", "walk.js", "viewer.js")


def part(run: Run, packed: Timeline) -> Element:
    """Returns the section with viewer.html: the controls, and canvases that viewer.js draws on."""
    viewer = parsed(asset("viewer.html"))
    tools, sender = viewer[0], viewer[0][-1]
    if not packed.traced:
        tools.remove(sender)
    return section(
        "viewer",
        "Packet by packet",
        element(
            "p",
            "A blackout is a chain of packets of one input port that were all dropped while "
            "packets of other ports got through. It is shaded. Bars are packets that got through, "
            "in the colour of their flow. Dropped packets are below them on grey, as crosses when "
            "zoomed in. Click the timeline, then turn the wheel to zoom. Drag to pan. Point at a "
            "packet for its details. Keys: ← → pan; ↑ ↓ or + - zoom; Home shows the whole run; "
            "n, p and l go to the next, previous and longest blackout, from anywhere on the page; "
            "comma and full stop step through packets; d and D choose the next and the previous "
            "drop, r goes from a dropped packet to its retransmission, and b goes back.",
        ),
        _senders(run, packed),
        viewer,
        _thinning(packed),
        _longest(run),
    )


def _senders(run: Run, packed: Timeline) -> Element | None:
    if not packed.traced:
        if not properties(run.summary.engine).own_kernel:
            return None
        return element(
            "p",
            element("code", "outcast trace DIR"),
            " with this run's directory adds the senders' windows, congestion states, and the "
            "causes of retransmissions.",
            class_="note",
        )
    text = (
        "The lanes at the bottom show a flow's sender as the kernel's events tell: its congestion "
        "window with the segments in flight and ssthresh, its congestion state, and what it sent "
        "again: T by a timeout, A after one, P as a probe, R in a recovery. A letter in a frame "
        "was undone, because it was not needed. Crosses are the flow's drops, black if they were "
        "elsewhere in the network. The lanes follow the chosen packet or flow."
    )
    if packed.points_every > 1:
        text += (
            f" The series have {packed.points:,} points. This page has every change of the state "
            f"and of ssthresh. Of each {packed.points_every:,} consecutive points of a flow it has "
            "those with the least and the greatest window and number in flight."
        )
    return element("p", text)


def _thinning(packed: Timeline) -> Element | None:
    if packed.every == 1:
        return None
    return note(
        f"This run has {packed.packets:,} packets; {packed.kept:,} of them are in this page: every "
        f"packet dropped or sent again, those within {timeline.NEAR_PACKETS} packets of a drop, "
        f"and one in {packed.every} of the others of each port. Counts of packets include those "
        f"left out."
    )


def _longest(run: Run) -> Element:
    chains = selection.blackouts(run)
    if not chains.height:
        return element("p", "There was no blackout in this run.")
    lasts = pl.col("t_end") - pl.col("t_start")
    chains = chains.sort("drops", lasts, "t_start", descending=[True, False, False]).head(LISTED)
    start_ns = run.manifest.traffic.t_start_ns
    rows: list[list[Part]] = [
        [
            element(
                "a",
                f"{(row['t_start'] - start_ns) / 1e6:.4f} ms",
                href=f"#blackout={row['blackout']}",
                data_blackout=row["blackout"],
            ),
            str(row["blackout"]),
            run.port_label(row["ingress"]),
            str(row["drops"]),
            f"{(row['t_end'] - row['t_start']) / 1e6:,.4f}",
            f"{row['longest_gap_ns'] / 1e6:,.4f}",
            str(row["before_gap"]),
            str(row["flows"]),
            f"{row['others_through']:,}",
        ]
        for row in chains.iter_rows(named=True)
    ]
    head = ["came in at", "number", "port", "drops", "lasts (ms)", "longest gap (ms)"]
    head += ["drops before it", "flows", "others through"]
    return table("The longest blackouts, by drops", head, rows, numbers_from=3)
