"""Every packet that the kernel dropped, and a cause for every segment that a sender sent again.

A queue that drops a packet says so by qdisc:qdisc_drop. The next event is skb:kfree_skb of the
same buffer, whose reason is then only QDISC_DROP (__tcf_kfree_skb_list in net/sched/sch_generic.c).
So both are one drop, and the queue's own reason is taken. A queue below a shaper that drops a
packet when it takes it out frees it itself, by its own reason, and there is no qdisc_drop
(qdisc_dequeue_drop in include/net/sch_generic.h).

The kernel says by which way it came to send (enum tcp_retrans_cause of patch 0011) and how it had
found the segment lost (tcp_mark_lost). Both together are the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from outcast.api import CARD_ENDS, Direction, Plan
from outcast.uses.why import recorded_events as of
from outcast.uses.why.recorded_events import SOCKET, TcpEvents, named, with_last
from outcast.uses.why.sender_tables import DROPS

_ALSO: dict[str, type[pl.DataType]] = {"sport": pl.UInt16, "payload": pl.UInt32, "order": pl.Int64}
QUEUE_REASONS = (
    *("GENERIC", "OVERLIMIT", "CONGESTED", "MAXFLOWS", "FLOOD_PROTECTION", "BAND_LIMIT"),
    *("HORIZON_LIMIT", "FLOW_LIMIT", "L4S_STEP_NON_ECN"),
)
"""enum qdisc_drop_reason in include/net/dropreason-qdisc.h, from 1."""
POLICED = "TC_INGRESS"
UNTOLD = "QDISC_DROP"
"""The reason of a queue's drop where qdisc:qdisc_drop was not recorded."""
_HAD_ALREADY = ("TCP_OLD_DATA", "TCP_OLD_SEQUENCE", "TCP_OFOMERGE")
"""Why a receiver throws a copy away: it has the data (tcp_data_queue and others in tcp_input.c)."""
_OF_QUEUES = 3 << 16
"""What kfree_skb adds to them: SKB_DROP_REASON_SUBSYS_QDISC. It has no names for them."""


def drop_table(events: TcpEvents, host_of: Mapping[str, str]) -> pl.DataFrame:
    """A row per dropped IPv4 packet, in the kernel's order: DROPS' columns and _ALSO's.

    What a receiver had already is no loss, so it has no row. Nor is there any if the run did not
    record skb:kfree_skb. `host_of` has the host of each address:
    a packet that a socket dropped was at the host that it was sent to.
    """
    freed = events.tables.get("kfree_skb")
    if freed is None or not freed.height:
        return pl.DataFrame(schema={**DROPS, **_ALSO})
    # A host's card of noise begins its pause by a copy of a packet, and drops the copy behind it
    # (outcast/emulation/network/interrupt_moderation.py).
    of_queues = {_OF_QUEUES + at: name for at, name in enumerate(QUEUE_REASONS, 1)}
    reason = pl.coalesce(pl.col("reason_name").cast(pl.String), named("reason", of_queues))
    is_copy = (pl.col("port") == CARD_ENDS[1]) & (reason == POLICED)
    is_copy |= reason.is_in(_HAD_ALREADY)
    freed = freed.filter(pl.col("saddr").is_not_null() & is_copy.not_().fill_null(True))
    queues = events.tables.get("qdisc_drop")
    if queues is None:
        names = ("kind", "own", "queue_port", "queue_host")
        queued = freed.select("order", "skbaddr", **dict.fromkeys(names, pl.lit(None, pl.String)))
        queued = queued.clear()
    else:
        queued = queues.select(
            *("skbaddr", "kind"),
            order=pl.col("order") + 1,
            own=pl.col("reason_name").cast(pl.String),
            queue_port="port",
            queue_host="host",
        )
    told = freed.join(queued, on=["order", "skbaddr"], how="left", maintain_order="left")
    return told.select(
        "t_ns",
        host=pl.coalesce("queue_host", "host", named("daddr", host_of)),
        port=pl.coalesce("queue_port", "port"),
        flow="flow",
        seq=pl.when(pl.col("sport") > 0).then("seq"),
        reason=pl.coalesce("own", reason),
        where=pl.col("location_name").cast(pl.String),
        qdisc="kind",
        packet="packet",
        **{name: pl.col(name) for name in _ALSO},
    )


