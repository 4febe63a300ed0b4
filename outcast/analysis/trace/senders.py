"""What follows from a run's events: tables of senders and drops, kept in trace/, and sums.

A sender's window, round trip, timeout, packets in flight and state are exact over time. Events are
summed as the kernel's counters count, to hold one against the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from outcast.analysis.trace import events as of
from outcast.analysis.trace.causes import (
    TIMERS,
    drop_table,
    drops_of_packets,
    retransmission_table,
    synack_rows,
)
from outcast.analysis.trace.events import SOCKET, TcpEvents, read_events, recorded, with_last
from outcast.plan.addresses import ipv4_of
from outcast.records.counters import Counters
from outcast.records.run_directory import RunDirectory
from outcast.records.sender_tables import write_sender_table
from outcast.records.tables import read_table


class _Part(NamedTuple):
    """The events of one kind that a counter counts; each counts as this many."""

    event: str
    conditions: tuple[pl.Expr, ...]
    amount: pl.Expr = pl.len()

    def by_host(self, events: TcpEvents) -> dict[str, int]:
        """The sum of each host."""
        chosen = events[self.event].filter(*self.conditions)
        return dict(chosen.group_by("host").agg(self.amount).iter_rows())


def _rows(event: str, *conditions: pl.Expr) -> _Part:
    return _Part(event, conditions)


def _segments(event: str, *conditions: pl.Expr) -> _Part:
    return _Part(event, conditions, pl.col("segs").cast(pl.Int64).sum())


def _kinds(event: str, *reasons: int) -> _Part:
    return _rows(event, pl.col("reason").is_in(list(reasons)))


_SENT, _PROBE, _SYNACK = "tcp_retransmit_skb", "tcp_loss_probe", "tcp_retransmit_synack"
_ERROR = pl.col("err")
_FROM_QUEUE = (
    pl.col("cause").is_in([of.BY_ACK, of.BY_REO_TIMER, of.BY_TSQ, of.BY_SIMPLE]),
    _ERROR == 0,
)
_IN_LOSS = pl.col("ca_state") == of.LOSS

_SUMS: Mapping[str, tuple[_Part, ...]] = {
    "TcpRetransSegs": (_segments(_SENT), _rows(_SYNACK)),
    # The kernel counts packets here, not segments.
    "TcpExtTCPSynRetrans": (
        _rows(_SENT, pl.col("tcp_flags") & of.SYN > 0, pl.col("segs") > 0),
        _rows(_SYNACK),
    ),
    "TcpExtTCPTimeouts": (_rows("tcp_timeout"), _rows("tcp_synack_timeout")),
    "TcpExtTCPLossProbes": (_kinds(_PROBE, of.PROBE_NEW_DATA, of.PROBE_RETRANS),),
    "TcpExtTCPLossProbeRecovery": (_kinds(_PROBE, of.PROBE_RECOVERED),),
    "TcpExtTCPSackRecovery+TcpExtTCPRenoRecovery": (
        _rows("tcp_cong_state_set", pl.col("cong_state") == of.RECOVERY),
    ),
    "TcpExtTCPLostRetransmit": (
        _segments(
            "tcp_mark_lost",
            *(pl.col("sacked") & flag > 0 for flag in (of.SACKED_RETRANS, of.MARKED_LOST)),
        ),
    ),
    "TcpExtTCPFastRetrans": (_segments(_SENT, *_FROM_QUEUE, ~_IN_LOSS),),
    "TcpExtTCPSlowStartRetrans": (_segments(_SENT, *_FROM_QUEUE, _IN_LOSS),),
    "TcpExtTCPRetransFail": (_segments(_SENT, _ERROR != 0, _ERROR != -of.EBUSY),),
    "TcpExtTCPSpuriousRtxHostQueues": (
        _rows(_SENT, _ERROR == -of.EBUSY, pl.col("segs") == 0),
        _kinds(_PROBE, of.PROBE_IN_QUEUE),
    ),
    "TcpExtTCPFullUndo": (_kinds("tcp_undo", of.UNDO_FULL),),
    "TcpExtTCPLossUndo": (_kinds("tcp_undo", of.UNDO_LOSS, of.UNDO_FRTO),),
    "TcpExtTCPSpuriousRTOs": (_kinds("tcp_undo", of.UNDO_FRTO),),
    "TcpExtTCPPartialUndo": (_kinds("tcp_undo", of.UNDO_PARTIAL),),
    "TcpExtTCPDSACKUndo": (_kinds("tcp_undo", of.UNDO_DSACK),),
    "MPTcpExtMPTCPRetrans": (_rows("mptcp_retrans"),),
}
"""What each counter of nstat(8) counts, from the events; two names with `+` are counted together.
The places are those at which patch 0011 has its events: beside the counters."""


def compare(events: TcpEvents, counters: Counters) -> pl.DataFrame:
    """For each host and counter what the kernel counted and what its events sum up to, if not 0.

    Equal numbers say that no event is missing and that each is taken for what it is.
    """
    rows = []
    for counter, parts in _SUMS.items():
        if counter == "MPTcpExtMPTCPRetrans" and "mptcp_retrans" not in events.tables:
            continue
        found: Counter[str] = Counter()
        for part in parts:
            found.update(part.by_host(events))
        for host, counted in counters.hosts.items():
            kernel = sum(counted.delta(name) for name in counter.split("+"))
            if kernel or found[host]:
                rows.append((host, counter, kernel, found[host]))
    kinds = (pl.String, pl.String, pl.Int64, pl.Int64)
    names = ("host", "counter", "kernel", "events")
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


BLACKOUT, TAIL, HOLE = "blackout", "tail loss", "hole"
ELSEWHERE, NOT_LOST = "lost elsewhere", "not lost"
LEAST_DROPS = 2
"""The fewest packets of a port that a blackout drops in a row, while others get through."""


def wait_table(
    senders: TcpEvents,
    again: pl.DataFrame,
    drops: pl.DataFrame,
    packets: pl.DataFrame,
    chains: pl.DataFrame,
) -> pl.DataFrame:
    """A row for each time that a sender's timer went off, in the order of time.

    Returns:
        - `flow`, `timer` (one of `causes.TIMERS`), `t_ns`: which timer went off, and when.
        - `waited_ns`: how long the sender had sent and heard nothing.
        - `lost`: what had become of the last copy of the oldest segment.
          `blackout`: dropped in a row of LEAST_DROPS or more of its port while others got through;
          `tail loss`: dropped alone, and nothing sent after it got through; `hole`: dropped alone,
          though something sent after it got through; `lost elsewhere`: dropped at another place;
          `not lost`: not dropped.
        - `copies`: how often that segment had been sent again before.
    """
    by_segment = (*SOCKET, "seq")
    of_sending = pl.col("kind").is_in([of.TIME_RETRANS, of.TIME_LOSS_PROBE, of.TIME_REO_TIMEOUT])
    timers = senders["tcp_timer"].filter(pl.col("action") == of.FIRED, of_sending)
    fired = timers.select(*SOCKET, "t_ns", "order", "kind", seq="snd_una").sort("t_ns", "order")
    active = pl.concat(
        senders[name].select(*SOCKET, "t_ns", since="t_ns")
        for name in ("tcp_ack_done", "tcp_xmit_stop", "tcp_retransmit_skb")
    )
    acknowledged = pl.concat(
        senders[name].select(*SOCKET, "t_ns", "order", sacked="sacked_out")
        for name in ("tcp_ack_done", "tcp_xmit_stop")
    ).sort("t_ns", "order")
    of_socket = again.filter(pl.col("segments") > 0, pl.col("seq").is_not_null())
    copies = pl.int_range(pl.len()).over(*by_segment) + 1
    sent = of_socket.sort("order").select(*by_segment, "t_ns", sent_ns="t_ns", copies=copies)
    lost = drops.filter(pl.col("payload") > 0).select(
        *by_segment, "t_ns", t_drop_ns="t_ns", drop_packet="packet"
    )
    lost = lost.cast({"sport": fired.schema["sport"], "flow": fired.schema["flow"]})
    waits = _last_before(fired, active, SOCKET)
    waits = _last_before(waits, acknowledged.drop("order"), SOCKET)
    waits = _last_before(waits, sent, by_segment)
    waits = _last_before(waits, lost, by_segment)
    blackouts = _in_blackouts(packets, chains)
    return (
        waits.join(blackouts, left_on="drop_packet", right_on="packet", how="left")
        .sort("t_ns", "order")
        .select(
            "flow",
            of.named("kind", TIMERS).alias("timer"),
            "t_ns",
            (pl.col("t_ns") - pl.col("since")).alias("waited_ns"),
            _what_was_lost().alias("lost"),
            pl.col("copies").fill_null(0),
        )
    )


def _what_was_lost() -> pl.Expr:
    """The column `lost` of the waits: the first that holds."""
    sent_ns = pl.col("sent_ns").fill_null(pl.lit(-(1 << 62)))
    holds = {
        NOT_LOST: pl.col("t_drop_ns").is_null() | (pl.col("t_drop_ns") < sent_ns),
        ELSEWHERE: pl.col("drop_packet").is_null(),
        BLACKOUT: pl.col("is_blackout"),
        TAIL: pl.col("sacked").fill_null(0) == 0,
        HOLE: pl.lit(True),
    }
    return pl.coalesce(pl.when(test).then(pl.lit(what)) for what, test in holds.items())


def within(waits: pl.DataFrame, begin_ns: int, end_ns: int) -> pl.DataFrame:
    """The waits from one time to another; of one that goes beyond, the part between."""
    begin = pl.max_horizontal(pl.col("t_ns") - pl.col("waited_ns"), pl.lit(begin_ns))
    return waits.filter(begin < end_ns, pl.col("t_ns") > begin_ns).with_columns(
        waited_ns=pl.min_horizontal("t_ns", pl.lit(end_ns)) - begin
    )


def _last_before(rows: pl.DataFrame, others: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """Adds to each row the last of others with the same `by` before its time."""
    others = others.sort("t_ns", maintain_order=True)
    return with_last(rows.sort("t_ns", "order"), others, "t_ns", by, allow_exact_matches=False)


def _in_blackouts(packets: pl.DataFrame, chains: pl.DataFrame) -> pl.DataFrame:
    """The dropped packets by their row, and whether their chain of drops is a blackout."""
    ports = ("ingress", "egress")
    begun = chains.select(
        *(pl.col(port).cast(pl.String) for port in ports),
        t_in="t_start",
        is_blackout=(pl.col("drops") >= LEAST_DROPS) & (pl.col("others_through") > 0),
    )
    dropped = (
        packets.with_row_index("packet")
        .filter(pl.col("verdict").cast(pl.String) == "dropped")
        .select("packet", "t_in", *(pl.col(port).cast(pl.String) for port in ports))
    )
    found = with_last(dropped.sort("t_in"), begun.sort("t_in"), "t_in", ports)
    return found.select("packet", "is_blackout")


@dataclass(frozen=True)
class Traced:
    """The events of a run, every drop (`drop_table`), and every attempt to send again."""

    every: TcpEvents
    senders: TcpEvents
    drops: pl.DataFrame
    again: pl.DataFrame


def read_traced(directory: RunDirectory) -> Traced:
    """Reads a run's events, for which packets.parquet has to be there. Raises InputError."""
    every = read_events(directory)
    manifest = directory.read_manifest()
    if "kfree_skb" in every.tables:
        sources = {ipv4_of(record.src_ip): record.src for record in manifest.flows}
        host_of = sources | {ipv4_of(record.dst_ip): record.dst for record in manifest.flows}
        drops = drop_table(every, host_of)
    else:
        packets = read_table(directory.path / "packets.parquet")
        drops = drops_of_packets(packets, manifest.traffic.t_start_ns)
    senders = every.of_senders(manifest)
    again = pl.concat(
        [retransmission_table(senders, drops), synack_rows(every)], how="diagonal_relaxed"
    ).sort("order")
    return Traced(every, senders, drops, again)


