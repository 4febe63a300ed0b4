"""Events summed as the kernel's counters count, to hold one against the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from outcast.analysis.trace import events as of
from outcast.analysis.trace.events import TcpEvents
from outcast.records.run_directory import Counters

_Frame = pl.DataFrame


def _sent(events: TcpEvents, *which: pl.Expr) -> _Frame:
    table = events["tcp_retransmit_skb"]
    return table.filter(*which).select("host", "t_ns", count=pl.col("segs").cast(pl.Int64))


def _rows(events: TcpEvents, name: str, *which: pl.Expr) -> _Frame:
    return events[name].filter(*which).select("host", "t_ns", count=pl.lit(1, pl.Int64))


def _by_queue(events: TcpEvents, in_loss: bool) -> _Frame:
    from_queue = [of.BY_ACK, of.BY_REO_TIMER, of.BY_TSQ, of.BY_SIMPLE]
    state = pl.col("ca_state") == of.LOSS
    return _sent(
        events,
        pl.col("cause").is_in(from_queue),
        pl.col("err") == 0,
        state if in_loss else ~state,
    )


_SUMS: Mapping[str, Callable[[TcpEvents], tuple[_Frame, ...]]] = {
    "TcpRetransSegs": lambda events: (_sent(events), _rows(events, "tcp_retransmit_synack")),
    "TcpExtTCPSynRetrans": lambda events: (
        # The kernel counts packets here, not segments.
        _rows(events, "tcp_retransmit_skb", pl.col("tcp_flags") & of.SYN > 0, pl.col("segs") > 0),
        _rows(events, "tcp_retransmit_synack"),
    ),
    "TcpExtTCPTimeouts": lambda events: (
        _rows(events, "tcp_timeout"),
        _rows(events, "tcp_synack_timeout"),
    ),
    "TcpExtTCPLossProbes": lambda events: (
        _rows(
            events,
            "tcp_loss_probe",
            pl.col("reason").is_in([of.PROBE_NEW_DATA, of.PROBE_RETRANS]),
        ),
    ),
    "TcpExtTCPLossProbeRecovery": lambda events: (
        _rows(events, "tcp_loss_probe", pl.col("reason") == of.PROBE_RECOVERED),
    ),
    "TcpExtTCPSackRecovery+TcpExtTCPRenoRecovery": lambda events: (
        _rows(events, "tcp_cong_state_set", pl.col("cong_state") == of.RECOVERY),
    ),
    "TcpExtTCPLostRetransmit": lambda events: (
        events["tcp_mark_lost"]
        .filter(pl.col("sacked") & of.SACKED_RETRANS > 0, pl.col("sacked") & of.MARKED_LOST > 0)
        .select("host", "t_ns", count=pl.col("segs").cast(pl.Int64)),
    ),
    "TcpExtTCPFastRetrans": lambda events: (_by_queue(events, in_loss=False),),
    "TcpExtTCPSlowStartRetrans": lambda events: (_by_queue(events, in_loss=True),),
    "TcpExtTCPRetransFail": lambda events: (
        _sent(events, pl.col("err") != 0, pl.col("err") != -of.EBUSY),
    ),
    "TcpExtTCPSpuriousRtxHostQueues": lambda events: (
        _rows(events, "tcp_retransmit_skb", pl.col("err") == -of.EBUSY, pl.col("segs") == 0),
        _rows(events, "tcp_loss_probe", pl.col("reason") == of.PROBE_IN_QUEUE),
    ),
    "TcpExtTCPFullUndo": lambda events: (_undone(events, of.UNDO_FULL),),
    "TcpExtTCPLossUndo": lambda events: (_undone(events, of.UNDO_LOSS, of.UNDO_FRTO),),
    "TcpExtTCPSpuriousRTOs": lambda events: (_undone(events, of.UNDO_FRTO),),
    "TcpExtTCPPartialUndo": lambda events: (_undone(events, of.UNDO_PARTIAL),),
    "TcpExtTCPDSACKUndo": lambda events: (_undone(events, of.UNDO_DSACK),),
    "MPTcpExtMPTCPRetrans": lambda events: (_rows(events, "mptcp_retrans"),),
}
"""What each counter of nstat(8) counts, from the events; two names with `+` are counted together.
The places are those at which patch 0011 has its events: beside the counters."""


def _undone(events: TcpEvents, *kinds: int) -> _Frame:
    return _rows(events, "tcp_undo", pl.col("reason").is_in(list(kinds)))


def compare(events: TcpEvents, counters: Counters) -> pl.DataFrame:
    """For each host and counter what the kernel counted and what its events sum up to.

    Returns:
        `host`, `counter`, `kernel`, `events`, without rows where both are 0. Equal numbers say that
        no event is missing and that each is taken for what it is.
    """
    rows = []
    for counter, parts_of in _SUMS.items():
        if counter == "MPTcpExtMPTCPRetrans" and "mptcp_retrans" not in events.tables:
            continue
        parts = parts_of(events)
        found: dict[str, int] = {}
        for part in parts:
            for host, count in part.group_by("host").agg(pl.col("count").sum()).iter_rows():
                found[host] = found.get(host, 0) + count
        for host, counted in counters.hosts.items():
            kernel = sum(counted.delta(name) for name in counter.split("+"))
            if kernel or found.get(host, 0):
                rows.append((host, counter, kernel, found.get(host, 0)))
    return pl.DataFrame(
        rows,
        schema={
            "host": pl.String,
            "counter": pl.String,
            "kernel": pl.Int64,
            "events": pl.Int64,
        },
        orient="row",
    )
