"""`outcast why` in tables: what is shown of a run's events, and of what is no traced run."""

import polars as pl
import pytest

from outcast import __version__
from outcast.records.counters import Counters, HostCounters, LinkTotals
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory, write_record
from outcast.records.tables import write_table
from outcast.records.trace import Traced, table_name
from outcast.uses.why import overview
from outcast.uses.why import recorded_events as of
from outcast.uses.why.drops import Dropped, Words
from outcast.uses.why.senders import read_traced
from tests import records
from tests.golden.run_directory import analysed_run, with_records
from tests.plans import planned
from tests.unit.why.tcp_events import Event, tables

MS = 1_000_000
DURATION_NS = 20 * MS
FIRST = {"seq": 100, "end_seq": 1100, "segs": 1}
SECOND = {"seq": 2100, "end_seq": 3100, "segs": 1}


def dropped(t_ms: float, seq: int) -> tuple[Event, ...]:
    """What a queue and the function that frees its packets say of one packet."""
    packet = {"seq": seq, "payload": 1000, "saddr": "10.0.0.2", "daddr": "10.0.0.1"}
    at = {"host": "s1", "port": "s1-eth1", "skbaddr": seq}
    return (
        ("qdisc_drop", round(t_ms * MS), at | {"reason_name": "OVERLIMIT", "kind": "tbf"}),
        (
            "kfree_skb",
            round(t_ms * MS),
            at | packet | {"reason_name": "QDISC_DROP", "location_name": "free_list"},
        ),
    )


def timed_out(t_ms: float) -> tuple[Event, ...]:
    """The retransmission timer goes off, and the first segment is sent again."""
    t_ns = round(t_ms * MS)
    return (
        ("tcp_timer", t_ns, {"action": of.FIRED, "kind": of.TIME_RETRANS, "snd_una": 100}),
        ("tcp_timeout", t_ns, {}),
        ("tcp_mark_lost", t_ns, FIRST | {"cause": of.LOST_RTO}),
        ("tcp_cong_state_set", t_ns, {"old_state": of.OPEN, "cong_state": of.LOSS}),
        ("tcp_retransmit_skb", t_ns, FIRST | {"cause": of.BY_RTO, "ca_state": of.LOSS}),
    )


EVENTS: tuple[Event, ...] = (
    ("tcp_xmit_stop", 1 * MS, {"snd_nxt": 3100}),
    *dropped(2, 2100),
    ("tcp_mark_lost", 3 * MS, SECOND | {"cause": of.LOST_RACK}),
    ("tcp_cong_state_set", 3 * MS, {"old_state": of.OPEN, "cong_state": of.RECOVERY}),
    ("tcp_retransmit_skb", 3 * MS, SECOND | {"cause": of.BY_ACK, "ca_state": of.RECOVERY}),
    ("tcp_ack_done", 4 * MS, {"snd_nxt": 3100}),
    ("tcp_cong_state_set", 4 * MS, {"old_state": of.RECOVERY, "cong_state": of.OPEN}),
    *dropped(5, 100),
    *timed_out(9),
    ("tcp_ack_done", 10 * MS, {"snd_nxt": 3100}),
    ("tcp_cong_state_set", 10 * MS, {"old_state": of.LOSS, "cong_state": of.OPEN}),
    *dropped(16, 100),
    # Senders repair the last losses after the run's duration.
    *timed_out(26),
    *dropped(27, 9100),
)
"""A loss that RACK repairs, a timeout, one that begins in the run and ends after it, and a loss
that nobody repairs."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A run of the reference switch with EVENTS of flow 0."""
    return traced(analysed_run(tmp_path_factory.mktemp("why") / "run", DURATION_NS, 9, 400))


def traced(directory: RunDirectory, events: tuple[Event, ...] = EVENTS) -> Run:
    flow = directory.read_manifest().flows[0]
    every = tables(*events, host=flow.src, sport=flow.sport)
    directory.trace.mkdir()
    for event in of.EVENTS:
        write_table(every[table_name(event)], directory.trace / f"{table_name(event)}.parquet")
    rows = {event: every[table_name(event)].height for event in of.EVENTS}
    write_record(directory.traced, Traced(outcast=__version__, events=rows))
    directory.write_counters(counters(directory, flow.src))
    return Run(directory)


def counters(directory: RunDirectory, host: str) -> Counters:
    """Those of EVENTS, but one drop more and one timeout less."""
    before = LinkTotals(packets=0, bytes=0, lost={"queue": 0})
    after = before.model_copy(update={"lost": {"queue": 5}})
    link = records.link("s1-eth1", "s1", "h1", before=before, after=after)
    counted = {"TcpRetransSegs": 3, "TcpExtTCPTimeouts": 1, "TcpExtTCPFastRetrans": 1}
    counted["TcpExtTCPSackRecovery"] = 1
    nothing = dict.fromkeys(counted, 0)
    return directory.read_counters().model_copy(
        update={"hosts": {host: HostCounters(before=nothing, after=counted)}, "links": [link]}
    )


