"""Every segment that is sent again has one cause, and the sums are those of the counters."""

from typing import Any

import polars as pl
import pytest

from outcast.records.counters import Counters, HostCounters, LinkRecord, LinkTotals
from outcast.uses.why import overview
from outcast.uses.why import recorded_events as of
from outcast.uses.why.causes import (
    CAUSES,
    drop_table,
    losing_ways,
    retransmission_table,
    synack_rows,
)
from outcast.uses.why.drops import chain_table, reason_table
from outcast.uses.why.recorded_events import TcpEvents
from outcast.uses.why.senders import of_flows, series_table
from tests import records
from tests.plans import planned
from tests.unit.why.tcp_events import Event, tables

MS = 1_000_000


def sent(t_ms: float, seq: int, cause: int, **fields: Any) -> Event:
    known = {"seq": seq, "end_seq": seq + 1000, "segs": 1, "cause": cause, "ca_state": of.RECOVERY}
    return ("tcp_retransmit_skb", round(t_ms * MS), known | fields)


def mark(t_ms: float, seq: int, cause: int, **fields: Any) -> Event:
    known = {"seq": seq, "end_seq": seq + 1000, "segs": 1, "cause": cause}
    return ("tcp_mark_lost", round(t_ms * MS), known | fields)


def state(t_ms: float, old: int, new: int, **fields: Any) -> Event:
    return ("tcp_cong_state_set", round(t_ms * MS), {"old_state": old, "cong_state": new} | fields)


def drop(t_ms: float, seq: int, **fields: Any) -> Event:
    known = {"seq": seq, "payload": 1000, "reason_name": "QDISC_DROP"}
    known |= {"saddr": "10.0.0.1", "daddr": "10.0.0.2"}
    return ("kfree_skb", round(t_ms * MS), known | {"port": "s1-eth1", "packet": 7} | fields)


def again(*events: Event) -> pl.DataFrame:
    every = tables(*events)
    return retransmission_table(every, dropped(every))


def dropped(every: TcpEvents) -> pl.DataFrame:
    return drop_table(every, {"10.0.0.2": "h2"})


def only(*events: Event) -> dict[str, Any]:
    (row,) = again(*events).to_dicts()
    return row


def test_a_cards_copy_is_no_packet_that_was_dropped():
    copies = [drop(at, 100 * at, port="behind", reason_name="TC_INGRESS") for at in (1, 2)]
    assert dropped(tables(drop(1, 100), *copies)).height == 1


def test_a_timeout_and_what_follows_it():
    table = again(
        drop(1, 100),
        drop(1, 1100),
        mark(5, 100, of.LOST_RTO),
        mark(5, 1100, of.LOST_RTO),
        state(5, of.OPEN, of.LOSS),
        sent(5, 100, of.BY_RTO, ca_state=of.LOSS),
        sent(6, 1100, of.BY_ACK, ca_state=of.LOSS),
    )
    assert table["cause"].to_list() == ["rto", "after_rto"]
    assert table["counter"].to_list() == ["TCPTimeouts", "TCPSlowStartRetrans"]
    assert table["timer"].to_list() == ["rto", None]
    assert table["t_detect_ns"].to_list() == [5 * MS, 5 * MS]
    assert table["state_before"].to_list() == ["open", "open"]


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ((sent(2, 100, of.BY_TLP, ca_state=of.OPEN),), "tlp"),
        ((sent(2, 100, of.BY_RTO, tcp_flags=of.SYN, ca_state=of.LOSS),), "syn"),
        ((sent(2, 100, of.BY_PROBE0, ca_state=of.LOSS),), "window_probe"),
        ((sent(2, 100, of.BY_SIMPLE, ca_state=of.LOSS),), "no_congestion"),
        ((mark(2, 100, of.LOST_REO_TIMER), sent(2, 100, of.BY_REO_TIMER)), "reordering_timer"),
        ((mark(2, 100, of.LOST_REO_TIMER), sent(3, 100, of.BY_ACK)), "reordering_timer"),
        ((mark(2, 100, of.LOST_NEWRENO), sent(2, 100, of.BY_ACK)), "newreno"),
        ((mark(2, 100, of.LOST_RACK), sent(2, 100, of.BY_TSQ)), "rack"),
        ((mark(2, 100, of.LOST_RTO), sent(3, 100, of.BY_ACK)), "after_rto"),
        ((mark(2, 100, of.LOST_SIMPLE), sent(3, 100, of.BY_ACK)), "no_congestion"),
        ((sent(3, 100, of.BY_ACK),), None),
    ],
)
def test_every_way_has_its_cause(events, cause):
    assert only(*events)["cause"] == cause
    assert cause in {*CAUSES, None}


