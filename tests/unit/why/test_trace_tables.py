"""Tables of events: every event gets its time, host, port, flow and the packet that it is about."""

import struct
from ipaddress import IPv4Address

import polars as pl
import pytest

from outcast.errors import InputError, UntrustedError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory, write_record
from outcast.records.trace import Formats
from outcast.uses.why import event_tables as tables
from tests.golden import trace_pages
from tests.golden.run_directory import analysed_run
from tests.golden.trace_pages import Record, content, format_text, text_at

DEQUEUE = format_text(
    "qdisc_dequeue",
    310,
    [
        ("void * skbaddr", 8, 8, 0),
        ("__data_loc char[] dev", 16, 4, 0),
        ("__be32 saddr", 20, 4, 0),
        ("__be32 daddr", 24, 4, 0),
        ("__u32 seq", 28, 4, 0),
        ("__u16 sport", 32, 2, 0),
        ("__u16 dport", 34, 2, 0),
        ("__u16 ip_id", 36, 2, 0),
        ("__u16 payload", 38, 2, 0),
        ("unsigned int reason", 40, 4, 0),
        ("int packet", 44, 4, 1),
        ("void * location", 48, 8, 0),
    ],
    '"%s", __print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, { 0x10002, "FULL" })',
)
STATE = format_text(
    "tcp_cong_state_set",
    311,
    [
        ("__u16 sport", 8, 2, 0),
        ("__u16 dport", 10, 2, 0),
        ("__u8 saddr[sizeof(struct sockaddr_in6)]", 12, 28, 0),
        ("__u8 daddr[4]", 40, 4, 0),
        ("__u8 cong_state", 44, 1, 0),
        ("char comm[8]", 45, 8, 0),
    ],
)
EVENTS = {"qdisc:qdisc_dequeue": DEQUEUE, "tcp:tcp_cong_state_set": STATE}
OFFSET_NS = 12_345


@pytest.fixture(scope="module")
def analysed(tmp_path_factory) -> RunDirectory:
    return analysed_run(tmp_path_factory.mktemp("trace") / "run", 20_000_000, 3, 400)


def ip(text: str) -> bytes:
    return IPv4Address(text).packed


def dequeue(
    device: str, row: dict[str, object], reason: int = 2, ip_id: int | None = None
) -> bytes:
    place, name = text_at(56, device.encode())
    fixed = struct.pack(
        "<QI4s4sIHHHHIiQ",
        0xFFFF_8880_0000_1000,
        place,
        ip(str(row["src"])),
        ip(str(row["dst"])),
        row["seq"],
        row["sport"],
        row["dport"],
        row["ip_id"] if ip_id is None else ip_id,
        row["payload"],
        reason,
        -5,
        0x6000_0010,
    )
    return content(310, fixed + name)


def state(sport: int, dport: int, local: str, remote: str, value: int) -> bytes:
    address = struct.pack("<HH", 2, sport) + ip(local) + bytes(20)
    text = b"ip\x1brf\0xx"
    return content(311, struct.pack("<HH28s4sB8s", sport, dport, address, ip(remote), value, text))


def record(directory: RunDirectory, events: list[Record], formats: Formats | None = None) -> None:
    directory.trace.mkdir(exist_ok=True)
    directory.trace_events.write_bytes(trace_pages.pages(events))
    chosen = formats or trace_pages.formats(EVENTS, count=len(events))
    write_record(directory.trace_formats, chosen.model_copy(update={"to_captures_ns": OFFSET_NS}))


