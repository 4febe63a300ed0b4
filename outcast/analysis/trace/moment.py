"""What a flow's sender was doing at one time, and what it waited for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from outcast.analysis.trace import events as of
from outcast.analysis.trace.causes import TIMERS
from outcast.analysis.trace.events import TcpEvents
from outcast.analysis.trace.senders import in_flight
from outcast.analysis.trace.timers import Timer, armed_at, tick_zero_ns
from outcast.records.sender_tables import STATES

Limit = Literal[
    "application",
    "congestion window",
    "receiver's window",
    "nagle",
    "tso",
    "host's queue",
    "pacing",
    "memory",
    "device",
    "recovery",
    "unknown",
]
_LIMITS: Mapping[int, Limit] = {
    of.STOP_NO_DATA: "application",
    of.STOP_CWND: "congestion window",
    of.STOP_RWND: "receiver's window",
    of.STOP_NAGLE: "nagle",
    of.STOP_TSO_DEFER: "tso",
    of.STOP_TSQ: "host's queue",
    of.STOP_PACING: "pacing",
    of.STOP_MEMORY: "memory",
    of.STOP_DEVICE: "device",
}
_TOLD_WHEN_SENT = (
    *("ca_state", "snd_cwnd", "rto_us", "packets_out", "sacked_out", "lost_out"),
    *("snd_una", "snd_nxt"),
)
_STATES_OF = ("tcp_ack_done", "tcp_xmit_stop", "tcp_timeout", "tcp_loss_probe", "tcp_undo")


@dataclass(frozen=True, slots=True)
class Sent:
    """A segment that was sent; `seq` is its first byte, None of new data without a number."""

    t_ns: int
    seq: int | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class Lost:
    """A segment that is missing at the receiver.

    Attributes:
        place: where: a port, or a host.
        qdisc, reason, where: the queue that dropped it, the kernel's reason and function; None if
            the events do not say.
        packet: its row in packets.parquet; None if it is not there.
    """

    seq: int
    t_ns: int
    place: str | None
    qdisc: str | None
    reason: str | None
    where: str | None
    packet: int | None


@dataclass(frozen=True, slots=True)
class Moment:
    """A sending socket at one time, after all that happened then.

    Attributes:
        t_ns: the time after the traffic's start.
        cwnd, ssthresh, in_flight, packets_out, sacked, lost, retransmitted: in segments. ssthresh
            is None until it is set.
        woken_by: what lets it send next: `acknowledgement`, a kind of timer, or `application`; None
            if it sends nothing more.
        missing: its segments that were dropped and are not made good, the oldest first.
        resent: how many others of its unacknowledged segments were dropped; all were sent again.
        queued, queued_at: how many of its packets are in the bottleneck's queue, and its port.
            What is on a link before the queue is not there yet.
    """

    flow: int
    sport: int
    t_ns: int
    state: str
    since_ns: int | None
    cwnd: int
    ssthresh: int | None
    in_flight: int
    packets_out: int
    sacked: int
    lost: int
    retransmitted: int
    srtt_us: int
    rto_us: int
    unacked_bytes: int
    waiting_bytes: int
    window_bytes: int
    heard_ns: int | None
    limit: Limit
    timer: Timer | None
    last: Sent | None
    next: Sent | None
    woken_by: str | None
    missing: tuple[Lost, ...]
    resent: int
    queued: int
    queued_at: str | None


def moments(
    senders: TcpEvents,
    again: pl.DataFrame,
    drops: pl.DataFrame,
    packets: pl.DataFrame,
    queue: pl.DataFrame,
    t_start_ns: int,
    flow: int,
    t_ns: int,
) -> tuple[Moment, ...]:
    """What each sending socket of a flow that had sent or heard something was doing at a time.

    `packets` and `queue` are the run's tables of these names.
    """
    zero_ns = tick_zero_ns(senders["tcp_timer"])
    mine = TcpEvents({name: _of(table, flow) for name, table in senders.tables.items()})
    states = pl.concat(
        [_sender_states(mine[name], name) for name in _STATES_OF], how="vertical_relaxed"
    ).sort("order")
    queued = packets.with_row_index("packet").join(_held(queue, t_start_ns + t_ns), on="packet")
    answers = []
    for sport in states["sport"].unique().sort():
        of_socket = pl.col("sport") == sport
        socket = TcpEvents({name: table.filter(of_socket) for name, table in mine.tables.items()})
        here = states.filter(of_socket)
        if not here.filter(pl.col("t_ns") <= t_ns).height:
            continue
        resent, lost, held = (
            _of(table, flow).filter(of_socket) for table in (again, drops, queued)
        )
        answers.append(_moment(socket, here, resent, lost, held, t_ns, zero_ns))
    return tuple(answers)


def _of(table: pl.DataFrame, flow: int) -> pl.DataFrame:
    return table.filter(pl.col("flow") == flow) if "flow" in table.columns else table


def _held(queue: pl.DataFrame, at_ns: int) -> pl.DataFrame:
    """The packets in queues at a time, after all that happened then."""
    last = queue.filter(pl.col("t") <= at_ns).unique("packet", keep="last", maintain_order=True)
    held = last.filter(pl.col("event").cast(pl.String) == "enqueue", pl.col("packet").is_not_null())
    return held.select(pl.col("packet").cast(pl.UInt32))


def _sender_states(table: pl.DataFrame, name: str) -> pl.DataFrame:
    return table.select(
        *("flow", "sport", "order", "t_ns", "reason", "ca_state", "snd_cwnd", "ssthresh"),
        *("srtt_us", "rto_us", "packets_out", "sacked_out", "lost_out", "retrans_out"),
        *("snd_una", "snd_nxt", "write_seq", "snd_wnd"),
        in_flight=in_flight(),
        of=pl.lit(name),
    )


def _moment(
    socket: TcpEvents,
    states: pl.DataFrame,
    again: pl.DataFrame,
    drops: pl.DataFrame,
    queued: pl.DataFrame,
    t_ns: int,
    zero_ns: int | None,
) -> Moment:
    until = pl.col("t_ns") <= t_ns
    now = states.filter(until).row(-1, named=True)
    # After a timeout, the retransmission is the last event that tells of the window.
    sent = socket["tcp_retransmit_skb"].filter(until, pl.col("err") == 0).sort("order")
    if sent.height and sent["order"][-1] > now["order"]:
        now |= _after_sending(sent.row(-1, named=True))
    changes = socket["tcp_cong_state_set"].filter(until)
    change = changes.row(-1, named=True) if changes.height else None
    state = now["ca_state"] if change is None else change["cong_state"]
    heard = socket["tcp_ack_done"].filter(until)["t_ns"]
    last, following, woken_by = _sendings(socket, states, again, t_ns)
    timer = armed_at(socket["tcp_timer"], t_ns, zero_ns)
    # The timer's timeout is the newer one, because it is doubled after the segment is sent.
    if timer is not None and timer.armed_ns >= now["t_ns"]:
        now["rto_us"] = timer.rto_ns // 1000
    missing, resent = _lost(drops, again, now["snd_una"], t_ns)
    return Moment(
        flow=now["flow"],
        sport=now["sport"],
        t_ns=t_ns,
        state=STATES[state],
        since_ns=None if change is None else change["t_ns"],
        cwnd=now["snd_cwnd"],
        ssthresh=now["ssthresh"] if now["ssthresh"] < of.NO_THRESHOLD else None,
        in_flight=now["in_flight"],
        packets_out=now["packets_out"],
        sacked=now["sacked_out"],
        lost=now["lost_out"],
        retransmitted=now["retrans_out"],
        srtt_us=now["srtt_us"],
        rto_us=now["rto_us"],
        unacked_bytes=_forward(now["snd_una"], now["snd_nxt"]),
        waiting_bytes=_forward(now["snd_nxt"], now["write_seq"]),
        window_bytes=now["snd_wnd"],
        heard_ns=heard[-1] if len(heard) else None,
        limit=_limit(states.filter(until), now),
        timer=timer,
        last=last,
        next=following,
        woken_by=woken_by,
        missing=missing,
        resent=resent,
        queued=queued.height,
        queued_at=str(queued["egress"][0]) if queued.height else None,
    )


def _after_sending(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a retransmission changes; the event is before it is counted (tcp_retransmit_skb)."""
    counted = 0 if row["cause"] == of.BY_TLP else row["segs"]
    retrans_out = row["retrans_out"] + counted
    sacked_or_lost = row["sacked_out"] + row["lost_out"]
    return {
        **{name: row[name] for name in _TOLD_WHEN_SENT},
        "retrans_out": retrans_out,
        "in_flight": max(0, row["packets_out"] - sacked_or_lost + retrans_out),
    }


