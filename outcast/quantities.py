"""Every quantity once: its names, unit and digits, what it is, and where it is shown.

The tables of the terminal and the report, the default columns of sweeps, the labels of axes and
the reference in docs/analysis.md follow from it. To add a quantity, add an entry here; with
`measure` the analysis also computes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from outcast.units import format_bps


def format_ratio(value: float | None) -> str:
    """Writes a ratio or an index: `0.123`, `7.042`, `98.7`."""
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def format_ns(time_ns: float | None) -> str:
    """Writes a time with three digits in milliseconds, or from 1 s on in seconds; `-` for None."""
    return "-" if time_ns is None else format_ms(time_ns / 1e6)


def format_ms(time_ms: float) -> str:
    """Writes a time with three digits in milliseconds, or from 1 s on in seconds."""
    return f"{time_ms:.3g} ms" if abs(time_ms) < 999.5 else f"{time_ms / 1000:#.3g} s"


def digits_of_ms(time_ms: float) -> str:
    """Writes milliseconds with three digits or more, without the unit."""
    if 0 < time_ms < 0.001:
        return "<0.001"
    return f"{time_ms:,.0f}" if time_ms >= 99.95 else f"{time_ms:.3g}"


@dataclass(frozen=True, slots=True)
class Form:
    """A way to write values; `unit` is the stored value's."""

    unit: str
    write: Callable[[Any], str]


