"""In words and tables: why flows waited, sent again and lost packets, by the kernel's events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import polars as pl

from outcast.analysis.trace import sums
from outcast.analysis.trace.causes import CAUSES
from outcast.analysis.trace.chain import chain_table
from outcast.analysis.trace.drops import reason_table
from outcast.analysis.trace.moment import Lost, Moment, Sent, moments
from outcast.analysis.trace.senders import read_traced
from outcast.analysis.trace.timers import Timer
from outcast.analysis.trace.waits import wait_table, within
from outcast.errors import ConfigError
from outcast.records.run import Run
from outcast.records.run_directory import FlowRecord
from outcast.view.terminal import forms

_TIMER_NAMES = {
    "rto": ("retransmission timer", "tcp_retransmit_timer"),
    "tlp": ("tail loss probe's timer", "tcp_send_loss_probe"),
    "reordering_timer": ("RACK's reordering timer", "tcp_rack_reo_timeout"),
    "window_probe": ("window probe's timer", "tcp_probe_timer"),
}
_STATE_NAMES = {
    "open": "open: nothing is held for lost",
    "disorder": "disorder: something came out of order (tcp_try_keep_open)",
    "cwr": "cwr: the window shrinks without a loss to repair (tcp_init_cwnd_reduction)",
    "recovery": "recovery: losses that acknowledgements showed are repaired (tcp_enter_recovery)",
    "loss": "loss: the retransmission timer went off (tcp_enter_loss)",
}
_LIMITS = {
    "application": "the application: it has written nothing more (tcp_send_head)",
    "congestion window": "the congestion window (tcp_cwnd_test)",
    "receiver's window": "the receiver's window (tcp_snd_wnd_test)",
    "nagle": "Nagle's algorithm (tcp_nagle_test)",
    "tso": "a larger segment to be gathered (tcp_tso_should_defer)",
    "host's queue": "its packets in the host's own queue (tcp_small_queue_check)",
    "pacing": "pacing (tcp_pacing_check)",
    "memory": "memory (tso_fragment)",
    "device": "the layer below, which refused a segment (tcp_transmit_skb)",
    "recovery": "nothing: lost segments may be sent (tcp_xmit_retransmit_queue)",
    "unknown": "nothing that the events tell",
}
_CAUSES = {
    "syn": "the SYN again",
    "rto": "the oldest segment again, because the retransmission timer went off",
    "after_rto": "a lost segment again, in the recovery after a timeout",
    "tlp": "the last segment again, as a tail loss probe",
    "rack": "a segment again that RACK held for lost",
    "reordering_timer": "a segment again after waiting for reordering",
    "lost_retransmission": "a segment again whose retransmission was lost too",
    "newreno": "a segment again after duplicate acknowledgements",
    "window_probe": "the oldest segment again, to probe a window of zero",
    "no_congestion": "a segment again, for another reason than congestion",
}
_FULL = "OVERLIMIT"
_REASONS = {
    _FULL: "the queue was full",
    "CONGESTED": "the queue's AQM dropped it, to signal congestion",
    "GENERIC": "the queue dropped it",
    "MAXFLOWS": "the queue had room for no further flow",
    "FLOOD_PROTECTION": "the queue held its flow for unresponsive",
    "BAND_LIMIT": "its band of the queue was full",
    "HORIZON_LIMIT": "it was to be sent too far in the future",
    "FLOW_LIMIT": "its flow had no more room in the queue",
    "L4S_STEP_NON_ECN": "the low-latency queue was above its threshold, and it could not be marked",
}
"""Why a queue drops a packet: enum qdisc_drop_reason in include/net/dropreason-qdisc.h."""
_MOST_LISTED = 8


def overview(run: Run, form: str) -> Iterator[str]:
    """Why segments were sent again, why flows stood still, and why packets were dropped.

    As a table it also has the kernel's counters beside the sums of the events. As csv or json it is
    the retransmissions themselves, a line each.

    Raises InputError if the run recorded no events of TCP.
    """
    traced = read_traced(run.directory)
    if form != "table":
        yield from forms.frame(traced.again.drop("order"), form)
        return
    group_of = pl.col("flow").replace_strict(run.group_of, default="other", return_dtype=pl.String)
    counts = (
        traced.again.filter(pl.col("segments") > 0)
        .with_columns(group=group_of)
        .group_by("group", "cause")
        .agg(segments=pl.col("segments").sum(), undone=pl.col("undone").sum())
    )
    labels = [label for label in dict.fromkeys([*run.group_of.values(), "other"])]
    number = {(row[0], row[1]): row[2] for row in counts.iter_rows()}
    labels_seen = [label for label in labels if any(key[0] == label for key in number)]
    yield "Segments sent again, by cause"
    yield from _aligned(
        [
            ["cause", *labels_seen],
            *(
                [
                    cause or "unknown",
                    *(f"{number.get((label, cause), 0):,}" for label in labels_seen),
                ]
                for cause in (*CAUSES, None)
                if any(number.get((label, cause)) for label in labels_seen)
            ),
        ]
    )
    yield ""
    yield "The kernel's counters, and what the events sum up to"
    compared = sums.compare(traced.every, run.counters)
    totals = (
        compared.group_by("counter", maintain_order=True)
        .agg(
            pl.col("kernel").sum(),
            pl.col("events").sum(),
            hosts=(pl.col("kernel") != pl.col("events")).sum(),
        )
        .iter_rows()
    )
    yield from _aligned(
        [
            ["counter", "kernel", "events", ""],
            *(
                [
                    name,
                    f"{kernel:,}",
                    f"{events:,}",
                    f"differ at {_count(hosts, 'host')}" if hosts else "equal at every host",
                ]
                for name, kernel, events, hosts in totals
            ),
        ]
    )
    yield ""
    yield "Time that flows stood still until a timer went off, by what was lost"
    packets, drop_chains = run.table("packets"), run.table("blackouts")
    with run.reading():
        waits = wait_table(traced.senders, traced.again, traced.drops, packets, drop_chains)
    yield from _waits_by_group(run, waits.with_columns(group=group_of))
    yield ""
    yield "Packets dropped, by place and reason"
    yield from _aligned(
        [
            ["place", "queue", "reason", "events", "counter", ""],
            *(
                [
                    row["place"] or "?",
                    row["qdisc"] or "",
                    _why(row["reason"], row["where"], _limits(run).get(row["place"])),
                    f"{row['events']:,}",
                    "" if row["counter"] is None else f"{row['counter']:,}",
                    row["note"],
                ]
                for row in reason_table(traced.drops, run.counters).iter_rows(named=True)
            ),
        ]
    )


def _limits(run: Run) -> dict[str, str]:
    """The limits of the measured queues in words, by their ports."""
    queues = {port.egress: port.queue for port in run.manifest.bottlenecks}
    return {
        port: f"{queue.limit_bytes:,} bytes"
        if queue.limit_bytes
        else f"{queue.limit_packets:,} packets"
        for port, queue in queues.items()
        if queue.limit_bytes or queue.limit_packets
    }


def _why(reason: str | None, where: str | None, limit: str | None) -> str:
    """Why a packet was dropped: in the field's words if a queue did it, else in the kernel's."""
    if reason in _REASONS:
        known = reason == _FULL and limit is not None
        return f"{_REASONS[reason]} (limit {limit})" if known else _REASONS[reason]
    return " in ".join(part for part in (reason, where) if part)


def _waits_by_group(run: Run, waits: pl.DataFrame) -> Iterator[str]:
    """The waits of each group: how many, how long, and which share of its flows' time.

    A flow of Multipath TCP has the time of each of its connections.
    """
    duration_ns = run.manifest.traffic.duration_ns
    connections: dict[str, int] = {}
    for record in run.manifest.flows:
        label = run.group_of.get(record.flow, "other")
        ports = {record.sport, *(subflow.sport for subflow in record.subflows)}
        connections[label] = connections.get(label, 0) + len(ports)
    spent = (
        within(waits, duration_ns)
        .group_by("group", "lost", "timer")
        .agg(waits=pl.len(), ms=pl.col("waited_ns").sum() / 1e6)
        .sort("group", "ms", descending=[False, True])
    )
    yield from _aligned(
        [
            ["group", "lost", "timer", "waits", "ms", "of the flows' time"],
            *(
                [
                    group,
                    lost,
                    timer,
                    str(count),
                    f"{ms:.1f}",
                    f"{100 * ms * 1e6 / (duration_ns * connections.get(group, 1)):.1f} %",
                ]
                for group, lost, timer, count, ms in spent.iter_rows()
            ),
        ]
    )


def chains(run: Run, flow: int, form: str) -> Iterator[str]:
    """From each drop of a flow's data to its repair, a line each.

    Raises:
        ConfigError: the run has no such flow.
        InputError: the run recorded no events of TCP.
    """
    record = _record(run, flow)
    traced = read_traced(run.directory)
    table = chain_table(traced.drops, traced.again, traced.senders).filter(pl.col("flow") == flow)
    if form != "table":
        yield from forms.frame(table, form)
        return
    yield f"{_named(record)}: {_count(table.height, 'data segment')} dropped (times in ms)"
    yield from _aligned(
        [
            ["dropped", "sequence", "at", "detected", "by", "state", "again", "cause", "waited"],
            *(
                [
                    _short(row["t_drop_ns"]),
                    str(row["seq"]),
                    row["port"] or row["host"] or "?",
                    _short(row["t_detect_ns"]),
                    row["detected_by"] or "-",
                    "-"
                    if row["state_after"] is None
                    else f"{row['state_before']} > {row['state_after']}",
                    _short(row["t_again_ns"]),
                    row["cause"] or "-",
                    _short(row["waited_ns"]),
                ]
                for row in table.iter_rows(named=True)
            ),
        ]
    )


def at(run: Run, flow: int, t_ns: int, form: str) -> Iterator[str]:
    """What a flow waited for at a time: in words, or as json.

    Raises:
        ConfigError: the run has no such flow, or the time is not within the run.
        InputError: the run recorded no events of TCP.
    """
    record = _record(run, flow)
    traced = read_traced(run.directory)
    t_start_ns = run.manifest.traffic.t_start_ns
    end_ns = run.manifest.traffic.t_end_ns - t_start_ns
    if not 0 <= t_ns <= end_ns:
        raise ConfigError(f"--at: {_ms(t_ns)} is not within the run; allowed is 0 to {_ms(end_ns)}")
    packets = run.table("packets")
    with run.reading():
        answers = moments(
            traced.senders, traced.again, traced.drops, packets, t_start_ns, flow, t_ns
        )
    if form == "json":
        yield from (json.dumps(asdict(moment)) for moment in answers)
        return
    if not answers:
        yield f"At {_ms(t_ns)} {_named(record)} had sent nothing yet."
    for moment in answers:
        port = f", port {moment.sport}" if len(answers) > 1 else ""
        yield from lines(moment, _named(record) + port, _limits(run))


def _record(run: Run, flow: int) -> FlowRecord:
    known = {record.flow: record for record in run.manifest.flows}
    if flow not in known:
        most = f"0 to {max(known)}" if known else "none, because the run has no flows"
        raise ConfigError(f"--flow {flow}: the run has no such flow; allowed is {most}")
    return known[flow]


def _named(record: FlowRecord) -> str:
    control = f", {record.congestion_control}" if record.congestion_control else ""
    return f"flow {record.flow} ({record.src} to {record.dst}{control})"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of text in columns; the first is the head. Numbers stand on the right."""
    left = [
        at
        for at in range(len(rows[0]))
        if len(rows) == 1
        or not all(row[at][:1].isdigit() or row[at] in ("-", "") for row in rows[1:])
    ]
    yield from (f"  {line}" for line in forms.aligned(rows, left))


