"""Generated traffic as the bottleneck saw it: its rate over time, and each stream of datagrams.

What was sent and received is the programs' own count (outcast/records/generated.py). Rates over
time, drops and delays come from the captures: they are of packets that crossed a captured queue.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from outcast.analysis.capture.headers import FlowKey
from outcast.analysis.join.join import Verdict
from outcast.analysis.machine_code import I64
from outcast.analysis.measure.bins import edges_ns, port_series
from outcast.analysis.measure.spreads import in_ms, jain_index
from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis
from outcast.plan.schedule import Generated, generated_packet, generated_ways
from outcast.records.generated import Completed, read_generated_flows
from outcast.records.summary import StreamSummary


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of datagrams.

    Attributes:
        ended: what its two programs counted.
        delays_ns: sojourn times at the first captured queue, in the order of departure.
        departures_ns: the time from the first of its departures there to the last.
    """

    ended: Completed
    delays_ns: I64
    packets: int
    dropped: int
    departures_ns: int
    is_copied: bool = False

    @property
    def seconds(self) -> float:
        """How long it was to send: a whole gap for each datagram, also for the last one."""
        planned = self.ended.planned
        lasts_ns = (planned.end_ns or 0) - (planned.start_ns or 0)
        return max(lasts_ns, (planned.datagrams or 0) * (planned.gap_ns or 0)) / 1e9

    @property
    def sent(self) -> int:
        return self.ended.sent or 0

    @property
    def received(self) -> int:
        return self.ended.received or 0

    @property
    def loss_share(self) -> float | None:
        """The share of its datagrams that were lost; None if none was sent, or copies came.

        Datagrams have no numbers, so a copy looks like one that was not lost.
        """
        is_known = self.sent and not self.is_copied and self.received <= self.sent
        return 1 - self.received / self.sent if is_known else None

    @property
    def sent_bps(self) -> float:
        """The rate of the payload that was sent, over the time in which it was to be sent."""
        return self._rate_bps(self.sent, self.seconds)

    @property
    def received_bps(self) -> float:
        """The rate of the payload that was received, over the same time.

        If it left the queue over a longer time, that counts: a full queue still sends afterwards.
        """
        return self._rate_bps(self.received, max(self.seconds, self.departures_ns / 1e9))

    def _rate_bps(self, datagrams: int, seconds: float) -> float:
        size = self.ended.planned.datagram_bytes or 0
        return 8 * size * datagrams / seconds if seconds > 0 else 0.0

    @property
    def jitter_ns(self) -> float | None:
        """The mean difference between the delays of packets in a row; None below two packets.

        RFC 3550, section 6.4.1, estimates this mean by a running average.
        """
        if self.delays_ns.size < 2:
            return None
        return float(np.abs(np.diff(self.delays_ns)).mean())


def completed(analysis: Analysis) -> list[Completed]:
    return read_generated_flows(analysis.directory, analysis.manifest.traffic.t_start_ns)


def streams(analysis: Analysis) -> list[Stream]:
    """Every stream of datagrams of the run, in the order of the schedule."""
    of_run = [flow for flow in completed(analysis) if flow.planned.datagram_bytes is not None]
    if not of_run:
        return []
    seen = {flow.flow: (port, number) for port, number, flow in _captured(analysis)}
    plan, copying = analysis.plan, _copying_links(analysis)
    found = []
    for flow in of_run:
        at_queue = _at_queue(*seen[flow.planned.flow]) if flow.planned.flow in seen else _UNSEEN
        is_copied = False
        if plan is not None and copying:
            ((path, _),) = generated_ways(plan.graph, plan.routes, [flow.planned])
            is_copied = not copying.isdisjoint(pairwise(path))
        found.append(Stream(flow, *at_queue, is_copied))
    return found


def _copying_links(analysis: Analysis) -> set[tuple[str, str]]:
    links = {} if analysis.plan is None else analysis.plan.links
    return {ends for ends, link in links.items() if link.duplicate} | {
        (change.node, change.neighbour)
        for change in analysis.manifest.changes
        if change.what == "duplicate_ppm" and change.requested
    }


def copied_warnings(analysis: Analysis) -> list[str]:
    """A line on the streams that links may have copied, which no receiver can see."""
    copied = [
        part.ended.planned.flow
        for part in streams(analysis)
        if part.is_copied or part.received > part.sent
    ]
    if not copied:
        return []
    named = f"UDP flow {copied[0]}" if len(copied) == 1 else f"{len(copied)} UDP flows"
    return [
        f"links deliver packets of {named} twice: the rate received counts both, and how many were "
        "lost is not known"
    ]


_UNSEEN = np.empty(0, np.int64), 0, 0, 0


def _at_queue(port: PortAnalysis, number: int) -> tuple[I64, int, int, int]:
    """The delays, packets, drops and time of departures of a stream at a port; see Stream."""
    joined = port.joined
    # What was under way at the duration's end is in the programs' own counts too.
    rows = np.flatnonzero(joined.arrivals.flow == number)
    forwarded = rows[joined.left_as[rows] >= 0]
    forwarded = forwarded[np.argsort(joined.left_as[forwarded], kind="stable")]
    departed_ns = port.sent_ns[joined.left_as[forwarded]]
    delays = departed_ns - joined.arrivals.stamp_ns[forwarded]
    dropped = int((joined.verdict[rows] == Verdict.DROPPED).sum())
    lasted_ns = int(departed_ns[-1] - departed_ns[0]) if forwarded.size else 0
    return np.asarray(delays, np.int64), rows.size, dropped, lasted_ns