TEXT = Form("", str)
COUNT = Form("", "{:,}".format)
BPS = Form("bit/s", format_bps)
RATIO = Form("", format_ratio)
SHARE = Form("", "{:.1%}".format)
RATE = Form("", "{:.2%}".format)
MS = Form("ms", format_ms)
NS = Form("ns", format_ns)
SHORT_MS = Form("ms", digits_of_ms)
SHORT_NS = Form("ns", lambda value: digits_of_ms(value / 1e6))
SECONDS = Form("s", "{:.4g}".format)
KIB = Form("bytes", lambda value: f"{value / 1024:.2f}")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity of one kind of row.

    Attributes:
        level: the kind of row, as `class` or `flow`; see PLACES.
        key: its key in summary.json or its column, with dots between levels.
        head: its short name in a table of 80 columns, perhaps of several lines.
        label: its name in the report and on axes.
        shown: the screens: `run` (the end of a run), `show` (`outcast show`), `report`, `sweep`.
        definition: a phrase for the reference; empty if the label says it all.
        measure: the function that computes it, `module:function` in outcast/analysis/measure. It
            takes the Analysis; for a class also its FlowRecords, for an output its PortAnalysis,
            for a flow its FlowRecord. It returns a number or None for summary.json, or for
            flows.parquet.
    """

    level: str
    key: str
    head: str
    label: str
    form: Form
    shown: str = "show report"
    definition: str = ""
    measure: str = ""

    @property
    def is_text(self) -> bool:
        """Whether its cells stand on the left."""
        return self.form is TEXT

    def write(self, value: Any) -> str:
        """A value as people read it; `-` for None."""
        return "-" if value is None else value if isinstance(value, str) else self.form.write(value)


PLACES: Mapping[str, str] = {
    "run": "",
    "class": r"classes\.\d+\.|groups\.[a-z_]+\..+\.",
    "output": r"queue\..+\.",
    "workload": r"completions\.\d+\.",
    "program": r"programs\..+\.",
    "probe": r"probes\.\d+\.",
}
"""The beginning of a level's columns in a sweep's table of runs, as a regular expression."""

# fmt: off
TABLE: tuple[Quantity, ...] = tuple(Quantity(*row) for row in (
    ("run", "outcast_ratio", "ratio", "outcast ratio", RATIO, "report sweep",
     "mean goodput of the class with the most hops over that of the class with the fewest"),
    ("run", "jain_index", "Jain", "Jain's index", RATIO, "report sweep",
     "1 where all n flows get the same, 1/n where one gets all (Jain, Chiu and Hawe, 1984)"),
    ("run", "total_goodput_bps", "goodput", "total goodput", BPS, "report sweep",
     "goodput of all flows of `flows`"),

    ("class", "group", "class", "class", TEXT, "run show report"),
    ("class", "flows", "flows", "flows", COUNT, "run show report"),
    ("class", "mean_goodput_bps", "goodput\na flow", "mean goodput", BPS, "run show report sweep",
     "payload, each byte once, that left the bottleneck in the interval; mean of a flow"),
    ("class", "min_goodput_bps", "least", "least goodput", BPS, "show report",
     "that of the flow that got least"),
    ("class", "share", "share", "share", SHARE, "run show report", "of the goodput of all flows"),
    ("class", "packets", "packets", "packets", COUNT, "report", "that came to the bottleneck"),
    ("class", "dropped", "drops", "drops", COUNT, "run report", "of these packets"),
    ("class", "retransmits", "re-\ntrans-\nmits", "retransmits", COUNT, "show report",
     "segments sent again, as the senders' kernels count"),
    ("class", "timeouts", "time-\nouts", "timeouts", COUNT, "run show report",
     "expired retransmission timers (RFC 6298), as the senders' kernels count"),
    ("class", "retransmissions_seen", "re-\ntrans-\nmits", "retransmissions", COUNT, "show report",
     "retransmissions that came to the bottleneck"),
    ("class", "halted_share", "RTO\nwait", "waiting for timeouts", SHARE, "show report",
     "share of the flows' active time before a timeout, by the bottleneck's packets"),
    ("class", "rtt_p50_ms", "RTT\n(ms)", "RTT, median (ms)", SHORT_MS, "show report",
     "smoothed round trips of the senders' sockets, or those timed at the bottleneck"),
    ("class", "queueing_ms.p50", "queue-\ning\n(ms)", "queueing, median (ms)", SHORT_MS,
     "show report", "from the bottleneck's input to its output, without the link's delay"),
    ("class", "times.p50_ms", "", "completion, median", MS, "report",
     "from the planned start to the last new byte, of flows with a size"),
    ("class", "times.max_ms", "", "completion, longest", MS, "report"),

    ("flow", "flow", "flow", "flow", TEXT),
    ("flow", "src", "from", "from", TEXT),
    ("flow", "dst", "to", "to", TEXT, ""),
    ("flow", "group", "class", "class", TEXT),
    ("flow", "hops", "hops", "hops", COUNT, "report", "links between sender and receiver"),
    ("flow", "goodput_bps", "goodput", "goodput", BPS, "show report",
     "payload, each byte once, that left the bottleneck in the interval, over its length"),
    ("flow", "share", "share", "share", SHARE, "show report", "of the goodput of all flows"),
    ("flow", "dropped", "drops", "drops", COUNT, "show report",
     "packets that the first studied queue on its path dropped"),
    ("flow", "longest_chain", "long-\nest\nchain", "longest chain", COUNT, "show report",
     "most packets of it dropped in a row"),
    ("flow", "retransmits", "re-\ntrans-\nmits", "retransmits", COUNT, "show report",
     "as the kernel counts at the sender"),
    ("flow", "timeouts", "time-\nouts", "timeouts", COUNT, "show report",
     "as the kernel counts at the sender"),
    ("flow", "retransmissions_seen", "re-\ntrans-\nmits", "retransmissions", COUNT, "show report",
     "retransmissions that came to the bottleneck"),
    ("flow", "queueing_p50_ns", "median\nqueue-\ning\n(ms)", "queueing, median (ms)", SHORT_NS,
     "show report", "from the queue's input to its output, without the link's delay"),
    ("flow", "completion_ns", "took\n(ms)", "took (ms)", SHORT_NS, "show report",
     "from the planned start to the last new byte; null if not all bytes left"),

    ("input", "ingress", "input port", "input port", TEXT),
    ("input", "egress", "output", "output", TEXT),
    ("input", "flows_of", "flows of", "flows of", TEXT),
    ("input", "packets", "packets", "packets", COUNT, "show report", "that came in"),
    ("input", "dropped", "dropped", "dropped", COUNT, "show report", "of these packets"),
    ("input", "drop_rate", "rate", "rate", RATE, "show report", "dropped over packets"),
    ("input", "longest_chain", "longest\nchain", "longest chain", COUNT, "show report",
     "most packets of this port dropped in a row"),
    ("input", "blackouts", "black-\nouts", "blackouts", COUNT, "show report",
     "chains of drops during which packets of other ports got through"),
    ("input", "kept", "phase\nkept", "phase kept", SHARE, "show report",
     "share of its place between two departures that an input has 64 to 256 packet times later"),

    ("output", "output", "output", "output", TEXT),
    ("output", "utilisation", "used", "utilisation", SHARE, "show report",
     "rate of the frames that left over the link's rate"),
    ("output", "length_bytes.mean", "mean\n(KiB)", "length, mean (KiB)", KIB),
    ("output", "length_bytes.p99", "99 %\n(KiB)", "length, 99 % (KiB)", KIB),
    ("output", "length_bytes.max", "most\n(KiB)", "length, most (KiB)", KIB),
    ("output", "sojourn_ms.p50", "sojourn\nmedian", "sojourn, median", MS, "show report",
     "from port to port, with the link's own delay"),
    ("output", "sojourn_ms.p99", "99 %", "sojourn, 99 %", MS),
    ("output", "sojourn_ms.max", "most", "sojourn, most", MS, "report"),
    ("output", "empty_ms", "when\nempty", "sojourn when empty", MS, "report",
     "median of packets that find the queue empty; they may wait for a frame on the link"),
    ("output", "full_s", "full\n(s)", "time full (s)", SECONDS, "show report",
     "how long a queue with a limit in bytes had no room for a full frame", "port_summary:full_s"),
    ("output", "marks", "ECN\nmarks", "ECN marks", COUNT, "show report", "packets marked"),

    ("port", "port", "port", "port", TEXT),
    ("port", "node", "from", "from", TEXT),
    ("port", "neighbour", "to", "to", TEXT),
    ("port", "cause", "cause", "cause", TEXT),
    ("port", "packets", "sent", "sent", COUNT, "show report", "that the port sent"),
    ("port", "lost_packets", "lost", "lost", COUNT, "show report",
     "at its queue, on its link or at the far end, by the kernels' counters"),
    ("port", "loss_rate", "rate", "rate", RATE, "show report",
     "lost over what the port sent or its queue refused"),
    ("port", "elsewhere", "", "not in the drops below", COUNT, "report",
     "lost, and not by a captured queue"),

    ("limit", "flow", "limited by", "flow", TEXT),
    ("limit", "src", "from", "from", TEXT),
    ("limit", "network", "network", "network", SHARE, "show report", "by the congestion window"),
    ("limit", "receiver", "receiver", "receiver", SHARE, "show report", "by its window"),
    ("limit", "send_buffer", "send\nbuffer", "send buffer", SHARE, "show report",
     "by the sender's own buffer"),
    ("limit", "application", "application", "application", SHARE, "show report",
     "there was nothing to send"),
    ("limit", "timeout", "timeout", "timeout", SHARE, "show report", "waiting for a timeout"),
    ("limit", "pacing", "pacing", "pacing", SHARE, "show report", "by a rate set for pacing"),

    ("stream", "flow", "UDP\nflow", "flow", TEXT),
    ("stream", "src", "from", "from", TEXT),
    ("stream", "dst", "to", "to", TEXT),
    ("stream", "sending", "time\n(s)", "sending (s)", TEXT),
    ("stream", "sent_bps", "sent", "sent", BPS, "show report",
     "payload, over the time in which it was to send"),
    ("stream", "received_bps", "received", "received", BPS),
    ("stream", "sent", "", "datagrams sent", COUNT, "report"),
    ("stream", "received", "", "received", COUNT, "report"),
    ("stream", "loss_share", "lost", "lost", RATE, "show report", "datagrams lost, of those sent"),
    ("stream", "delay_mean", "mean\ndelay", "mean delay", NS, "show report",
     "sojourn time at the captured queue, with its link's delay"),
    ("stream", "delay_p50", "", "median", NS, "report"),
    ("stream", "delay_p99", "99 %", "99 %", NS),
    ("stream", "jitter", "jitter", "jitter", NS, "show report",
     "mean difference between delays of packets in a row (RFC 3550, 6.4.1)"),

    ("workload", "workload", "workload", "workload", TEXT, "run show report"),
    ("workload", "size", "size", "size", TEXT),
    ("workload", "ended", "flows\nended", "flows ended", TEXT, "run show report"),
    ("workload", "goodput_bps", "goodput", "goodput", BPS, "run show report sweep",
     "bytes that arrived, from the first start to the end of the last flow"),
    ("workload", "times.all.mean_ms", "mean", "mean time", MS),
    ("workload", "times.all.p50_ms", "median", "median completion time", MS,
     "run show report sweep", "from a flow's planned start to its last byte"),
    ("workload", "times.all.p99_ms", "99 %", "99 %", MS),
    ("workload", "times.all.max_ms", "longest", "longest completion time", MS,
     "run show report sweep"),
    ("workload", "streams.loss_share", "lost", "lost", RATE, "run show report sweep",
     "datagrams lost, of those sent"),
    ("workload", "streams.delay_ms.mean", "mean\ndelay", "mean delay", MS, "run show report sweep",
     "sojourn time at the captured queue"),
    ("workload", "timeouts", "time-\nouts", "timeouts", COUNT, "run show report sweep"),

    ("program", "program", "program", "program", TEXT, "run show report"),
    ("program", "host", "host", "host", TEXT, "run show report"),
    ("program", "times", "executions", "executions", TEXT, "run show report"),
    ("program", "failures", "failed", "failed", COUNT, "run show report",
     "executions with another exit status than 0, or ended late"),
    ("program", "time_ms.mean", "mean", "mean time", MS),
    ("program", "time_ms.p50", "median", "median time", MS, "run show report sweep",
     "how long executions took that ended well"),
    ("program", "time_ms.p90", "90 %", "90 %", MS),
    ("program", "time_ms.max", "most", "most", MS, "run show report"),

    ("probe", "probe", "probe", "probe", TEXT, "run show report"),
    ("probe", "payload_bytes", "", "payload (B)", COUNT, "report"),
    ("probe", "sent", "sent", "sent", COUNT, "run show report"),
    ("probe", "lost", "lost", "lost", COUNT, "run show report", "packets without an answer"),
    ("probe", "base_rtt_ms", "without\nqueues", "without queues", MS, "run show report",
     "the links' delays and the times of both frames"),
    ("probe", "rtt_ms.p50", "median", "median round trip", MS, "run show report sweep",
     "round trip of those answered"),
    ("probe", "rtt_ms.p90", "90 %", "90 %", MS),
    ("probe", "rtt_ms.p99", "99 %", "99 % round trip", MS, "run show report sweep"),
    ("probe", "rtt_ms.max", "most", "most", MS, "run show report"),

    ("service", "output", "output", "output", TEXT),
    ("service", "class", "class", "class", TEXT),
    ("service", "points", "DSCP", "DSCP", TEXT),
    ("service", "packets", "packets", "packets", COUNT, "show report", "that came in"),
    ("service", "dropped", "dropped", "dropped", COUNT, "show report", "of these packets"),
    ("service", "rate_bps", "rate", "rate", BPS, "show report", "of the frames that left"),
    ("service", "queueing_ms.p50", "queueing", "queueing, median", MS, "show report",
     "from the input to the output, without the link's delay"),
    ("service", "queueing_ms.p99", "99 %", "99 %", MS),
))
# fmt: on


def of(level: str, screen: str = "") -> Iterator[Quantity]:
    """The quantities of a kind of row, in the order of columns; all, or a screen's."""
    return (
        quantity
        for quantity in TABLE
        if quantity.level == level and (not screen or screen in quantity.shown.split())
    )


def at(row: Any, key: str) -> Any:
    """The value of a key with dots in records and mappings; None where a part of it is missing."""
    if isinstance(row, Mapping) and key in row:
        return row[key]
    for part in key.split("."):
        row = row.get(part) if isinstance(row, Mapping) else getattr(row, part, None)
    return row


@cache
def of_column(name: str) -> Quantity | None:
    """The quantity of a column of a sweep's runs, as `completions.0.goodput_bps`."""
    for quantity in TABLE:
        place = PLACES.get(quantity.level)
        if place is None or not name.endswith(quantity.key):
            continue
        if re.fullmatch(place, name.removesuffix(quantity.key)):
            return quantity
    return None
