"""Lists the kernel's events, and says by them why flows waited, sent again and lost packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import polars as pl

from outcast.errors import ConfigError
from outcast.records import IN_INTERVAL, Counters, FlowRecord, Run
from outcast.units import counted
from outcast.uses.why import recorded_events as of
from outcast.uses.why.causes import CAUSES, TIMERS
from outcast.uses.why.drops import Words, chain_table, reason_table
from outcast.uses.why.recorded_events import EVENTS, SOCKET, TcpEvents, with_last
from outcast.uses.why.recording import trace
from outcast.uses.why.senders import read_traced
from outcast.view import forms


def text(path: Path) -> str:
    """The whole table of `overview`, of a run that is made again to record its events."""
    run = trace(path, EVENTS, allow_programs=True, progress=False).run
    return "\n".join(overview(run, "table"))


def overview(run: Run, form: str, whole: bool = False) -> Iterator[str]:
    """Why segments were sent again, why flows stood still, and why packets were dropped.

    It is of the interval that the run's summary covers, or of the whole run. As a table it also has
    the kernel's counters beside the sums of the events, which are of the whole run. As csv or json
    it is the retransmissions themselves, a line each.

    Raises InputError if the run recorded no events of TCP.
    """
    traced = read_traced(run.directory)
    from_ns, to_ns = _interval(run, whole)
    again = traced.again.filter(_lies_in(run, whole))
    if form != "table":
        yield from forms.frame(again.drop("order"), form)
        return
    yield "Of the whole run" if whole else f"From {from_ns / 1e9:g} to {to_ns / 1e9:g} s"
    yield ""
    yield "Segments sent again, by cause"
    yield from _or_none(_causes(run, again))
    yield ""
    yield "The kernel's counters, and what the events sum up to, in the whole run"
    yield from _aligned(_counters(run, traced.every))
    yield ""
    yield "Time that flows stood still until a timer went off, by what was lost"
    packets, drop_chains = (run.table(name, whole=True) for name in ("packets", "blackouts"))
    with run.reading():
        waits = wait_table(traced.senders, traced.again, traced.drops, packets, drop_chains)
    waits = within(waits, from_ns, to_ns).with_columns(group=_group_of(run))
    yield from _or_none(_waits(run, waits, to_ns - from_ns))
    yield ""
    yield "Packets dropped, by place and reason; the counters are of the whole run"
    counts = _drops_counted(run, traced.drops, whole)
    yield from _or_none(_drops(run, traced.drops, counts, traced.every.tables.keys()))


def _interval(run: Run, whole: bool) -> tuple[int, int]:
    """From when to when after the traffic's start, in ns."""
    if whole:
        return 0, run.manifest.traffic.duration_ns
    return round(run.summary.start_s * 1e9), round(run.summary.end_s * 1e9)


def _lies_in(run: Run, whole: bool, column: str = "t_ns") -> pl.Expr:
    """Whether an event counts; of a whole run, also those before the traffic and after it."""
    return pl.lit(value=True) if whole else run.counts(pl.col(column))


def _drops_counted(run: Run, drops: pl.DataFrame, whole: bool, time: str = "t_ns") -> pl.Series:
    """For each drop whether it counts: a packet of the table as there, any other by its time."""
    rows = run.scan("packets", whole=True).select(IN_INTERVAL).with_row_index("packet").collect()
    packet = pl.col("packet").cast(rows.schema["packet"])
    known = drops.select(packet, by_time=_lies_in(run, whole, time)).join(
        rows, on="packet", how="left", maintain_order="left"
    )
    return known.select(
        pl.col("by_time") if whole else pl.coalesce(IN_INTERVAL, "by_time")
    ).to_series()


def _group_of(run: Run) -> pl.Expr:
    return pl.col("flow").replace_strict(run.group_of, default="other", return_dtype=pl.String)


def _causes(run: Run, again: pl.DataFrame) -> list[list[str]]:
    """Rows of causes, with the segments of each group."""
    counts = (
        again.filter(pl.col("segments") > 0)
        .group_by(_group_of(run).alias("group"), "cause")
        .agg(pl.col("segments").sum())
    )
    number = {(group, cause): segments for group, cause, segments in counts.iter_rows()}
    groups = dict.fromkeys([*run.group_of.values(), "other"])
    seen = [group for group in groups if any(key[0] == group for key in number)]
    rows = [["cause", *seen]]
    found = set(counts["cause"])
    for cause in [each for each in (*CAUSES, None) if each in found]:
        rows.append([cause or "unknown", *(f"{number.get((of, cause), 0):,}" for of in seen)])
    return rows


def _counters(run: Run, events: TcpEvents) -> list[list[str]]:
    """Rows of the kernel's counters, with the sums of the events over all hosts."""
    rows = [["counter", "kernel", "events", ""]]
    differ = pl.col("kernel") != pl.col("events")
    totals = (
        compare(events, run.counters)
        .group_by("counter", maintain_order=True)
        .agg(pl.col("kernel").sum(), pl.col("events").sum(), hosts=differ.sum())
    )
    for name, kernel, summed, hosts in totals.iter_rows():
        equal = f"differ at {counted(hosts, 'host')}" if hosts else "equal at every host"
        rows.append([name, f"{kernel:,}", f"{summed:,}", equal])
    return rows


