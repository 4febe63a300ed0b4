"""Joined captures, and the flows of one capture, in tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from outcast.analysis.capture.headers import TCP, UDP
from outcast.analysis.capture.pcap import PortCapture, interfaces_of, read_captures
from outcast.analysis.captured import SeenFlow
from outcast.analysis.join.doubts import PortCounts
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.machine_code import I64
from outcast.analysis.measure.blackout import Chains
from outcast.analysis.measure.estimates import ALL, Found
from outcast.errors import ConfigError, InputError
from outcast.plan.addresses import with_port
from outcast.records.captures import QueueEstimate
from outcast.view.terminal import forms

MOST_FLOWS = 8
"""The most flows that lost packets and have a row each."""


def parts(found: Found) -> Iterator[Table | str]:
    joined = found.joined
    yield _inputs(joined, found.chains)
    yield ""
    yield _waits(joined)
    yield ""
    if (losses := _losses(joined)) is not None:
        yield losses
        yield ""
    counts = joined.counts
    came = {
        "forwarded": counts.forwarded,
        "dropped": counts.dropped,
        "in flight": counts.in_flight,
        "before the output's capture": counts.before_output,
    }
    left = {
        "forwarded": counts.forwarded,
        "queued before the capture": counts.early,
        "duplicates": counts.duplicates,
        "unexplained": counts.unexplained,
    }
    yield _sum("in", counts.entered, came)
    yield _sum("out", counts.left, left)
    if counts.reordered:
        yield f"reordered {counts.reordered:,}"
    for estimate in found.estimates:
        yield from queue_lines(estimate)


def refused(ports: Sequence[PortCounts]) -> Iterator[str]:
    """The numbers of a refused join's ports; stamps in seconds since the first."""
    first_ns = min(port.first_ns for port in ports)
    rows: list[tuple[str, ...]] = []
    rows += [("port", "came in", "left", "never came in", "first (s)", "last (s)")]
    for port in ports:
        times = (f"{(ns - first_ns) / 1e9:.3f}" for ns in (port.first_ns, port.last_ns))
        counts = f"{port.came:,}", f"{port.left:,}", f"{port.unseen:,}"
        rows.append((port.port, *counts, *times))
    return forms.aligned(rows, left=(0,))


def _sum(what: str, whole: int, parts: Mapping[str, int]) -> str:
    terms = [f"{name} {count:,}" for name, count in parts.items() if count]
    return f"{what} {whole:,}" + (f" = {' + '.join(terms)}" if terms else "")


def _inputs(joined: Joined, chains: Chains) -> Table:
    heads = ("packets", "forwarded", "dropped", "unknown", "chains", "longest", "blackouts")
    table = forms.table("input", *heads, wrapped=None)
    for index, name in enumerate(joined.inputs):
        verdict = joined.verdict[joined.arrivals.port == index]
        of_port = chains.ingress == index
        through = chains.others_through[of_port]
        table.add_row(
            name,
            f"{verdict.size:,}",
            *(f"{(verdict == code).sum():,}" for code in Verdict),
            f"{of_port.sum():,}",
            str(int(chains.drops[of_port].max(initial=0))),
            # Less than 0 is unknown.
            "" if (through < 0).any() else str(int((through > 0).sum())),
        )
    return table


def queue_lines(estimate: QueueEstimate) -> Iterator[str]:
    """The estimated rate and limit of an output's queue, each if it is known."""
    if estimate.rate_bps is not None and estimate.rate_high_bps is not None:
        error = (estimate.rate_high_bps - estimate.rate_bps) / 1e6
        yield f"{estimate.port} sends {estimate.rate_bps / 1e6:.3f} Mbps, within {error:.3f}"
    if estimate.limit_at_least is not None:
        below = estimate.limit_below
        high = "" if below is None else f" and below {below:,}"
        least = f"{estimate.limit_at_least:,}{high} {estimate.limit_unit}"
        yield f"{estimate.port}'s queue has a limit of at least {least}"
        if (share := estimate.limit_explains or 0.0) < ALL:
            yield f"  which explains {share:.0%} of what it took and dropped"


def _waits(joined: Joined) -> Table:
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


MOST_SHOWN = 40
"""The most flows in a table for people."""

LIMITS = (
    "Of TCP as this one point saw it. sent again: data that had passed here; lost beyond, or sent "
    "needlessly. late: behind later data; lost or reordered before this point.",
    "RTT beyond: to the receiver and back. RTT before: to the sender and back, at most. Least and "
    "median, in ms. A packet that was lost and not sent again is not seen; `outcast join` of two "
    "points shows it.",
)


