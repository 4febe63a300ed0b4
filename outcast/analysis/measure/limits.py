"""What kept each flow from sending more: how its time divides, by the sender's own clocks.

A Linux sender counts for how long it had data under way, and for how much of that the receiver's
window held it back (tcp_chrono_start in net/ipv4/tcp_output.c; tcpi_busy_time, tcpi_rwnd_limited
and tcpi_sndbuf_limited of linux/tcp.h). The rest of its time it had nothing to send. For how long
its own buffer did comes from samples too, because the kernel's clock of that has only a part of it.
Waits for timeouts come from the packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from outcast.analysis.measure.losses import where
from outcast.experiment.queues import WITH_CLASSES
from outcast.records.counters import HostCounters
from outcast.records.flows import FlowRecord, QueueRecord
from outcast.records.port_summaries import LossSummary, NoiseSummary
from outcast.records.summary import LimitSummary
from outcast.units import format_rate

MOST_ELSEWHERE = 0.1
"""If something besides the network limits a bulk flow for more of its time, the run says so."""
MOST_IDLE = 0.5
"""If the bottleneck is idle for more of the time, though its flows have data, the run says so."""
MOST_SLOW = 1.02
"""If full frames that waited left farther apart than their rate says, by more, the run says so."""
LEAST_SAMPLES = 10
"""With fewer samples of a flow, only a lower bound of its send buffer's share is known."""
LEAST_FULL = 0.9
"""A port that is busy for so much of the time has packets waiting."""
_PRESSURE = "TcpExtTCPMemoryPressures"
_MOST_NAMED = 3
_KEYS = {
    "receiver": "the receiver's window (transport.receive_buffer)",
    "send_buffer": "its own send buffer (transport.send_buffer)",
    "pacing": "its pacing rate (transport.pacing_rate)",
    "application": "its application, which had nothing to send",
}
_UNTOLD = (
    "the receiver's window or its own send buffer (transport.receive_buffer, "
    "transport.send_buffer; the kernel does not tell which of the two limits Multipath TCP)"
)


@dataclass(frozen=True, slots=True)
class FlowSpan:
    """When a flow was to send, in nanoseconds after the traffic's start, and its waits for RTOs."""

    record: FlowRecord
    start_ns: int
    end_ns: int
    halted_s: float