def _drops(run: Run, drops: pl.DataFrame, counts: pl.Series, recorded: Set[str]) -> list[list[str]]:
    """Rows of places and reasons, with the packets that events and counters show.

    Drops outside the interval are only in the whole run's column, as counters count them too.
    """
    parted = not counts.all()
    rows = [["place", "queue", "reason", "dropped"]]
    rows[0] += [*["whole run"] * parted, "counter", ""]
    keys = ["place", "qdisc", "reason", "where"]
    mine = {
        row[:4]: row[4] for row in reason_table(drops.filter(counts)).select(*keys, "events").rows()
    }
    words = Words.of(run)
    # Counters count all drops, so they cannot be compared with events of some.
    links = run.counters.links if {"kfree_skb", "qdisc_drop"} <= recorded else ()
    for row in reason_table(drops, links, words.links).iter_rows(named=True):
        drop = words.put(row["place"], row["qdisc"], row["reason"], row["where"])
        kernel = "" if row["counter"] is None else f"{row['counter']:,}"
        place = drop.place or "?"
        dropped = [mine.get(tuple(row[key] for key in keys), 0), *[row["events"]] * parted]
        numbers = [f"{number:,}" for number in dropped]
        rows.append([place, drop.queue, drop.why, *numbers, kernel, row["note"]])
    return rows


def _waits(run: Run, waits: pl.DataFrame, span_ns: int) -> list[list[str]]:
    """Rows of the waits of each group: how many, how long, and which share of its flows' time.

    A flow of Multipath TCP has the time of each of its connections.
    """
    connections: dict[str, int] = {}
    for record in run.manifest.flows:
        label = run.group_of.get(record.flow, "other")
        ports = {record.sport, *(subflow.sport for subflow in record.subflows)}
        connections[label] = connections.get(label, 0) + len(ports)
    spent = (
        waits.group_by("group", "lost", "timer")
        .agg(waits=pl.len(), spent_ms=pl.col("waited_ns").sum() / 1e6)
        .sort("group", "spent_ms", descending=[False, True])
    )
    rows = [["group", "lost", "timer", "waits", "ms", "of the flows' time"]]
    for group, lost, timer, waits_of, spent_ms in spent.iter_rows():
        share = 100 * spent_ms * 1e6 / (span_ns * connections.get(group, 1))
        rows.append([group, lost, timer, str(waits_of), f"{spent_ms:.1f}", f"{share:.1f} %"])
    return rows


def chains(run: Run, flow: int, form: str, whole: bool = False) -> Iterator[str]:
    """From each drop of a flow's data to its repair, a line each; of the interval or the whole run.

    Raises ConfigError without such a flow, and InputError without events of TCP.
    """
    record = _record(run, flow)
    traced = read_traced(run.directory)
    table = chain_table(traced.drops, traced.again, traced.senders)
    table = table.filter(_drops_counted(run, table, whole, "t_drop_ns"), pl.col("flow") == flow)
    if form != "table":
        yield from forms.frame(table, form)
        return
    yield f"{_named(record)}: {counted(table.height, 'data segment')} dropped (times in ms)"
    words = Words.of(run)
    rows = [["dropped", "sequence", "at", "detected", "by", "state", "again", "cause", "waited"]]
    for row in table.iter_rows(named=True):
        place = words.place(row["port"] or row["host"], row["qdisc"], row["reason"])
        changed = f"{row['state_before']} > {row['state_after']}"
        rows.append(
            [
                *(_short(row["t_drop_ns"]), str(row["seq"]), place or "?"),
                *(_short(row["t_detect_ns"]), row["detected_by"] or "-"),
                "-" if row["state_after"] is None else changed,
                *(_short(row["t_again_ns"]), row["cause"] or "-", _short(row["waited_ns"])),
            ]
        )
    yield from _aligned(rows)


def _record(run: Run, flow: int) -> FlowRecord:
    known = {record.flow: record for record in run.manifest.flows}
    if flow not in known:
        most = f"0 to {max(known)}" if known else "none, because the run has no flows"
        raise ConfigError(f"--flow {flow}: the run has no such flow; allowed is {most}")
    return known[flow]


def _named(record: FlowRecord) -> str:
    control = f", {record.congestion_control}" if record.congestion_control else ""
    return f"flow {record.flow} ({record.src} to {record.dst}{control})"


def _or_none(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from _aligned(rows) if len(rows) > 1 else ["  none"]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of text in columns; the first is the head. Numbers stand on the right."""

    def is_number(text: str) -> bool:
        return text[:1].isdigit() or text in ("-", "")

    columns = enumerate(zip(*rows, strict=True))
    left = [at for at, (_, *texts) in columns if not texts or not all(map(is_number, texts))]
    yield from (f"  {line}" for line in forms.aligned(rows, left))


def _short(t_ns: int | None) -> str:
    return "-" if t_ns is None else f"{t_ns / 1e6:.6f}"


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
        for host, counts in counters.hosts.items():
            kernel = sum(counts.delta(name) for name in counter.split("+"))
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