def read(path: Path, interface: str | None) -> PortCapture:
    """Reads one capture, or the packets of one of its interfaces.

    Raises:
        InputError: as `read_capture`, or it has no packets of IP.
        ConfigError: the file has several interfaces and none was named, or none has this name.
    """
    there = interfaces_of(path)
    named = [name for name in there if name]
    if interface is None and len(there) > 1:
        raise ConfigError(
            f"{path}: has packets of several interfaces, so packets are there twice; allowed is "
            f"--port with one of {', '.join(named)}, or `outcast join {path}`"
        )
    if interface is not None and interface not in there:
        names = f"there are {', '.join(named)}" if named else "its format names none"
        raise ConfigError(f"--port {interface}: {path} has no such interface; {names}")
    shared = () if interface is None else (path,)
    (capture,) = read_captures([(interface or "", path)], shared=shared)
    if not capture.columns.flow.size:
        raise InputError(f"{path}: has no packets of IP")
    return capture


def lines(flows: Sequence[SeenFlow], form: str) -> Iterator[str]:
    if form == "table":
        yield from _table(flows)
        return
    records = [_record(flow) for flow in flows]
    yield from forms.records(records, [*records[0]] if records else (), form)


def _record(flow: SeenFlow) -> dict[str, Any]:
    def ms(times_ns: Sequence[int] | np.ndarray[Any, Any], share: int) -> float | None:
        return float(np.percentile(times_ns, share)) / 1e6 if len(times_ns) else None

    goodput = flow.goodput_bps
    return {
        **{name: getattr(flow.key, name) for name in ("src", "sport", "dst", "dport")},
        "protocol": {TCP: "tcp", UDP: "udp"}.get(flow.key.protocol, str(flow.key.protocol)),
        "packets": flow.packets,
        "payload": flow.payload_bytes,
        "t_first": flow.first_ns,
        "t_last": flow.last_ns,
        "goodput_bps": None if goodput is None else round(goodput),
        "sent_again": flow.sent_again,
        "late": flow.late,
        "rtt_beyond_least_ms": ms(flow.beyond_ns, 0),
        "rtt_beyond_median_ms": ms(flow.beyond_ns, 50),
        "rtt_before_least_ms": ms(flow.before_ns, 0),
        "rtt_before_median_ms": ms(flow.before_ns, 50),
    }


def _table(flows: Sequence[SeenFlow]) -> Iterator[str]:
    heads = ("packets", "payload (B)", "seconds", "Mbps", "sent again", "late", "RTT beyond",
             "RTT before")  # fmt: skip
    rows = [("flow", *heads)]
    # A TCP direction without payload acknowledges that of another flow.
    carrying = [flow for flow in flows if flow.payload_bytes or flow.key.protocol != TCP]
    silent = [flow for flow in flows if not flow.payload_bytes and flow.key.protocol == TCP]
    flows, silent = (carrying, silent) if carrying else (flows, [])
    for flow in flows[:MOST_SHOWN]:
        record = _record(flow)
        key = flow.key
        kind = "" if key.protocol == TCP else f", {record['protocol']}"
        goodput = flow.goodput_bps
        cells = (
            f"{flow.packets:,}",
            f"{flow.payload_bytes:,}",
            f"{(flow.last_ns - flow.first_ns) / 1e9:.3f}",
            "" if goodput is None else f"{goodput / 1e6:.3f}",
            "" if flow.sent_again is None else f"{flow.sent_again:,}",
            "" if flow.late is None else f"{flow.late:,}",
            _pair(record, "rtt_beyond"),
            _pair(record, "rtt_before"),
        )
        ends = f"{with_port(key.src, key.sport)} to {with_port(key.dst, key.dport)}"
        rows.append((f"{ends}{kind}", *cells))
    yield from forms.aligned(rows, left=(0,))
    rest = flows[MOST_SHOWN:]
    if rest:
        yield f"and {len(rest):,} more flows of {sum(flow.packets for flow in rest):,} packets"
    if silent:
        packets = sum(flow.packets for flow in silent)
        yield f"and {packets:,} packets without payload, of {len(silent):,} other directions"
    yield from LIMITS


def _pair(record: dict[str, Any], name: str) -> str:
    least, median = record[f"{name}_least_ms"], record[f"{name}_median_ms"]
    return "" if least is None else f"{least:.3f} {median:.3f}"
