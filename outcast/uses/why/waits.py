"""The times that a sender stood still until a timer went off, and what had been lost."""

from __future__ import annotations

import polars as pl

from outcast.uses.why import recorded_events as of
from outcast.uses.why.causes import TIMERS
from outcast.uses.why.recorded_events import SOCKET, TcpEvents, with_last

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