def _short(t_ns: int | None) -> str:
    return "-" if t_ns is None else f"{t_ns / 1e6:.4f}"


def lines(moment: Moment, name: str, limits: Mapping[str, str]) -> Iterator[str]:
    """Lines of text on one socket."""
    yield f"At {_ms(moment.t_ns)} {name} {_waits(moment)}."
    since = "" if moment.since_ns is None else f", since {_ms(moment.since_ns)}"
    yield f"  state     {_STATE_NAMES[moment.state]}{since}"
    threshold = "not set" if moment.ssthresh is None else f"{moment.ssthresh}"
    yield (
        f"  window    {_count(moment.cwnd, 'segment')}, ssthresh {threshold}; "
        f"{moment.in_flight} in flight: {moment.packets_out} sent and not acknowledged "
        f"({moment.unacked_bytes:,} bytes), {moment.sacked} of them selectively acknowledged, "
        f"{moment.lost} held for lost, {moment.retransmitted} sent again"
    )
    yield f"  limit     {_LIMITS[moment.limit]}"
    yield f"  timer     {_timer(moment)}"
    yield (
        f"  rtt       {moment.srtt_us / 1e3:.3f} ms smoothed, timeout "
        f"{moment.rto_us / 1e3:g} ms; receiver's window {moment.window_bytes:,} bytes; "
        f"{moment.waiting_bytes:,} bytes written and not sent"
    )
    heard = "nothing yet" if moment.heard_ns is None else _ago(moment.heard_ns, moment.t_ns)
    yield f"  heard     last acknowledgement: {heard}"
    yield f"  sent      last: {_sending(moment.last, moment.t_ns)}"
    yield f"  next      {_next(moment)}"
    yield from _network(moment, limits)