def _captured(analysis: Analysis) -> Iterator[tuple[PortAnalysis, int, Generated]]:
    """Each captured flow that a workload generated: its first port, its number there, its plan.

    Flows that share a connection are one there; the first of them stands for all. The flows of a
    port come by workload and number.
    """
    plan = analysis.plan
    if plan is None:
        return
    generated: dict[FlowKey, Generated] = {}
    for flow in plan.generated:
        packet = generated_packet(plan.graph, flow)
        ends = packet.src, packet.sport, packet.dst, packet.dport
        generated.setdefault(FlowKey(*ends, packet.protocol), flow)
    for port in analysis.ports:
        known = [
            (generated.pop(key), number)
            for number, key in enumerate(port.joined.flows)
            if key in generated
        ]
        for flow, number in sorted(known, key=lambda found: found[0].flow):
            yield port, number, flow


def stream_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per stream of datagrams; None if the run had none.

    `sent` and `received` are datagrams. `packets`, `dropped`, the delays and `jitter` (ns) are
    those at the first captured queue that the stream crossed.
    """
    rows = []
    for stream in streams(analysis):
        planned, delays = stream.ended.planned, stream.delays_ns
        rows.append(
            {
                "flow": planned.flow,
                "workload": planned.workload,
                "src": planned.src,
                "sport": planned.sport,
                "dst": planned.dst,
                "start_ns": stream.ended.start_ns,
                "sending_ns": round(stream.seconds * 1e9),
                "sent": stream.sent,
                "received": stream.received,
                "loss_share": stream.loss_share,
                "sent_bps": stream.sent_bps,
                "received_bps": stream.received_bps,
                "packets": stream.packets,
                "dropped": stream.dropped,
                "delay_mean": float(delays.mean()) if delays.size else None,
                "delay_p50": float(np.quantile(delays, 0.5)) if delays.size else None,
                "delay_p99": float(np.quantile(delays, 0.99)) if delays.size else None,
                "delay_max": float(delays.max()) if delays.size else None,
                "jitter": stream.jitter_ns,
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None) if rows else None


def stream_summary(of_workload: Sequence[Stream]) -> StreamSummary | None:
    if not of_workload:
        return None
    received_bps = [stream.received_bps for stream in of_workload]
    sent = sum(stream.sent for stream in of_workload)
    shares = [(stream.loss_share, stream.sent) for stream in of_workload if stream.sent]
    lost = [share * of_sent for share, of_sent in shares if share is not None]
    delays = np.concatenate([stream.delays_ns for stream in of_workload])
    jitters = [jitter for stream in of_workload if (jitter := stream.jitter_ns) is not None]
    return StreamSummary(
        sent_bps=sum(stream.sent_bps for stream in of_workload),
        received_bps=sum(received_bps),
        min_received_bps=min(received_bps),
        jain_index=jain_index(received_bps),
        loss_share=sum(lost) / sent if lost and len(lost) == len(shares) else None,
        delay_ms=in_ms(delays),
        jitter_ms=float(np.mean(jitters)) / 1e6 if jitters else None,
    )


def _dropped(analysis: Analysis, port: PortAnalysis, edges: I64) -> I64:
    """How many packets of each flow a port dropped per bin; an array of [flow, bin]."""
    joined, bins = port.joined, edges.size - 1
    since_ns = port.reached_ns - analysis.manifest.traffic.t_start_ns
    lost = (joined.verdict == Verdict.DROPPED) & (since_ns >= 0) & (since_ns < edges[-1])
    bin_of = np.searchsorted(edges, since_ns[lost], side="right") - 1
    flows = len(joined.flows)
    cells = joined.arrivals.flow[lost].astype(np.int64) * bins + bin_of
    counts = np.bincount(cells, minlength=flows * bins)
    return counts.astype(np.int64).reshape(flows, bins)


def workload_table(analysis: Analysis) -> pl.DataFrame | None:
    """Rate and drops of generated traffic per bin; None if none crossed a captured queue.

    A stream of datagrams has rows with its `flow`. All transfers of a workload are added up, with a
    null `flow`. `goodput_bps` is of new payload that left the queue.
    """
    edges = edges_ns(analysis)
    sums: dict[tuple[int, int], I64] = {}
    kinds = {}
    for port, flows in itertools.groupby(_captured(analysis), key=lambda found: found[0]):
        goodput, dropped = port_series(analysis, port)[0], _dropped(analysis, port, edges)
        for _, number, flow in flows:
            key = (flow.workload, -1 if flow.datagram_bytes is None else flow.flow)
            kinds[key] = flow.kind
            of_flow = np.stack([goodput[number], dropped[number]])
            sums[key] = sums[key] + of_flow if key in sums else of_flow
    if not sums:
        return None
    seconds = np.diff(edges) / 1e9
    return pl.concat(
        pl.DataFrame({"t": edges[:-1]}).select(
            "t",
            pl.lit(key[0], pl.Int32).alias("workload"),
            pl.lit(kinds[key]).alias("kind"),
            pl.lit(None if key[1] < 0 else key[1], pl.Int32).alias("flow"),
            goodput_bps=pl.Series(8 * summed[0] / seconds),
            dropped=pl.Series(summed[1]),
        )
        for key, summed in sorted(sums.items(), key=lambda item: item[0])
    )