def drops_of_packets(packets: pl.DataFrame, t_start_ns: int) -> pl.DataFrame:
    """What the captures say was dropped at a bottleneck, for runs without skb:kfree_skb."""
    types: dict[str, Any] = {**DROPS, **_ALSO}
    return (
        packets.with_row_index("packet")
        .filter(pl.col("verdict").cast(pl.String) == "dropped")
        .select(
            *("flow", "seq", "packet", "sport", "payload"),
            t_ns=pl.col("t_in").cast(pl.Int64) - t_start_ns,
            port=pl.col("ingress").cast(pl.String),
            order="packet",
            **dict.fromkeys(("host", "reason", "where", "qdisc"), pl.lit(None, pl.String)),
        )
        .select(pl.col(name).cast(kind) for name, kind in types.items())
    )


def losing_ways(plan: Plan) -> dict[tuple[str, str], Direction]:
    """The direction of a link that lost a packet, by the place and the qdisc, or else the reason.

    Netem drops what its interface is to send, and a policer what it gets.
    """
    ways: dict[tuple[str, str], Direction] = {}
    for wire in plan.wires.values():
        for near, far in (wire.nodes, wire.nodes[::-1]):
            ways[wire.facing(far), "netem"] = ways[wire.facing(far), UNTOLD] = (near, far)
            if plan.links[near, far].policer is not None:
                ways[wire.facing(near), POLICED] = (near, far)
    return ways


CAUSES = {
    "syn": "TCPSynRetrans",
    "synack": "TCPSynRetrans",
    "rto": "TCPTimeouts",
    "after_rto": "TCPSlowStartRetrans",
    "tlp": "TCPLossProbes",
    "rack": "TCPFastRetrans",
    "reordering_timer": "TCPFastRetrans",
    "lost_retransmission": "TCPFastRetrans",
    "newreno": "TCPFastRetrans",
    "window_probe": None,
    "no_congestion": "TCPFastRetrans",
}
"""Every cause, and the kernel's counter that counts it besides RetransSegs:

- `syn`, `synack`: the connection's first segments, after a timeout.
- `rto`: the retransmission timer fired; the oldest segment is sent (tcp_retransmit_timer).
- `after_rto`: acknowledgements after a timeout let further segments follow that it holds for lost.
- `tlp`: a tail loss probe sends the last segment (tcp_send_loss_probe).
- `rack`: an acknowledgement of what was sent later shows the loss (tcp_rack_detect_loss).
- `reordering_timer`: the same, after waiting for reordering (tcp_rack_reo_timeout).
- `lost_retransmission`: what was sent again is lost again, by RACK.
- `newreno`: duplicate or partial acknowledgements, without SACK (tcp_newreno_mark_lost).
- `window_probe`: the timer fired while the receiver's window was zero.
- `no_congestion`: path MTU or Fast Open.

In state loss `after_rto` and `no_congestion` count as TCPSlowStartRetrans, else as TCPFastRetrans.
No cause is null unless an event is missing.
"""

DETECTIONS = {
    of.LOST_RACK: "rack",
    of.LOST_REO_TIMER: "reordering_timer",
    of.LOST_RTO: "rto",
    of.LOST_RENEGING: "reneging",
    of.LOST_NEWRENO: "newreno",
    of.LOST_SIMPLE: "no_congestion",
}
TIMERS = {
    of.TIME_RETRANS: "rto",
    of.TIME_DACK: "delayed_ack",
    of.TIME_PROBE0: "window_probe",
    of.TIME_LOSS_PROBE: "tlp",
    of.TIME_REO_TIMEOUT: "reordering_timer",
}
_TIMER_OF = {
    of.BY_RTO: "rto",
    of.BY_PROBE0: "rto",
    of.BY_TLP: "tlp",
    of.BY_REO_TIMER: "reordering_timer",
}
_MARK = pl.col("mark_order", "t_mark", "mark_cause", "mark_sacked")


