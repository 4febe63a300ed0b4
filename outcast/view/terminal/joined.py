"""Joined captures in tables: what ports let through, how long they held packets, who lost them."""

from collections.abc import Iterator

import numpy as np
from rich.table import Table

from outcast.analysis.compiled import I32, I64
from outcast.analysis.join.findings import Found
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.measure.blackout import Chains
from outcast.analysis.measure.estimates import ALL
from outcast.plan.addresses import with_port
from outcast.records.captures import QueueEstimate
from outcast.view.terminal import forms

MOST_FLOWS = 20
"""The most flows that lost packets and have a row each."""


def parts(found: Found) -> Iterator[Table | str]:
    """All that is shown of a join: tables, and lines of text."""
    joined = found.joined
    yield _inputs(joined, found.chains)
    yield _waits(joined)
    if (losses := _losses(joined)) is not None:
        yield losses
    counts = joined.counts
    yield (
        f"in {counts.entered} = forwarded {counts.forwarded} + dropped {counts.dropped} + "
        f"in flight {counts.in_flight} + before the output's capture {counts.before_output}; "
        f"reordered {counts.reordered}"
    )
    yield (
        f"out {counts.left} = forwarded {counts.forwarded} + queued before the capture "
        f"{counts.early} + duplicates {counts.duplicates} + unexplained {counts.unexplained}"
    )
    yield from filter(None, map(_queue_text, found.estimates))


def _inputs(joined: Joined, chains: Chains) -> Table:
    heads = ("packets", "forwarded", "dropped", "unknown", "chains", "longest", "blackouts")
    table = forms.table("input", *heads, wrapped=None)
    for index, name in enumerate(joined.inputs):
        verdict = joined.verdict[joined.arrivals.port == index]
        of_port = chains.ingress == index
        table.add_row(
            name,
            str(verdict.size),
            *(str(int((verdict == code).sum())) for code in Verdict),
            str(int(of_port.sum())),
            str(int(chains.drops[of_port].max(initial=0))),
            _blackouts(chains.others_through[of_port]),
        )
    return table


def _blackouts(others_through: I32) -> str:
    """How many chains are blackouts; empty if that is not known of all."""
    return "" if (others_through < 0).any() else str(int((others_through > 0).sum()))


def _queue_text(estimate: QueueEstimate) -> str:
    """What is known of an output's queue, as a line; empty if nothing is."""
    parts = []
    if estimate.rate_bps is not None and estimate.rate_high_bps is not None:
        error = (estimate.rate_high_bps - estimate.rate_bps) / 1e6
        parts.append(f"sends {estimate.rate_bps / 1e6:.3f} Mbps, within {error:.3f}")
    if estimate.limit_at_least is not None:
        below = estimate.limit_below
        high = "" if below is None else f" and below {below:,}"
        least = f"{estimate.limit_at_least:,}{high} {estimate.limit_unit}"
        share = estimate.limit_explains or 0.0
        explained = (
            "" if share >= ALL else f", which explains {share:.0%} of what it took and dropped"
        )
        parts.append(f"its queue's limit is at least {least}{explained}")
    return f"{estimate.port}: {'; '.join(parts)}" if parts else ""


def _waits(joined: Joined) -> Table:
    """A table of how long packets spent in the switch, by input and output, in milliseconds."""
    heads = ("packets", "least", "median", "90 %", "99 %", "longest")
    table = forms.table("waits (ms)", *heads, wrapped=None)
    waits_ns = joined.t_out_ns - joined.arrivals.stamp_ns
    has_left = joined.t_out_ns >= 0
    for row, ingress in enumerate(joined.inputs):
        for output, egress in enumerate(joined.outputs):
            mine = waits_ns[has_left & (joined.arrivals.port == row) & (joined.egress == output)]
            if mine.size:
                table.add_row(f"{ingress} to {egress}", f"{mine.size:,}", *percentiles_ms(mine))
    return table


def percentiles_ms(times_ns: I64) -> list[str]:
    """The least, median, 90 %, 99 % and longest of times, in ms; empty texts if there are none."""
    if not times_ns.size:
        return [""] * 5
    times_ms = np.percentile(times_ns, (0, 50, 90, 99, 100)) / 1e6
    return [f"{time_ms:.3f}" for time_ms in times_ms.tolist()]


def _losses(joined: Joined) -> Table | None:
    """A table of the flows that lost packets, those with most drops first; None if none did."""
    flows = len(joined.flows)
    packets = np.bincount(joined.arrivals.flow, minlength=flows)
    drops = np.bincount(joined.arrivals.flow[joined.verdict == Verdict.DROPPED], minlength=flows)
    losing = [row for row in np.argsort(-drops, kind="stable").tolist() if drops[row]]
    if not losing:
        return None
    table = forms.table("losses by flow", "packets", "dropped", "dropped (%)", wrapped=None)
    rows = []
    for row in losing[:MOST_FLOWS]:
        flow = joined.flows[row]
        ends = f"{with_port(flow.src, flow.sport)} to {with_port(flow.dst, flow.dport)}"
        rows.append(([row], ends))
    if rest := losing[MOST_FLOWS:]:
        rows.append((rest, f"{len(rest):,} more flows"))
    for of_flows, text in rows:
        came, lost = int(packets[of_flows].sum()), int(drops[of_flows].sum())
        table.add_row(text, f"{came:,}", f"{lost:,}", f"{100 * lost / came:.3f}")
    return table