@pytest.mark.parametrize("failed", [{"err": -of.EBUSY, "segs": 0}, {"err": 1}])
def test_an_attempt_that_failed_leaves_the_cause_to_the_next(failed):
    table = again(
        drop(1, 100),
        mark(2, 100, of.LOST_RACK),
        sent(2, 100, of.BY_ACK, **failed),
        sent(3, 100, of.BY_TSQ),
        mark(4, 100, of.LOST_RACK, sacked=of.SACKED_RETRANS | of.MARKED_LOST),
        sent(4, 100, of.BY_ACK),
    )
    assert table["cause"].to_list() == ["rack", "rack", "lost_retransmission"]
    assert table["t_detect_ns"].to_list() == [2 * MS, 2 * MS, 4 * MS]
    assert table["t_drop_ns"].to_list() == [1 * MS, 1 * MS, None]
    assert table["segments"].to_list() == [failed.get("segs", 1), 1, 1]


def test_a_retransmission_that_is_lost_again():
    table = again(
        drop(1, 100),
        mark(2, 100, of.LOST_RACK),
        sent(2, 100, of.BY_ACK),
        drop(2.1, 100, packet=9),
        mark(4, 100, of.LOST_RACK, sacked=of.SACKED_RETRANS | of.MARKED_LOST),
        sent(4, 100, of.BY_ACK),
    )
    assert table["cause"].to_list() == ["rack", "lost_retransmission"]
    assert table["t_drop_ns"].to_list() == [1 * MS, 2_100_000]
    assert table["drop_packet"].to_list() == [7, 9]


def test_a_split_segment_takes_the_mark_of_the_whole():
    row = only(mark(2, 100, of.LOST_RACK, end_seq=4100, segs=4), sent(3, 2100, of.BY_ACK))
    assert (row["t_detect_ns"], row["detected_by"]) == (2 * MS, "rack")


def test_a_buffer_of_several_segments_has_a_row_for_each():
    table = again(
        ("tcp_ack_done", 0, {"mss": 1000}),
        drop(1, (1 << 32) - 500, packet=3),
        drop(1, 500, packet=4),
        mark(2, (1 << 32) - 500, of.LOST_RACK, end_seq=1700, segs=3),
        sent(2, (1 << 32) - 500, of.BY_ACK, end_seq=1700, segs=3),
    )
    assert table["seq"].to_list() == [(1 << 32) - 500, 500, 1500]
    assert table["end_seq"].to_list() == [500, 1500, 1700]
    assert table["segments"].to_list() == [1, 1, 1]
    assert table["drop_packet"].to_list() == [3, 4, None]
    assert table["t_detect_ns"].to_list() == [2 * MS] * 3


def test_an_old_mark_does_not_count():
    table = again(
        mark(2, 100, of.LOST_RACK),
        sent(2, 100, of.BY_ACK),
        sent(6, 100, of.BY_TLP, ca_state=of.OPEN),
    )
    assert table["t_detect_ns"].to_list() == [2 * MS, None]


def test_undone_until_the_next_reduction():
    table = again(
        state(2, of.OPEN, of.RECOVERY),
        sent(2, 100, of.BY_ACK),
        ("tcp_undo", 3 * MS, {"reason": of.UNDO_FULL}),
        state(3, of.RECOVERY, of.OPEN),
        state(8, of.OPEN, of.RECOVERY),
        sent(8, 900, of.BY_ACK),
    )
    assert table["undone"].to_list() == [True, False]


def test_flows_do_not_mix():
    other: dict[str, Any] = {"flow": 1, "sport": 6000, "host": "h2"}
    table = again(mark(2, 100, of.LOST_RACK, **other), sent(2, 100, of.BY_ACK))
    assert table["t_detect_ns"].to_list() == [None]


def test_synacks_are_rows_too():
    rows = synack_rows(tables(("tcp_retransmit_synack", 5, {})))
    assert rows["cause"].to_list() == ["synack"]


@pytest.mark.parametrize("reason", ["TCP_OLD_DATA", "TCP_OLD_SEQUENCE", "TCP_OFOMERGE"])
def test_a_copy_of_what_the_receiver_had_is_no_drop(reason):
    copy = {"reason_name": reason, "port": None, "host": None, "location_name": "tcp_data_queue"}
    table = dropped(tables(drop(1, 100), drop(2, 900, **copy)))
    assert table["seq"].to_list() == [100]


