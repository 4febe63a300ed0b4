"""In words: one instant of a flow."""

from collections.abc import Iterator, Sequence

from outcast.analysis.trace.moment import Lost, Moment, Sent
from outcast.analysis.trace.timers import Timer
from outcast.units import counted
from outcast.view.terminal.dropped import Words

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
_ENDS = {"fired": "it went off", "armed again": "it was set anew", "cleared": "it was taken back"}
_MOST_LISTED = 8


def lines(moment: Moment, name: str, words: Words) -> Iterator[str]:
    """Lines of text on one socket."""
    yield f"At {ms(moment.t_ns)} {name} {_waits(moment)}."
    since = "" if moment.since_ns is None else f", since {ms(moment.since_ns)}"
    yield f"  state     {_STATE_NAMES[moment.state]}{since}"
    threshold = "not set" if moment.ssthresh is None else f"{moment.ssthresh}"
    yield (
        f"  window    {counted(moment.cwnd, 'segment')}, ssthresh {threshold}; "
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
    sent = "nothing yet"
    if (last := moment.last) is not None:
        number = "" if last.seq is None else f", sequence number {last.seq}"
        sent = f"{_what(last)}, {_ago(last.t_ns, moment.t_ns)}{number}"
    yield f"  sent      last: {sent}"
    yield f"  next      {_next(moment)}"
    yield from _network(moment, words)


def _waits(moment: Moment) -> str:
    if moment.next is None:
        return "sends nothing more in this run"
    until = f"until {ms(moment.next.t_ns)}"
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
    due = "" if timer.due_ns is None else f", due at {ms(timer.due_ns)}"
    doubled = {0: "", 1: ", doubled once"}.get(timer.backoff, f", doubled {timer.backoff} times")
    # Only the retransmission timer is set for the socket's timeout.
    lasts = f"set for {timer.set_ns / 1e6:g} ms"
    if timer.kind == "rto":
        lasts = f"timeout {timer.rto_ns / 1e6:g} ms"
    return (
        f"{name} ({function}), armed at {ms(timer.armed_ns)}{due} ({lasts}{doubled}); {_end(timer)}"
    )


def _end(timer: Timer) -> str:
    if timer.end is None or timer.end_ns is None:
        return "the run ended before"
    return f"{_ENDS[timer.end]} at {ms(timer.end_ns)}"


def _next(moment: Moment) -> str:
    if moment.next is None:
        return "nothing is sent in this run any more"
    later_ns = moment.next.t_ns - moment.t_ns
    return f"{ms(moment.next.t_ns)}, after {later_ns / 1e6:.3f} ms: {_what(moment.next)}"


def _what(sent: Sent) -> str:
    return "new data" if sent.cause is None else _CAUSES[sent.cause]


def _network(moment: Moment, words: Words) -> Iterator[str]:
    if moment.queued:
        later = "; what it drops later is left out" if moment.queued_at in words.later else ""
        yield (
            f"  queue     {counted(moment.queued, 'packet')} of it "
            f"{'is' if moment.queued == 1 else 'are'} in the queue of {moment.queued_at}{later}"
        )
    if not moment.missing:
        yield f"  lost      {_made_good(moment.resent)}"
        return
    lost_last: Sequence[Lost] = moment.missing[-_MOST_LISTED:]
    left_out = len(moment.missing) - len(lost_last)
    earlier = f", the last {len(lost_last)}" if left_out else ""
    missing = counted(len(moment.missing), "segment")
    yield f"  lost      {missing} dropped and not made good{earlier}:"
    for lost in lost_last:
        yield f"            {_lost(lost, words)}"


def _made_good(resent: int) -> str:
    if not resent:
        return "none of its unacknowledged segments was dropped"
    if resent == 1:
        return "one of its unacknowledged segments was dropped; it has been sent again since"
    return f"{resent} of its unacknowledged segments were dropped; all have been sent again since"


def _lost(lost: Lost, words: Words) -> str:
    told = words.told(lost.place, lost.qdisc, lost.reason, lost.where)
    by = f" by {told.queue}" if told.queue else ""
    by += f": {told.why}" if told.why else ""
    on = "on the" if told.place.startswith("link ") else "at"
    packet = "" if lost.packet is None else f", packet {lost.packet} of packets.parquet"
    place = told.place or "an unknown place"
    return f"{lost.seq} at {ms(lost.t_ns)} {on} {place}{by}{packet}"


def _ago(t_ns: int, now_ns: int) -> str:
    return f"at {ms(t_ns)}, {(now_ns - t_ns) / 1e6:.3f} ms before"


def ms(t_ns: int) -> str:
    """Writes a time in milliseconds, to the nanosecond."""
    return f"{t_ns / 1e6:.6f} ms"