def _waits(moment: Moment) -> str:
    if moment.next is None:
        return "sends nothing more in this run"
    until = f"until {_ms(moment.next.t_ns)}"
    if moment.woken_by == "acknowledgement":
        return f"waits for an acknowledgement, {until}"
    if moment.woken_by == "application":
        return f"waits for the application or for the host's own queue, {until}"
    name, function = _TIMER_NAMES[moment.woken_by or "rto"]
    return f"waits for its {name} ({function}), {until}"


def _timer(moment: Moment) -> str:
    timer = moment.timer
    if timer is None:
        return "none is armed"
    name, function = _TIMER_NAMES[timer.kind]
    due = "" if timer.due_ns is None else f", due at {_ms(timer.due_ns)}"
    doubled = {0: "", 1: ", doubled once"}.get(timer.backoff, f", doubled {timer.backoff} times")
    return (
        f"{name} ({function}), armed at {_ms(timer.armed_ns)}{due} "
        f"(timeout {timer.rto_ns / 1e6:g} ms{doubled}); {_end(timer)}"
    )


def _end(timer: Timer) -> str:
    if timer.end is None or timer.end_ns is None:
        return "the run ended before"
    what = {
        "fired": "it went off",
        "armed again": "it was set anew",
        "cleared": "it was taken back",
    }[timer.end]
    return f"{what} at {_ms(timer.end_ns)}"