def test_the_overview(run):
    assert "\n".join(overview.overview(run, "table")).split("\n\n") == [
        "From 0 to 0.02 s",
        # The second timeout goes off at 26 ms.
        "Segments sent again, by cause\n  cause  2-hop\n  rto        1\n  rack       1",
        "The kernel's counters, and what the events sum up to, in the whole run\n"
        "  counter                                      kernel  events\n"
        "  TcpRetransSegs                                    3       3  equal at every host\n"
        "  TcpExtTCPTimeouts                                 1       2  differ at 1 host\n"
        "  TcpExtTCPSackRecovery+TcpExtTCPRenoRecovery       1       1  equal at every host\n"
        "  TcpExtTCPFastRetrans                              1       1  equal at every host",
        # From 4 to 9 ms, and from 10 ms to the end at 20 ms.
        "Time that flows stood still until a timer went off, by what was lost\n"
        "  group  lost            timer  waits    ms  of the flows' time\n"
        "  2-hop  lost elsewhere  rto        2  15.0              75.0 %",
        "Packets dropped, by place and reason; the counters are of the whole run\n"
        "  place    queue  reason                                   dropped  whole run  counter\n"
        "  s1-eth1  tbf    the queue was full (limit 16,384 bytes)        3          4        5  "
        "differs: 4 events",
    ]


def test_the_chains_of_a_flow(run):
    lines = [" ".join(line.split()) for line in overview.chains(run, 0, "table")]
    assert lines[1:] == [
        "dropped sequence at detected by state again cause waited",
        "2.000000 2100 s1-eth1 3.000000 rack open > recovery 3.000000 rack 1.000000",
        "5.000000 100 s1-eth1 9.000000 rto open > loss 9.000000 rto 4.000000",
        "16.000000 100 s1-eth1 26.000000 rto open > loss 26.000000 rto 10.000000",
    ]
    assert len([*overview.chains(run, 0, "table")]) == 5
    *_, last = overview.chains(run, 0, "table", whole=True)
    assert last.split() == ["27.000000", "9100", "s1-eth1", *"------"]


def test_an_answer_to_a_ping_was_not_lost(run):
    told_of = Words.of(run).put("h1-eth0", None, "NO_SOCKET", "ping_rcv")
    assert told_of.why == "it arrived: ping's own socket has a copy (ping_rcv)"


@pytest.mark.parametrize(
    ("event", "compares"), [("qdisc_drop", False), ("kfree_skb", False), ("", True)]
)
def test_events_are_held_against_counters_if_all_are_there(run, event, compares):
    """Of some drops alone nothing can be said, and a link's are those of its own counter."""
    whole, plan = planned("linear-12", "links.loss=0.02")
    wire = plan.wires[frozenset(("h1", "s1"))].facing("h1")
    kinds = {"qdisc_drop", "kfree_skb"} - {event}
    lost = read_traced(run.directory).drops.with_columns(port=pl.lit(wire), qdisc=pl.lit("netem"))
    before = LinkTotals(packets=0, bytes=0, lost={"link": 0})
    after = before.model_copy(update={"lost": {"link": lost.height}})
    links = [records.link("s1-eth1", "s1", "h1", before=before, after=after)]
    counters = run.counters.model_copy(update={"links": links})
    changed = with_records(run, experiment=whole, plan=plan, counters=counters)
    _, row = overview._drops(changed, lost, pl.repeat(True, lost.height, eager=True), kinds)
    count = f"{lost.height:,}"
    wanted = [count, "equal"] if compares else ["", ""]
    assert row == ["link s1 to h1", "", "lost on the link", count, *wanted]


def test_a_drop_below_a_shaper_is_the_configured_queues(run):
    whole, plan = planned("linear-12", "queue={kind: fq_codel, limit: 20 packets}")
    words = Words.of(with_records(run, experiment=whole, plan=plan))
    full = words.put("s1-eth1", "tbf", "OVERLIMIT", "f")
    assert full == Dropped("s1-eth1", "fq_codel", "the queue was full (limit 16,384 bytes)")
    # When packets are taken out, the kernel names no queue.
    assert words.put("s2-eth1", None, "CONGESTED", "f").queue == "fq_codel"
    # The shaper's own drops, those of the delay, and a host's, of which nobody asked for a queue.
    told = [
        ("s1-eth1", "tbf", "GENERIC"),
        ("s1-eth1", "netem", "X"),
        ("h1-eth0", "tbf", "OVERLIMIT"),
    ]
    assert [words.put(*each, "f").queue for each in told] == ["tbf", "netem", "tbf"]
    assert words.put("s1-eth1", None, "DEV_READY", "f").queue == ""


def test_drops_of_a_policer_are_told_as_such(run):
    policer = {"policer": {"rate": "1mbit", "burst": "3KB"}, "from": "s1", "to": "h1"}
    whole, plan = planned("linear-12", f"links.overrides={[policer]}")
    wire = plan.wires[frozenset(("h1", "s1"))]
    words = Words.of(with_records(run, experiment=whole, plan=plan))
    policed = words.put(wire.facing("s1"), None, "TC_INGRESS", "f")
    assert policed == Dropped("link s1 to h1", "", "above the policer's rate")
    # A netem without losses is full: the link lost it, whatever its policer.
    lost = words.put(wire.facing("h1"), "netem", "OVERLIMIT", "f")
    assert lost == Dropped("link s1 to h1", "", "lost on the link")
