"""Events of TCP as tables, for tests: what is not given is 0."""

from typing import Any

import polars as pl

from outcast.uses.why.recorded_events import TcpEvents

_COMMON = {
    "t_ns": pl.Int64,
    "order": pl.Int64,
    "host": pl.String,
    "port": pl.String,
    "flow": pl.Int64,
    "packet": pl.UInt32,
    "sport": pl.UInt16,
    "dport": pl.UInt16,
}
_STATE = dict.fromkeys(
    (
        *("snd_una", "snd_nxt", "write_seq", "snd_wnd", "snd_cwnd", "ssthresh", "srtt_us"),
        *("rto_us", "packets_out", "sacked_out", "lost_out", "retrans_out", "mss"),
    ),
    pl.UInt32,
) | {"reason": pl.Int32, "ca_state": pl.UInt8}
_FIELDS: dict[str, dict[str, Any]] = {
    "tcp_retransmit_skb": dict.fromkeys(
        (
            *("seq", "end_seq", "segs", "rto_us", "snd_una", "snd_nxt", "snd_cwnd"),
            *("packets_out", "sacked_out", "lost_out", "retrans_out"),
        ),
        pl.UInt32,
    )
    | dict.fromkeys(("tcp_flags", "sacked", "cause", "ca_state"), pl.UInt8)
    | {"err": pl.Int32},
    "tcp_mark_lost": dict.fromkeys(("seq", "end_seq", "segs"), pl.UInt32)
    | dict.fromkeys(("cause", "sacked", "ca_state"), pl.UInt8),
    "tcp_cong_state_set": dict.fromkeys(("cong_state", "old_state"), pl.UInt8)
    | dict.fromkeys(("snd_cwnd", "ssthresh"), pl.UInt32),
    "tcp_timer": dict.fromkeys(("action", "kind", "backoff"), pl.UInt8)
    | dict.fromkeys(("now", "expires"), pl.UInt64)
    | dict.fromkeys(("rto_us", "snd_una"), pl.UInt32),
    **dict.fromkeys(
        ("tcp_timeout", "tcp_loss_probe", "tcp_undo", "tcp_ack_done", "tcp_xmit_stop"), _STATE
    ),
    "tcp_retransmit_synack": {},
    "tcp_synack_timeout": {},
    "kfree_skb": {
        "saddr": pl.String,
        "daddr": pl.String,
        "location_name": pl.String,
        "seq": pl.UInt32,
        "payload": pl.UInt32,
        "skbaddr": pl.UInt64,
        "reason": pl.UInt32,
        "reason_name": pl.String,
    },
    "qdisc_drop": {"skbaddr": pl.UInt64, "reason_name": pl.String, "kind": pl.String},
}
_NULL = ("flow", "packet")

Event = tuple[str, int, dict[str, Any]]
"""A table's name, the time in ns and the fields that are not 0."""


def tables(*events: Event, host: str = "h1", flow: int = 0, sport: int = 5000) -> TcpEvents:
    """The events in their order, all of one sender's socket if they do not say another."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _FIELDS}
    own = {"host": host, "flow": flow, "sport": sport, "dport": 5001}
    for order, (table, t_ns, fields) in enumerate(events):
        schema = _COMMON | _FIELDS[table]
        rows[table].append(
            {
                name: None if name in _NULL or kind == pl.String else 0
                for name, kind in schema.items()
            }
            | own
            | {"t_ns": t_ns, "order": order}
            | fields
        )
    return TcpEvents(
        {
            name: pl.DataFrame(rows[name], schema=_COMMON | fields, orient="row")
            for name, fields in _FIELDS.items()
        }
    )
