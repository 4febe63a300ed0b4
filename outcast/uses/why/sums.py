"""What the kernel counted of TCP, and what its events sum up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from outcast.records import Counters
from outcast.uses.why import recorded_events as of
from outcast.uses.why.recorded_events import TcpEvents


class _Part(NamedTuple):
    """The events of one kind that a counter counts; each counts as this many."""

    event: str
    conditions: tuple[pl.Expr, ...]
    amount: pl.Expr = pl.len()

    def by_host(self, events: TcpEvents) -> dict[str, int]:
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