def test_a_queues_drop_has_its_own_reason_and_one_row():
    every = tables(
        (
            "qdisc_drop",
            MS,
            {"skbaddr": 77, "reason_name": "OVERLIMIT", "kind": "tbf", "port": "s1-eth1"},
        ),
        drop(1, 100, skbaddr=77, location_name="netem_dequeue", port=None),
        drop(
            2,
            900,
            skbaddr=77,
            reason_name="TCP_ZEROWINDOW",
            port=None,
            host=None,
            location_name="tcp_rcv_established",
        ),
        ("kfree_skb", 3 * MS, {"skbaddr": 5, "reason_name": "NOT_SPECIFIED"}),
    )
    table = dropped(every)
    assert table["qdisc"].to_list() == ["tbf", None]
    assert table["reason"].to_list() == ["OVERLIMIT", "TCP_ZEROWINDOW"]
    assert table["port"].to_list() == ["s1-eth1", None]
    assert table["host"].to_list() == ["h1", "h2"]
    assert table["where"].to_list() == ["netem_dequeue", "tcp_rcv_established"]


def link(port: str, drops: int) -> LinkRecord:
    before = LinkTotals(packets=0, bytes=0, lost={"queue": 0})
    after = before.model_copy(update={"lost": {"queue": drops}})
    return records.link(port, "s1", "h1", before=before, after=after)


@pytest.mark.parametrize(("counted", "note"), [(1, "equal"), (3, "differs: 1 events")])
def test_drops_are_held_against_the_queues_counter(counted, note):
    every = tables(
        ("qdisc_drop", MS, {"skbaddr": 7, "reason_name": "X", "kind": "tbf", "port": "s1-eth1"}),
        drop(1, 100, skbaddr=7),
        ("qdisc_drop", MS, {"skbaddr": 8, "reason_name": "X", "kind": "netem", "port": "wire1-0"}),
        drop(1, 200, skbaddr=8),
    )
    links = [link("s1-eth1", counted), link("s1-eth2", 2), link("s1-eth3", 0)]
    table = reason_table(dropped(every), links)
    assert table["note"].to_list() == [note, "", "differs: no events of its queue"]
    assert table["counter"].to_list() == [counted, None, 2]


def test_losses_of_a_link_are_held_against_its_counter():
    """Both directions of s1-h1, of which one has a policer. A link that fails counts nothing."""
    policer = {"policer": {"rate": "1mbit", "burst": "3KB"}, "from": "s1", "to": "h1"}
    _, plan = planned("linear-12", f"links.overrides={[policer]}", "links.loss=0.01")
    wire = plan.wires[frozenset(("s1", "h1"))]
    near, far = wire.facing("s1"), wire.facing("h1")
    netem = {"reason_name": "X", "kind": "netem"}
    every = tables(
        ("qdisc_drop", MS, {"skbaddr": 7, "port": far} | netem),
        drop(1, 100, skbaddr=7, port=far),
        drop(2, 200, skbaddr=8, reason=5, reason_name="TC_INGRESS", port=near),
        ("qdisc_drop", MS, {"skbaddr": 9, "port": near} | netem),
        drop(3, 300, skbaddr=9, port=near),
        drop(4, 400, skbaddr=10, reason=6, reason_name="QUEUE_PURGE", port=far),
    )
    before = LinkTotals(packets=0, bytes=0, lost={"queue": 0, "link": 0})
    ends = (("s1-eth1", "s1", "h1", 2), ("h1-eth0", "h1", "s1", 0), ("s1-eth2", "s1", "h2", 4))
    links = [
        records.link(*of, before=before, after=before.model_copy(update={"lost": {"link": lost}}))
        for *of, lost in ends
    ]
    table = reason_table(dropped(every), links, losing_ways(plan))
    told = {
        (row["place"], row["qdisc"] or row["reason"]): row["note"]
        for row in table.iter_rows(named=True)
    }
    # A policer's drops and netem's are of one counter.
    assert {told[near, "TC_INGRESS"], told[far, "netem"]} == {"equal", ""}
    assert told[near, "netem"] == "differs: 1 events"
    assert told["s1-eth2", None] == "differs: no events of its link"
    assert told[far, "QUEUE_PURGE"] == ""


def test_drops_at_a_dequeue_are_the_queues_too():
    # A codel below a shaper: two when packets left, with SKB_DROP_REASON_SUBSYS_QDISC's number and
    # no name, and one that found the queue full. A card's drop is not the queue's.
    congested = {"reason": 0x30003, "reason_name": None, "location_name": "__fq_codel_dequeue"}
    every = tables(
        ("qdisc_drop", MS, {"skbaddr": 7, "reason_name": "X", "kind": "tbf", "port": "s1-eth1"}),
        drop(1, 100, skbaddr=7),
        drop(2, 200, skbaddr=8, **congested),
        drop(3, 300, skbaddr=9, **congested),
        drop(4, 400, skbaddr=10, reason=5, reason_name="DEV_READY"),
    )
    table = reason_table(dropped(every), [link("s1-eth1", 3)])
    rows = table.select("reason", "events", "counter", "note").rows()
    assert ("CONGESTED", 2, 3, "equal") in rows
    assert [row[2:] for row in rows if row[0] != "CONGESTED"] == [(None, "")] * 2