def limits(sockets: pl.DataFrame, spans: list[FlowSpan]) -> dict[str, LimitSummary]:
    """How each flow's time divides, by its number; none with less than two samples or no clocks."""
    result = {}
    sockets = sockets.with_columns(
        highest_pace_bps=pl.col("pacing_rate_bps").max().over("flow", "sport")
    )
    for span in spans:
        mine = sockets.filter(
            pl.col("flow") == span.record.flow, pl.col("t").is_between(span.start_ns, span.end_ns)
        )
        steps = _steps(mine, span.record.size_bytes).drop_nulls(["us", "busy_us"])
        time_us = float(steps["us"].sum())
        if not time_us:
            continue
        # Multipath TCP's windows and buffers are of the connection; its sockets are of subflows.
        is_multipath = bool(span.record.subflows)
        is_known = mine.height >= LEAST_SAMPLES and not is_multipath
        buffered = "buffer_us" if is_known else "sndbuf_limited_us"
        busy, receiver, buffer, pacing = (
            float(steps[name].sum()) / time_us
            for name in ("busy_us", "rwnd_limited_us", buffered, "paced_us")
        )
        halted = span.halted_s * 1e9 / (span.end_ns - span.start_ns)
        application = max(0.0, 1 - busy)
        timeout = min(halted, max(0.0, 1 - application - receiver - buffer))
        pacing = min(pacing, max(0.0, 1 - application - receiver - buffer - timeout))
        others = application + receiver + buffer + timeout + pacing
        result[str(span.record.flow)] = LimitSummary(
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

    `buffer_us` is how long the send buffer held the flow back, of which the kernel's own clock has
    a part: it starts where a write finds the buffer full and all of it sent, counts whole jiffies,
    and ends once a third is free again. A program that always has data leaves nothing unsent only
    where the buffer holds no more. So the buffer limits where less than a segment is unsent,
    although both windows have room; and within a round trip of that, while a refill goes out. A
    flow of `size_bytes` has no more data once it has sent them all.

    `paced_us` is how long a rate that was set for pacing held it back: both windows have room, and
    something is unsent. Such a rate is the flow's highest, and less than the congestion window
    would give. TCP's own rates are higher than that, and BBR's change.
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
    """For how much of the time since the sample before something was so."""
    now = is_so.fill_null(value=False).cast(pl.Float64)
    return (now + now.shift()) / 2


def limit_warnings(limited: Mapping[str, LimitSummary]) -> list[str]:
    """A line on each cause that limits bulk flows for much of their time, besides the network."""
    lines = []
    causes = {cause: {f: getattr(p, cause) or 0 for f, p in limited.items()} for cause in _KEYS}
    causes[_UNTOLD] = {flow: part.untold for flow, part in limited.items()}
    for cause, shares in causes.items():
        named = [flow for flow, share in shares.items() if share > MOST_ELSEWHERE]
        if named:
            most = max(named, key=lambda flow: shares[flow])
            those = f"flow {most}" if len(named) == 1 else f"{len(named)} flows, most flow {most}"
            bound = "at least " if cause == "send_buffer" and limited[most].at_least else ""
            lines.append(
                f"{those}, limited for {bound}{shares[most]:.0%} of the time by "
                f"{_KEYS.get(cause, _UNTOLD)}; then "
                "congestion control did not decide how much was under way"
            )
    return lines


def memory_warnings(hosts: Mapping[str, HostCounters]) -> list[str]:
    """A line if TCP ran out of memory (tcp_mem in tcp(7)), which all hosts of a kernel share."""
    found = [host for host, record in hosts.items() if record.within(_PRESSURE)]
    if not found:
        return []
    more = " and more" if len(found) > _MOST_NAMED else ""
    return [
        f"TCP lacked memory at {', '.join(found[:_MOST_NAMED])}{more}, so the kernel cut windows"
        ", also of other hosts, which share it; smaller buffers (transport.send_buffer, "
        "transport.receive_buffer) avoid it"
    ]


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


def idle_warnings(
    egress: str,
    utilisation: float | None,
    is_unused: bool,
    limited: Mapping[str, LimitSummary],
    losses: LossSummary | None,
    before: tuple[str, float] | None,
    answers: Mapping[str, float],
) -> list[str]:
    """A line if a bottleneck or its queue (`is_unused`) had little to do though flows had data.

    `before` is another port on the flows' way that was busy, with its utilisation. `answers` has
    that of each port that acknowledgements leave by.
    """
    if utilisation is None or not limited:
        return []
    is_idle = 1 - utilisation > MOST_IDLE
    if not (is_idle or is_unused):
        return []
    wanting = [part.network + part.timeout for part in limited.values()]
    if max(wanting) < 1 - MOST_ELSEWHERE:
        return []
    waited = sum(part.timeout for part in limited.values()) / len(limited)
    share, fullest = max(((share, port) for port, share in answers.items()), default=(0.0, ""))
    if share >= LEAST_FULL:
        why = f"acknowledgements waited at {fullest}, which was busy for {share:.0%} of the time"
    elif before is not None:
        why = f"packets waited at {before[0]}, which was busy for {before[1]:.0%} of the time"
    elif losses is not None and 2 * losses.causes.get("link", 0) > losses.total:
        why = (
            f"links lost packets by their own settings, which keeps windows small: {where(losses)}"
        )
    elif losses is not None and losses.elsewhere > losses.bottleneck:
        why = f"packets waited and were lost elsewhere: {where(losses)}"
    elif is_idle and 2 * waited >= 1 - utilisation:
        why = f"a flow waited for timeouts for {waited:.0%} of its time on average"
    else:
        why = "small congestion windows, or a queue elsewhere, held them back"
    what = f"{egress} was idle for {1 - utilisation:.0%} of the time"
    if not is_idle:
        what = f"the queue of {egress} was hardly used (one packet at most for 99% of the time)"
    return [f"{what}, though flows had data to send; {why}"]
