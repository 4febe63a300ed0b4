"""Lists the flows of one capture, for people and for programs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from outcast.analysis.capture.headers import TCP, UDP
from outcast.analysis.capture.pcap import PortCapture, interfaces_of, read_captures
from outcast.analysis.captured import SeenFlow
from outcast.errors import ConfigError, InputError
from outcast.plan.addresses import with_port
from outcast.view.terminal import forms

MOST_SHOWN = 40
"""So many flows are in a table for people."""

LIMITS = (
    "Of TCP as this one point saw it. sent again: data that had passed here; lost beyond, or sent "
    "needlessly. late: behind later data; lost or reordered before this point.",
    "RTT beyond: to the receiver and back. RTT before: to the sender and back, at most. Least and "
    "median, in ms. What was lost and not sent again is not seen; `outcast join` of two points "
    "tells it.",
)


def read(path: Path, interface: str | None) -> PortCapture:
    """Reads one capture, or what one of its interfaces captured.

    Raises:
        InputError: as `read_capture`, or it has no packets of IP.
        ConfigError: it has packets of several interfaces and none is named, or not this one.
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
    """Flows as lines of text; `form` is table, csv or json."""
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
