"""What the senders' kernels counted: timeouts, windows, and what kept each flow from sending more.

A Linux sender counts the time with data under way, and the part of it in which the receiver's
window held it back (tcp_chrono_start in net/ipv4/tcp_output.c; tcpi_busy_time, tcpi_rwnd_limited
and tcpi_sndbuf_limited of linux/tcp.h). The rest of the time it had nothing to send. The time in
which its own buffer held it back comes from samples too, because the kernel's clock misses a part.
Waits for timeouts come from the packets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from outcast.analysis.run_analysis import Analysis, Interval
from outcast.errors import some_of
from outcast.experiment.queues import WITH_CLASSES
from outcast.records.counters import HostCounters
from outcast.records.flows import FlowRecord, QueueRecord
from outcast.records.port_summaries import NoiseSummary
from outcast.records.summary import LimitSummary, SynchronisationSummary
from outcast.units import format_rate

_AT_HOSTS = {"timeouts": "TcpExtTCPTimeouts", "retransmits": "TcpRetransSegs"}
MOST_AWAY = 20
"""A sample may be at most 1/MOST_AWAY of the interval's length from its end."""


class KernelCounts:
    """Timeouts and retransmits of any flows of a run, as the senders' kernels count.

    A host counts for all its flows, at the start and the end of the duration. In a part of the
    duration the samples of the flows' sockets count.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._sent_by = Counter(record.src for record in analysis.manifest.flows)
        sockets = analysis.sockets
        self._grown = {} if sockets is None else grown(sockets, analysis.interval)

    def of(self, records: Sequence[FlowRecord]) -> dict[str, int | None]:
        """Their `timeouts` and `retransmits` together; None if not known."""
        if not self._analysis.is_whole:
            return {name: self._sampled(records, name) for name in _AT_HOSTS}
        hosts = {record.src for record in records}
        counters = self._analysis.counters.hosts
        # A host that also sends other flows counts theirs too.
        alone = sum(self._sent_by[host] for host in hosts) == len(records)
        known = hosts <= counters.keys() and not hosts & {*self._analysis.manifest.generated_hosts}
        if not (alone and known):
            return dict.fromkeys(_AT_HOSTS)
        return {
            key: sum(counters[host].within(name) for host in hosts)
            for key, name in _AT_HOSTS.items()
        }

    def _sampled(self, records: Sequence[FlowRecord], name: str) -> int | None:
        counts = [self._grown.get(record.flow, {}).get(name) for record in records]
        known = [count for count in counts if count is not None]
        return sum(known) if records and len(known) == len(counts) else None


def grown(sockets: pl.DataFrame, interval: Interval) -> dict[int, dict[str, int | None]]:
    """How much each flow's counters grew between the samples nearest to an interval's ends.

    A counter is None if the kernel lacks it, or if no sample is nearer to an end than a twentieth
    of the interval. Sockets of one flow (Multipath TCP) add up.
    """
    most_ns = (interval.end_ns - interval.start_ns) / MOST_AWAY
    sides = []
    for at_ns in (interval.start_ns, interval.end_ns):
        away_ns = (pl.col("t") - at_ns).abs()
        # Before its first sample and after its last one a socket counts nothing.
        is_known = (
            (away_ns.min() <= most_ns) | (at_ns < pl.col("t").min()) | (at_ns > pl.col("t").max())
        )
        value = pl.col(*_AT_HOSTS).sort_by(away_ns).first().cast(pl.Int64)
        of_side = sockets.group_by("flow", "sport").agg(pl.when(is_known).then(value))
        sides.append(of_side.sort("flow", "sport"))
    first, last = sides
    growth = last.select("flow", *(last[name] - first[name] for name in _AT_HOSTS))
    # A sum with a null in it is unknown, where polars leaves nulls out.
    summed = growth.group_by("flow").agg(
        pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()) for name in _AT_HOSTS
    )
    return {row.pop("flow"): row for row in summed.iter_rows(named=True)}


def counted(analysis: Analysis) -> pl.DataFrame:
    """The samples of the main interval, each while its flow was active; the run has samples."""
    assert analysis.sockets is not None
    samples = while_active(analysis.sockets, analysis.manifest.flows)
    return samples.filter(analysis.interval.has(samples["t"].to_numpy()))


def synchronisation(samples: pl.DataFrame) -> SynchronisationSummary | None:
    """Pearson's correlation of every pair of flows' windows, over the times that all have samples.

    None with fewer than LEAST_SAMPLES such times, or if fewer than two flows' windows ever changed.
    """
    wide = samples.pivot("flow", index="t", values="cwnd").drop_nulls()
    if wide.height < LEAST_SAMPLES:
        return None
    windows = wide.drop("t").to_numpy().astype(float)
    windows = windows[:, windows.std(axis=0) > 0]
    if windows.shape[1] < 2:
        return None
    correlations = np.corrcoef(windows, rowvar=False)[np.triu_indices(windows.shape[1], 1)]
    return SynchronisationSummary(
        flows=windows.shape[1],
        samples=wide.height,
        mean=round(float(correlations.mean()), 6),
        min=round(float(correlations.min()), 6),
        max=round(float(correlations.max()), 6),
    )


MOST_ELSEWHERE = 0.1
"""A run warns if something besides the network limits a bulk flow for a larger share of time."""
MOST_SLOW = 1.02
"""A run warns if waiting full frames left at gaps this many times as long as their rate gives."""
LEAST_SAMPLES = 10
"""With fewer there is no correlation, and only a lower bound of a send buffer's share."""
_PRESSURE = "TcpExtTCPMemoryPressures"
_KEYS = {
    "receiver": "the receiver's window (transport.receive_buffer)",
    "send_buffer": "its own send buffer (transport.send_buffer)",
    "pacing": "its pacing rate (transport.pacing_rate)",
    "application": "its application, which had nothing to send",
}
_EITHER = (
    "the receiver's window or its own send buffer (transport.receive_buffer, "
    "transport.send_buffer; of Multipath TCP the kernel does not show which)"
)