def write(directory: RunDirectory) -> bool:
    """Writes tcp.parquet, retransmissions.parquet and drops.parquet to a run's folder trace/.

    Returns whether the run recorded the events for that. Raises InputError as `read_traced`.
    """
    if not recorded(directory):
        return False
    traced = read_traced(directory)
    ports = {record.flow: record.sport for record in directory.read_manifest().flows}
    series = of_flows(series_table(traced.senders), ports)
    tables = {"tcp": series, "retransmissions": traced.again, "drops": traced.drops}
    for name, table in tables.items():
        write_sender_table(directory.trace, name, table)
    return True


def in_flight() -> pl.Expr:
    """tcp_packets_in_flight() of include/net/tcp.h, from the columns of a sender's state."""
    sacked_or_lost = pl.col("sacked_out").cast(pl.Int64) + pl.col("lost_out")
    return (pl.col("packets_out") + pl.col("retrans_out") - sacked_or_lost).clip(0).cast(pl.UInt32)


def series_table(senders: TcpEvents) -> pl.DataFrame:
    """A row per acknowledgement and per timeout, by flow and time (`sender_tables.TCP`).

    An acknowledgement's row is the state that tcp_ack() leaves, before anything is sent. A
    timeout's row is the state after it, because the window falls to one segment there.
    """
    columns = (*SOCKET, "order", "t_ns", "rto_us", "ca_state", "ssthresh", "srtt_us")
    values = {"cwnd": pl.col("snd_cwnd"), "in_flight": in_flight()}
    acknowledged = senders["tcp_ack_done"].select(*columns, **values)
    reduced = senders["tcp_cong_state_set"].select(*SOCKET, "order", "ssthresh").sort("order")
    timeouts = (
        senders["tcp_retransmit_skb"]
        .filter(pl.col("cause") == of.BY_RTO)
        .sort("order")
        .pipe(with_last, reduced, "order")
        .with_columns(srtt_us=pl.lit(None, acknowledged.schema["srtt_us"]))
        .select(*columns, **values)
    )
    return (
        pl.concat([acknowledged, timeouts], how="vertical_relaxed")
        .sort("flow", "order")
        .with_columns(pl.col("srtt_us").forward_fill().over(*SOCKET))
        .with_columns(
            ssthresh=pl.when(pl.col("ssthresh") < of.NO_THRESHOLD).then("ssthresh"),
            state=of.state_name("ca_state"),
        )
    )


def of_flows(series: pl.DataFrame, ports: Mapping[int, int]) -> pl.DataFrame:
    """The rows of each flow's own connection, by its port: several have no window together."""
    schema = {name: series.schema[name] for name in SOCKET}
    own = pl.DataFrame([*ports.items()], schema=schema, orient="row")
    return series.join(own, on=list(SOCKET), how="semi", maintain_order="left")