def retransmission_table(senders: TcpEvents, drops: pl.DataFrame) -> pl.DataFrame:
    """A row per segment sent again, or tried to: RETRANSMISSIONS' columns, `sport` and `order`."""
    # The bytes of a full segment of each socket.
    mss = senders["tcp_ack_done"].group_by(SOCKET).agg(pl.col("mss").max())
    sent = _per_segment(senders["tcp_retransmit_skb"], mss).sort("order", maintain_order=True)
    # An attempt that failed leaves the mark of the loss, so the next attempt has the same one.
    went = pl.col("err") == 0
    sent = sent.with_columns(
        pl.when(went).then(name).shift(1).forward_fill().over(*SOCKET, "seq").alias(previous)
        for name, previous in (("order", "previous"), ("t_ns", "t_previous"))
    )
    sent = _with_detection(sent, _per_segment(senders["tcp_mark_lost"], mss))
    sent = _with_drop(sent, drops)
    sent = _with_state_before(sent, senders["tcp_cong_state_set"])
    sent = _with_undone(sent, senders)
    in_loss = pl.col("ca_state") == of.LOSS
    named = sent.with_columns(of_cause=_cause(in_loss))
    return named.select(
        *("t_ns", "flow", "seq"),
        pl.col("of_cause").alias("cause"),
        *("t_drop_ns", "drop_packet"),
        pl.col("t_mark").alias("t_detect_ns"),
        of.state_name("before").alias("state_before"),
        of.state_name("ca_state").alias("state_after"),
        of.named("cause", _TIMER_OF).alias("timer"),
        (pl.col("rto_us").cast(pl.Int64) * 1000).alias("rto_ns"),
        *("undone", "end_seq"),
        pl.col("segs").alias("segments"),
        pl.when(~pl.col("of_cause").is_in(["after_rto", "no_congestion"]))
        .then(of.named("of_cause", CAUSES))
        .when(in_loss)
        .then(pl.lit("TCPSlowStartRetrans"))
        .otherwise(pl.lit("TCPFastRetrans"))
        .alias("counter"),
        of.named("mark_cause", DETECTIONS).alias("detected_by"),
        pl.col("err").alias("error"),
        *("sport", "order"),
    )


def _cause(in_loss: pl.Expr) -> pl.Expr:
    """The first cause that holds, by the way to send and how the segment was held for lost."""
    way, mark = pl.col("cause"), pl.col("mark_cause")
    by_timeout = mark.is_in([of.LOST_RTO, of.LOST_RENEGING])
    holds = {
        "syn": pl.col("tcp_flags") & of.SYN > 0,
        "rto": way == of.BY_RTO,
        "window_probe": way == of.BY_PROBE0,
        "tlp": way == of.BY_TLP,
        "no_congestion": (way == of.BY_SIMPLE) | (mark == of.LOST_SIMPLE),
        "after_rto": way.is_in([of.BY_ACK, of.BY_TSQ]) & (in_loss | by_timeout),
        "lost_retransmission": pl.col("mark_sacked").fill_null(0) & of.SACKED_RETRANS > 0,
        "newreno": mark == of.LOST_NEWRENO,
        "reordering_timer": (way == of.BY_REO_TIMER) | (mark == of.LOST_REO_TIMER),
        "rack": mark == of.LOST_RACK,
    }
    return pl.coalesce(pl.when(test).then(pl.lit(cause)) for cause, test in holds.items())


def synack_rows(every: TcpEvents) -> pl.DataFrame:
    """The attempts of receivers to send a SYN-ACK again, in the columns of the same table."""
    texts = {"cause": "synack", "timer": "rto", "counter": CAUSES["synack"]}
    sent = every["tcp_retransmit_synack"].filter(pl.col("flow").is_not_null())
    return sent.select(
        *("t_ns", "flow", "order"),
        **{name: pl.lit(text) for name, text in texts.items()},
        segments=pl.lit(1, pl.UInt32),
        undone=pl.lit(False),
        error=pl.lit(0, pl.Int32),
    )


def _per_segment(table: pl.DataFrame, mss: pl.DataFrame) -> pl.DataFrame:
    """A row for each segment of a buffer (skb); one without any stays: an attempt that gave up."""
    size = (pl.col("end_seq").cast(pl.Int64) - pl.col("seq")) % (1 << 32)
    count = pl.col("segs").clip(1).cast(pl.Int64)
    even = (size + count - 1) // count
    full = pl.col("mss").cast(pl.Int64).fill_null(0)
    fits = (full * count >= size) & (full * (count - 1) < size)
    first = pl.col("seq").cast(pl.Int64) + pl.col("piece") * pl.col("step")
    last = pl.col("piece") == pl.col("pieces") - 1
    return (
        table.join(mss, on=list(SOCKET), how="left", maintain_order="left")
        .with_columns(step=pl.when(fits).then(full).otherwise(even), pieces=count)
        .with_columns(piece=pl.int_ranges(0, pl.col("pieces")))
        .explode("piece")
        .with_columns(
            seq=(first % (1 << 32)).cast(pl.UInt32),
            end_seq=pl.when(last)
            .then("end_seq")
            .otherwise(((first + pl.col("step")) % (1 << 32)).cast(pl.UInt32)),
            segs=pl.col("segs").clip(0, 1),
        )
        .drop("mss", "step", "piece", "pieces")
    )