def _sending(sent: Sent | None, t_ns: int) -> str:
    if sent is None:
        return "nothing yet"
    number = "" if sent.seq is None else f", sequence number {sent.seq}"
    return f"{_what(sent)}, {_ago(sent.t_ns, t_ns)}{number}"


def _next(moment: Moment) -> str:
    if moment.next is None:
        return "nothing is sent in this run any more"
    later_ns = moment.next.t_ns - moment.t_ns
    return f"{_ms(moment.next.t_ns)}, after {later_ns / 1e6:.3f} ms: {_what(moment.next)}"


def _what(sent: Sent) -> str:
    return "new data" if sent.cause is None else _CAUSES[sent.cause]


def _network(moment: Moment, limits: Mapping[str, str]) -> Iterator[str]:
    if moment.queued:
        yield (
            f"  queue     {_count(moment.queued, 'packet')} of it "
            f"{'is' if moment.queued == 1 else 'are'} in the queue of {moment.queued_at}"
        )
    if not moment.missing:
        yield "  lost      none of its unacknowledged segments was dropped"
        return
    lost_last: Sequence[Lost] = moment.missing[-_MOST_LISTED:]
    left_out = len(moment.missing) - len(lost_last)
    earlier = f", the last {len(lost_last)}" if left_out else ""
    missing = _count(len(moment.missing), "segment")
    yield f"  lost      {missing} dropped and not made good{earlier}:"
    for lost in lost_last:
        yield f"            {_lost(lost, limits)}"


def _lost(lost: Lost, limits: Mapping[str, str]) -> str:
    by = f" by {lost.qdisc}" if lost.qdisc else ""
    why = _why(lost.reason, lost.where, limits.get(lost.place or ""))
    by += f": {why}" if why else ""
    packet = "" if lost.packet is None else f", packet {lost.packet} of packets.parquet"
    return f"{lost.seq} at {_ms(lost.t_ns)} at {lost.place or 'an unknown place'}{by}{packet}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _ago(t_ns: int, now_ns: int) -> str:
    return f"at {_ms(t_ns)}, {(now_ns - t_ns) / 1e6:.3f} ms before"


def _ms(t_ns: int) -> str:
    return f"{t_ns / 1e6:.6f} ms"