def test_every_event_is_joined_to_its_packet(analysed):
    packets = pl.read_parquet(analysed.path / "packets.parquet").with_row_index("row")
    t_start_ns = analysed.read_manifest().traffic.t_start_ns
    left = packets.filter(pl.col("t_out").is_not_null()).sort("t_out")
    rows = left.to_dicts()
    events = [Record(row["t_out"] - OFFSET_NS, dequeue("s1-eth1", row)) for row in rows]
    record(analysed, events)
    traced = tables.write_events(analysed)
    assert traced.events == {"qdisc:qdisc_dequeue": len(rows), "tcp:tcp_cong_state_set": 0}
    table = Run(analysed).table("trace/qdisc_dequeue")
    assert table["packet"].to_list() == left["row"].to_list()
    assert table["flow"].to_list() == left["flow"].to_list()
    assert table["t_ns"].to_list() == (left["t_out"] - t_start_ns).to_list()
    assert table["order"].to_list() == list(range(len(rows)))
    assert set(table["host"]) == {"s1"}
    assert set(table["port"]) == set(table["dev"]) == {"s1-eth1"}
    assert table["saddr"].to_list() == left["src"].cast(pl.String).to_list()
    assert set(table["reason_name"]) == {"NOT_SPECIFIED"}
    assert set(table["packet_"]) == {-5}
    assert set(table["location_name"]) == {None}
    assert table.columns[:6] == ["t_ns", "order", "host", "port", "flow", "packet"]
    assert (
        pl.read_parquet_metadata(analysed.trace / "qdisc_dequeue.parquet")["outcast.trace"] == "1"
    )
    assert Run(analysed).table("trace/tcp_cong_state_set").is_empty()
    assert not analysed.trace_events.exists()
    assert analysed.read_traced() == traced
    assert "trace/qdisc_dequeue" in Run(analysed).tables


def test_what_is_not_known_is_null(analysed):
    row = pl.read_parquet(analysed.path / "packets.parquet").row(5, named=True)
    when = row["t_in"] - OFFSET_NS
    flow = analysed.read_manifest().flows[row["flow"]]
    nobody = {**row, "src": "192.0.2.1"}
    back = {
        **row,
        "src": row["dst"],
        "sport": row["dport"],
        "dst": row["src"],
        "dport": row["sport"],
    }
    record(
        analysed,
        [
            Record(when, dequeue("elsewhere", nobody, reason=9)),
            Record(when, dequeue("", {**nobody, "src": "0.0.0.0"})),
            Record(when, dequeue(f"{flow.src}-eth0", row, ip_id=row["ip_id"] ^ 1)),
            Record(when, dequeue("h1-eth0", back)),
            Record(when, state(flow.sport, flow.dport, flow.src_ip, flow.dst_ip, 3)),
            Record(when, state(9, 9, "192.0.2.1", flow.dst_ip, 4)),
        ],
    )
    tables.write_events(analysed)
    table = Run(analysed).table("trace/qdisc_dequeue")
    assert table["host"].to_list() == [None, None, flow.src, "h1"]
    assert table["port"].to_list() == ["elsewhere", None, f"{flow.src}-eth0", "h1-eth0"]
    assert table["flow"].to_list() == [None, None, flow.flow, flow.flow]
    assert table["packet"].to_list() == [None] * 4
    assert table["saddr"].to_list() == ["192.0.2.1", None, flow.src_ip, flow.dst_ip]
    assert table["reason_name"].to_list() == [None, *["NOT_SPECIFIED"] * 3]
    states = Run(analysed).table("trace/tcp_cong_state_set")
    assert states["host"].to_list() == [flow.src, None]
    assert states["port"].to_list() == [None, None]
    assert states["flow"].to_list() == [flow.flow, None]
    assert states["cong_state"].to_list() == [3, 4]
    # What a terminal would take for a command is replaced.
    assert set(states["comm"]) == {"ip\N{REPLACEMENT CHARACTER}rf"}


def test_of_two_packets_that_agree_the_nearest_is_meant(analysed):
    path = analysed.path / "packets.parquet"
    whole = path.read_bytes()
    packets = pl.read_parquet(path)
    row = packets.row(7, named=True)
    again = packets[7].with_columns(pl.col("t_in", "t_out") + 1_000_000)
    pl.concat([packets, again]).write_parquet(path)
    stayed = row["t_out"] - row["t_in"]
    times = (-5, stayed, 499_999, 1_000_000, 1_000_000 + stayed, 2_000_000)
    events = [Record(row["t_in"] - OFFSET_NS + t, dequeue("s1-eth1", row)) for t in times]
    record(analysed, events)
    try:
        tables.write_events(analysed)
    finally:
        path.write_bytes(whole)
    last = packets.height
    assert Run(analysed).table("trace/qdisc_dequeue")["packet"].to_list() == [7] * 3 + [last] * 3