def test_the_series_has_acknowledgements_and_timeouts():
    full = {"snd_cwnd": 10, "ssthresh": of.NO_THRESHOLD, "srtt_us": 300, "rto_us": 2000}
    every = tables(
        ("tcp_ack_done", 1 * MS, full | {"packets_out": 8, "sacked_out": 2, "lost_out": 1}),
        state(4, of.OPEN, of.LOSS, ssthresh=5),
        sent(4, 100, of.BY_RTO, ca_state=of.LOSS, snd_cwnd=1, packets_out=8, lost_out=8),
    )
    table = series_table(every)
    assert table.select("cwnd", "ssthresh", "srtt_us", "in_flight", "state").rows() == [
        (10, None, 300, 5, "open"),
        (1, 5, 300, 0, "loss"),
    ]


def test_the_chain_ends_with_new_data():
    every = tables(
        ("tcp_xmit_stop", 0, {"snd_nxt": 1100}),
        drop(1, 100),
        mark(2, 100, of.LOST_RACK),
        sent(2, 100, of.BY_ACK),
        ("tcp_xmit_stop", 3 * MS, {"snd_nxt": 2100}),
        drop(5, 1100),
    )
    drops = dropped(every)
    table = chain_table(drops, retransmission_table(every, drops), every)
    assert table.select("t_drop_ns", "t_again_ns", "waited_ns", "t_new_ns").rows() == [
        (1 * MS, 2 * MS, 1 * MS, 3 * MS),
        (5 * MS, None, None, None),
    ]


def counters(**after: int) -> Counters:
    host = HostCounters(before={}, after=after)
    return Counters(ports={}, hosts={"h1": host}, captures=[])


def test_sums_count_as_the_kernel_does():
    every = tables(
        mark(2, 100, of.LOST_RACK, segs=3),
        sent(2, 100, of.BY_ACK, segs=3),
        mark(3, 100, of.LOST_RACK, segs=2, sacked=of.SACKED_RETRANS | of.MARKED_LOST),
        sent(3, 100, of.BY_REO_TIMER, segs=1),
        ("tcp_timeout", 5 * MS, {}),
        sent(5, 100, of.BY_RTO, ca_state=of.LOSS),
        sent(6, 1100, of.BY_ACK, ca_state=of.LOSS),
        sent(6, 2100, of.BY_ACK, ca_state=of.LOSS, err=-11, segs=1),
        sent(6, 2100, of.BY_ACK, ca_state=of.LOSS, err=-of.EBUSY, segs=0),
        ("tcp_loss_probe", 7 * MS, {"reason": of.PROBE_NEW_DATA}),
        ("tcp_loss_probe", 8 * MS, {"reason": of.PROBE_RECOVERED}),
        ("tcp_undo", 9 * MS, {"reason": of.UNDO_FRTO}),
        state(9, of.OPEN, of.RECOVERY),
        ("tcp_retransmit_synack", 9 * MS, {}),
    )
    expected = {
        "TcpRetransSegs": 8,
        "TcpExtTCPSynRetrans": 1,
        "TcpExtTCPTimeouts": 1,
        "TcpExtTCPLossProbes": 1,
        "TcpExtTCPLossProbeRecovery": 1,
        "TcpExtTCPSackRecovery": 1,
        "TcpExtTCPLostRetransmit": 2,
        "TcpExtTCPFastRetrans": 4,
        "TcpExtTCPSlowStartRetrans": 1,
        "TcpExtTCPRetransFail": 1,
        "TcpExtTCPSpuriousRtxHostQueues": 1,
        "TcpExtTCPLossUndo": 1,
        "TcpExtTCPSpuriousRTOs": 1,
    }
    table = overview.compare(every, counters(**expected))
    assert table.filter(pl.col("kernel") != pl.col("events")).rows() == []
    assert table.height == len(expected)


def test_the_series_of_a_flow_is_that_of_one_connection():
    windows = [
        ("tcp_ack_done", t_ms * MS, {"snd_cwnd": 10 * t_ms, "sport": sport})
        for t_ms, sport in ((1, 5000), (2, 40_000), (3, 5000))
    ]
    series = series_table(tables(*windows))
    assert series["cwnd"].to_list() == [10, 20, 30]
    assert of_flows(series, {0: 5000})["cwnd"].to_list() == [10, 30]