def _limit(states: pl.DataFrame, now: Mapping[str, Any]) -> Limit:
    stops = states.filter(pl.col("of") == "tcp_xmit_stop")
    if now["in_flight"] >= now["snd_cwnd"]:
        return "congestion window"
    if now["lost_out"] > now["retrans_out"]:
        return "recovery"
    if not stops.height:
        return "unknown"
    return _LIMITS.get(stops["reason"][-1], "unknown")


def _sendings(
    socket: TcpEvents, states: pl.DataFrame, again: pl.DataFrame, t_ns: int
) -> tuple[Sent | None, Sent | None, str | None]:
    """What was sent last and what is sent next, and what wakes the sender for that."""
    fresh = (
        states.with_columns(before=pl.col("snd_nxt").shift(1))
        .filter(pl.col("snd_nxt") != pl.col("before"))
        .select("t_ns", "order", seq="before", cause=pl.lit(None, pl.String))
    )
    resent = again.filter(pl.col("segments") > 0).select("t_ns", "order", "seq", "cause")
    sent = pl.concat([fresh, resent], how="vertical_relaxed").sort("order")
    earlier, later = sent.filter(pl.col("t_ns") <= t_ns), sent.filter(pl.col("t_ns") > t_ns)
    last = Sent(*earlier.drop("order").row(-1)) if earlier.height else None
    if not later.height:
        return last, None, None
    following = later.row(0, named=True)
    woken = "application"
    for name, what in (("tcp_ack_done", "acknowledgement"), ("tcp_timer", "")):
        same = socket[name].filter(pl.col("t_ns") == following["t_ns"])
        if name == "tcp_timer":
            same = same.filter(pl.col("action") == of.FIRED, pl.col("kind") != of.TIME_DACK)
        if same.height:
            woken = what or TIMERS[same["kind"][0]]
    return last, Sent(following["t_ns"], following["seq"], following["cause"]), woken