def limits(
    sockets: pl.DataFrame, flows: Sequence[tuple[FlowRecord, Interval, float]]
) -> dict[str, LimitSummary]:
    """How each flow's time divides, by its number; none with less than two samples or no clocks.

    `flows` gives each flow's planned sending times, and how many seconds it waited for timeouts.
    """
    result = {}
    sockets = sockets.with_columns(
        highest_pace_bps=pl.col("pacing_rate_bps").max().over("flow", "sport")
    )
    for record, span, halted_s in flows:
        mine = sockets.filter(
            pl.col("flow") == record.flow, pl.col("t").is_between(span.start_ns, span.end_ns)
        )
        steps = _steps(mine, record.size_bytes).drop_nulls(["us", "busy_us"])
        time_us = float(steps["us"].sum())
        if not time_us:
            continue
        # Multipath TCP's windows and buffers belong to the connection, sockets to subflows.
        is_multipath = bool(record.subflows)
        is_known = mine.height >= LEAST_SAMPLES and not is_multipath
        buffered = "buffer_us" if is_known else "sndbuf_limited_us"
        busy, receiver, buffer, pacing = (
            float(steps[name].sum()) / time_us
            for name in ("busy_us", "rwnd_limited_us", buffered, "paced_us")
        )
        application = max(0.0, 1 - busy)
        halted = halted_s * 1e9 / (span.end_ns - span.start_ns)
        timeout = min(halted, max(0.0, 1 - application - receiver - buffer))
        pacing = min(pacing, max(0.0, 1 - application - receiver - buffer - timeout))
        others = application + receiver + buffer + timeout + pacing
        result[str(record.flow)] = LimitSummary(
            network=round(max(0.0, 1 - others), 4),
            receiver=None if is_multipath else round(min(receiver, 1.0), 4),
            send_buffer=None if is_multipath else round(min(buffer, 1.0), 4),
            application=round(application, 4),
            timeout=round(timeout, 4),
            pacing=round(pacing, 4),
            at_least=not is_known and not is_multipath,
        )
    return result