def test_a_long_table_is_written_in_parts(analysed, monkeypatch):
    row = pl.read_parquet(analysed.path / "packets.parquet").row(5, named=True)
    record(analysed, [Record(n, dequeue("s1-eth1", row)) for n in range(3000)])
    analysed.trace_symbols.write_text("60000020 t later\n60000008 T kfree\n60000000 T first\n")
    monkeypatch.setattr("outcast.records.tables.PART_ROWS", 100)
    monkeypatch.setattr("outcast.uses.why.pages.BLOCK_BYTES", 4096)
    tables.write_events(analysed)
    table = Run(analysed).table("trace/qdisc_dequeue")
    assert table["order"].to_list() == list(range(3000))
    assert set(table["location_name"]) == {"kfree"}
    assert sorted(path.name for path in analysed.trace.iterdir()) == [
        *("formats.json", "qdisc_dequeue.parquet", "tcp_cong_state_set.parquet", "traced.json")
    ]


def test_a_run_that_recorded_nothing_has_no_tables(analysed):
    analysed.traced.unlink(missing_ok=True)
    assert tables.write_events(analysed) is None
    record(analysed, [], trace_pages.formats({}))
    assert tables.write_events(analysed) is None
    assert analysed.read_traced() is None


def test_lost_events_are_never_silent(analysed):
    row = pl.read_parquet(analysed.path / "packets.parquet").row(5, named=True)
    for path in analysed.trace.glob("*"):
        path.unlink()
    record(analysed, [Record(1, dequeue("s1-eth1", row))], trace_pages.formats(EVENTS, lost=7))
    with pytest.raises(UntrustedError, match="so 7 events were lost; 1 were recorded"):
        tables.write_events(analysed)
    record(analysed, [])
    for missed, said in ((-1, "so events were"), (41, "so 41 events were")):
        analysed.trace_events.write_bytes(trace_pages.page_of(1, b"", missed=missed))
        with pytest.raises(UntrustedError, match=f"{said} lost; 0 were recorded"):
            tables.write_events(analysed)
    whole = [Record(n, dequeue("s1-eth1", row)) for n in range(100)]
    record(analysed, whole)
    stored = analysed.trace_events.read_bytes()
    assert len(stored) == 2 * trace_pages.PAGE_BYTES
    # As a page that did not reach the disk: a hole.
    hole = bytes(trace_pages.PAGE_BYTES)
    analysed.trace_events.write_bytes(hole + stored[trace_pages.PAGE_BYTES :])
    with pytest.raises(UntrustedError, match="the kernel handed out 100, so it was not written"):
        tables.write_events(analysed)
    assert not list(analysed.trace.glob("*.parquet"))
    assert analysed.read_traced() is None


def test_each_direction_of_a_program_is_a_flow_of_its_own():
    there, back = ("10.0.0.8", 47000, "10.0.0.9", 80), ("10.0.0.9", 80, "10.0.0.8", 47000)
    alone = ("10.0.0.2", 20001, "10.0.0.1", 5001)
    flow_of = tables.flows_by_ends([(there, 6), (back, 7), (alone, 0), (there, 8)])
    assert (flow_of[there], flow_of[back], flow_of[alone]) == (6, 7, 0)
    assert flow_of[alone[2:] + alone[:2]] == 0


def test_tables_that_would_share_a_file_are_refused(analysed):
    record(analysed, [], trace_pages.formats({"a:x": DEQUEUE, "b:x": STATE}))
    with pytest.raises(InputError, match=r"a:x and b:x: both would be x\.parquet"):
        tables.write_events(analysed)