def _lost(
    drops: pl.DataFrame, again: pl.DataFrame, snd_una: int, t_ns: int
) -> tuple[tuple[Lost, ...], int]:
    """Of dropped segments above the acknowledged ones, those whose last copy by then was dropped.

    Also returns how many the others are, which were sent again.
    """
    lost = (
        drops.filter(pl.col("t_ns") <= t_ns, pl.col("payload") > 0)
        .sort("t_ns")
        .unique("seq", keep="last", maintain_order=True)
    )
    sent = again.filter(pl.col("t_ns") <= t_ns, pl.col("segments") > 0)
    copies = dict(sent.group_by("seq").agg(pl.col("t_ns").max()).iter_rows())
    place = pl.when(pl.col("port") != "").then("port").otherwise("host")
    found = lost.select("seq", "t_ns", place, "qdisc", "reason", "where", "packet").iter_rows()
    segments = (Lost(*row) for row in found)
    above = [segment for segment in segments if _forward(snd_una, segment.seq) < 1 << 31]
    missing = tuple(each for each in above if copies.get(each.seq, each.t_ns) <= each.t_ns)
    return missing, len(above) - len(missing)


def _forward(low: int, high: int) -> int:
    """The bytes from one sequence number to another."""
    return (high - low) % (1 << 32)