def _steps(samples: pl.DataFrame, size_bytes: int | None) -> pl.DataFrame:
    """By how much clocks grew from each sample of a flow to the next; `us` is the time between.

    `buffer_us` is how long the send buffer held the flow back. The kernel's own clock misses a part
    of it: the clock starts where a write finds the buffer full and all of it sent, counts whole
    jiffies, and ends once a third is free again. A program that always has data leaves nothing
    unsent only where the buffer is full. So the buffer limits where less than a segment is unsent
    although both windows are open, and within a round trip of that, while a refill goes out. A flow
    of `size_bytes` has no more data once it has sent them all.

    `paced_us` is how long a rate that was set for pacing held it back: both windows are open, and
    something is unsent. Such a rate is the flow's highest, and less than the congestion window
    would give. TCP's own pacing rates are higher; BBR's rates vary.
    """
    has_room = (pl.col("unacked") < pl.col("cwnd")) & (
        (pl.col("unacked") + 1) * pl.col("mss") <= pl.col("snd_wnd")
    )
    if size_bytes is not None:
        has_room &= pl.col("bytes_sent") - pl.col("bytes_retrans") < size_bytes
    drained_ns = pl.when(has_room & (pl.col("notsent_bytes") < pl.col("mss"))).then("t")
    since_ns = pl.col("t") - drained_ns.forward_fill()
    until_ns = drained_ns.backward_fill() - pl.col("t")
    held = has_room & (pl.min_horizontal(since_ns, until_ns) <= pl.col("srtt_us") * 1000)
    pace_bps = pl.col("pacing_rate_bps")
    by_window_bps = pl.col("cwnd") * pl.col("mss") * 8e6 / pl.col("srtt_us")
    is_set = (pace_bps == pl.col("highest_pace_bps")) & (pace_bps < by_window_bps)
    paced = has_room & (pl.col("notsent_bytes") >= pl.col("mss")) & is_set
    clocks = ("busy_us", "rwnd_limited_us", "sndbuf_limited_us")
    steps = samples.select(
        "sport",
        (pl.col("t").diff() / 1000).over("sport").alias("us"),
        *(pl.col(name).cast(pl.Int64).diff().over("sport") for name in clocks),
        _share(held).over("sport").alias("held"),
        _share(paced).over("sport").alias("paced"),
    )
    most_us = pl.min_horizontal("us", "busy_us") - pl.col("rwnd_limited_us")
    return steps.with_columns(
        buffer_us=pl.max_horizontal("sndbuf_limited_us", pl.col("held") * most_us),
        paced_us=pl.col("paced") * most_us,
    )


def _share(is_so: pl.Expr) -> pl.Expr:
    """The share of the time since the previous sample in which the condition held."""
    now = is_so.fill_null(value=False).cast(pl.Float64)
    return (now + now.shift()) / 2


def limit_warnings(limited: Mapping[str, LimitSummary]) -> list[str]:
    """A line on each cause that limits bulk flows for much of their time, besides the network."""
    lines = []
    causes = {cause: {f: getattr(p, cause) or 0 for f, p in limited.items()} for cause in _KEYS}
    causes[_EITHER] = {flow: part.untold for flow, part in limited.items()}
    for cause, shares in causes.items():
        named = [flow for flow, share in shares.items() if share > MOST_ELSEWHERE]
        if named:
            most = max(named, key=lambda flow: shares[flow])
            which = f"flow {most}" if len(named) == 1 else f"{len(named)} flows, most flow {most}"
            bound = "at least " if cause == "send_buffer" and limited[most].at_least else ""
            lines.append(
                f"{which}, limited for {bound}{shares[most]:.0%} of the time by "
                f"{_KEYS.get(cause, _EITHER)}; then "
                "congestion control did not decide how much was under way"
            )
    return lines


def memory_warnings(hosts: Mapping[str, HostCounters]) -> list[str]:
    """A line if TCP ran out of memory (tcp_mem in tcp(7)), which all hosts of a kernel share."""
    found = [host for host, record in hosts.items() if record.within(_PRESSURE)]
    line = (
        f"TCP lacked memory at {some_of(found, 3)}, so the kernel cut windows, also of other "
        "hosts, which share it; smaller buffers (transport.send_buffer, transport.receive_buffer) "
        "avoid it"
    )
    return [line] if found else []


def slow_warnings(egress: str, queue: QueueRecord, noises: Mapping[str, NoiseSummary]) -> list[str]:
    """A line on a port that sent more slowly than its rate while full frames waited."""
    of_nominal = noises[egress].mean_of_nominal
    # Classes and a user's qdisc may hold back what waits.
    is_free = queue.kind not in ("custom", *WITH_CLASSES)
    if not is_free or not queue.rate_bps or not of_nominal or of_nominal <= MOST_SLOW:
        return []
    return [
        f"{egress}: while packets waited, it sent {1 - 1 / of_nominal:.1%} less than its rate of "
        f"{format_rate(queue.rate_bps)}, because its shaper's timer was late or the processor was "
        "busy; a larger queue.burst lets it catch up"
    ]


def while_active(samples: pl.DataFrame, flows: Sequence[FlowRecord]) -> pl.DataFrame:
    """The samples of each flow from its planned start until its last one with data.

    A socket is there before its flow starts, since it connects early, and may stay after it. Then
    it shows its last values, which are those of the handshake before the start.
    """
    starts_ns = {flow.flow: flow.start_ns for flow in flows}
    start_ns = pl.col("flow").replace_strict(starts_ns, default=None, return_dtype=pl.Int64)
    has_data = (pl.col("unacked") > 0) | (pl.col("notsent_bytes").fill_null(0) > 0)
    last_ns = pl.when(has_data).then("t").max().over("flow")
    return samples.filter(pl.col("t").is_between(start_ns, last_ns))