def _with_detection(sent: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Adds how the segment was last held for lost: `t_mark`, `mark_cause`, `mark_sacked`.

    It may have been split since, so a mark of a larger one counts where none is its own.
    """
    marked = marks.select(
        *(*SOCKET, "seq", "end_seq", "order"),
        **{"mark_order": "order", "t_mark": "t_ns", "mark_cause": "cause", "mark_sacked": "sacked"},
    ).sort("order")
    own = with_last(sent, marked.drop("end_seq"), "order", (*SOCKET, "seq"))
    stale = pl.col("mark_order") < pl.col("previous").fill_null(-1)
    own = own.with_columns(pl.when(~stale).then(_MARK).name.keep())
    lacking = own.filter(
        pl.col("mark_order").is_null() & ~pl.col("cause").is_in([of.BY_TLP, of.BY_PROBE0])
    )
    if not lacking.height:
        return own
    return own.update(_containing(lacking, marked), on="order", how="left")


def _containing(lacking: pl.DataFrame, marked: pl.DataFrame) -> pl.DataFrame:
    """The last mark before each of these that has its first byte, if there is one."""
    by_socket = {key: part for key, part in marked.group_by(SOCKET)}
    rows = []
    wanted = lacking.select("order", pl.col("previous").fill_null(-1), "seq", *SOCKET)
    for order, previous, seq, *socket in wanted.iter_rows():
        part = by_socket.get(tuple(socket))
        if part is None:
            continue
        low = (np.uint32(seq) - part["seq"].to_numpy()).astype(np.uint32)
        size = (part["end_seq"].to_numpy() - part["seq"].to_numpy()).astype(np.uint32)
        orders = part["order"].to_numpy()
        fit = np.flatnonzero((low < size) & (orders < order) & (orders > previous))
        if fit.size:
            last = int(fit[-1])
            rows.append((order, *part.row(last)[-4:]))
    schema = {"order": lacking.schema["order"], **dict([*marked.schema.items()][-4:])}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _with_drop(sent: pl.DataFrame, drops: pl.DataFrame) -> pl.DataFrame:
    """Adds `t_drop_ns` and `drop_packet`: the loss of the copy that was sent before."""
    lost = (
        drops.filter(pl.col("payload") > 0)
        .select(*SOCKET, "seq", "t_ns", t_drop_ns="t_ns", drop_packet="packet")
        .sort("t_ns", maintain_order=True)
        .cast({"sport": sent.schema["sport"], "flow": sent.schema["flow"]})
    )
    # What is dropped is never sent again in the same nanosecond, because that takes a round trip.
    sent = sent.sort("t_ns", maintain_order=True)
    own = with_last(sent, lost, "t_ns", (*SOCKET, "seq"), allow_exact_matches=False)
    stale = pl.col("t_drop_ns") < pl.col("t_previous").fill_null(pl.lit(-(1 << 62)))
    return own.with_columns(
        pl.when(~stale).then(pl.col("t_drop_ns", "drop_packet")).name.keep()
    ).sort("order")


def _with_state_before(sent: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """Adds `before`: the state before the moment at which the segment was held for lost.

    All that follows from one acknowledgement or timer happens in one nanosecond of virtual time.
    """
    changes = states.sort("t_ns", "order").select(*SOCKET, since="t_ns", before="cong_state")
    since = sent.with_columns(since=pl.coalesce("t_mark", "t_ns")).sort("since")
    return (
        with_last(since, changes, "since", allow_exact_matches=False)
        .with_columns(pl.col("before").fill_null(of.OPEN))
        .drop("since")
        .sort("order")
    )


def _with_undone(sent: pl.DataFrame, senders: TcpEvents) -> pl.DataFrame:
    """Adds `undone`: an undo comes before the next reduction of the window begins."""
    entered = senders["tcp_cong_state_set"].filter(
        (pl.col("cong_state") >= of.RECOVERY) & (pl.col("old_state") < of.RECOVERY)
    )
    undone = senders["tcp_undo"].select(*SOCKET, "order", undone=pl.lit(True))
    begun = entered.select(*SOCKET, "order", undone=pl.lit(False))
    following = pl.concat([undone, begun]).sort("order")
    next_of = with_last(sent, following, "order", strategy="forward")
    reduced = pl.col("ca_state") >= of.RECOVERY
    return next_of.with_columns(undone=reduced & pl.col("undone").fill_null(False))
