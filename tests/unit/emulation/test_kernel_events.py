"""How events of the guest's kernel get into the run directory, with a tracefs of plain files."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from outcast.emulation.commands import SystemCommands, wait_until
from outcast.emulation.kernel.counters import parse_snmp
from outcast.emulation.kernel.kernel_events import (
    PAGE_KIB,
    Recorder,
    bytes_used,
    statistics,
    value_shown,
)
from outcast.emulation.traffic import capture
from outcast.errors import ConfigError, FeatureMissingError, RunError
from outcast.records.counters import HostCounters, PortCounters
from outcast.records.run_directory import RunDirectory
from tests import records

PAGE_BYTES = PAGE_KIB * 1024
EVENT = "tcp:tcp_probe"
STATS = """entries: 0
overrun: 0
commit overrun: 0
bytes: 36
oldest event ts:    15.123456
now ts:    15.123999
dropped events: 0
read events: 7
"""


def page(data: bytes) -> bytes:
    """A page of the ring buffer that has such data."""
    head = struct.pack("<QQ", 15_123_456_789, len(data)).ljust(16)
    return head + data.ljust(PAGE_BYTES - 16, b"\0")


class Kernel:
    """A tracefs with one event, whose ring buffer is a named pipe."""

    def __init__(self, folder: Path) -> None:
        self.tracefs = folder / "tracing"
        self.symbols = folder / "kallsyms"
        self.symbols.write_text("60001000 T tcp_v4_rcv\n60002000 d tcp_prot\n60003000 t tcp_ack\n")
        for name, text in {
            "trace_clock": "[local] virtual",
            "tracing_on": "",
            "set_event": "",
            "options/overwrite": "1",
            "buffer_subbuf_size_kb": "4",
            "buffer_size_kb": "7",
            "available_events": f"{EVENT}\nskb:kfree_skb\n",
            "events/header_page": "the page's header",
            "events/tcp/tcp_probe/format": "the event's format",
            "events/tcp/tcp_probe/enable": "1\n",
            "per_cpu/cpu0/stats": STATS,
        }.items():
            path = self.tracefs / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        ring = self.tracefs / "per_cpu/cpu0/trace_pipe_raw"
        os.mkfifo(ring)
        self.ring = os.open(ring, os.O_RDWR)

    def text(self, name: str) -> str:
        return (self.tracefs / name).read_text()


@pytest.fixture
def kernel(tmp_path) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path)
    yield kernel
    os.close(kernel.ring)


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run")


def record(kernel: Kernel, directory: RunDirectory, *events: str, pages: int = 0) -> None:
    written = 0

    def sleep_until(instant_ns: int) -> None:
        nonlocal written
        if written < pages:
            written += 1
            os.write(kernel.ring, page(b"event %d" % written))

    with Recorder(events, directory, kernel.tracefs, kernel.symbols, sleep_until) as recorder:
        recorder.record(1)
        while written < pages:
            pass


def test_pages_are_stored_whole_and_in_order(kernel, directory):
    record(kernel, directory, EVENT, pages=3)
    stored = directory.trace_events.read_bytes()
    assert stored == b"".join(page(b"event %d" % n) for n in (1, 2, 3))
    formats = directory.read_trace_formats()
    assert formats.page_bytes == PAGE_BYTES
    assert formats.events == {EVENT: "the event's format"}
    assert formats.statistics.read_events == 7
    assert directory.trace_symbols.read_text() == "60001000 T tcp_v4_rcv\n60003000 t tcp_ack\n"


def test_the_preparation_is_the_same_without_events(kernel, directory):
    record(kernel, directory)
    assert not directory.trace.exists()
    assert kernel.text("set_event") == ""
    assert kernel.text("trace_clock").startswith("virtual")
    assert kernel.text("options/overwrite") == "0"
    assert kernel.text("buffer_subbuf_size_kb") == str(PAGE_KIB)


def test_an_unknown_event_is_refused_with_the_one_that_was_meant(kernel, directory):
    with pytest.raises(ConfigError, match=r"no event tcp:tcp_prob; did you mean 'tcp:tcp_probe'"):
        record(kernel, directory, "tcp:tcp_prob")
    assert not directory.trace.exists()


@pytest.mark.parametrize(
    "file",
    ["tracing_on", "options/overwrite", "trace_clock", "buffer_subbuf_size_kb", "buffer_size_kb"],
)
def test_a_setting_that_the_kernel_did_not_take_stops_the_run(kernel, directory, file):
    """What is written into /dev/null is not there when it is read back."""
    (kernel.tracefs / file).unlink()
    (kernel.tracefs / file).symlink_to("/dev/null")
    with pytest.raises(RunError, match=rf"tracefs: {file}: requested \w+, the kernel shows "):
        record(kernel, directory)


def test_an_event_that_stays_off_stops_the_run(kernel, directory):
    (kernel.tracefs / "events/tcp/tcp_probe/enable").write_text("0\n")
    with pytest.raises(RunError, match="tcp_probe/enable: requested 1, the kernel shows 0"):
        record(kernel, directory, EVENT)


@pytest.mark.parametrize(
    ("text", "value"), [("local [virtual] mono\n", "virtual"), ("32823\n", "32823"), ("", "")]
)
def test_what_a_file_of_tracefs_shows(text, value):
    assert value_shown(text) == value


def test_a_kernel_without_tracers_runs_without_events_alone(tmp_path, directory):
    with Recorder((), directory, tmp_path / "missing") as recorder:
        recorder.record(1)
    with (
        pytest.raises(FeatureMissingError, match="scripts/guest/build"),
        Recorder((EVENT,), directory, tmp_path / "missing"),
    ):
        pytest.fail("it recorded")


def test_how_much_of_a_page_is_used_and_of_events_counted():
    assert bytes_used(page(b"12345678")) == 24
    lost = struct.pack("<QQ", 1, 8 | 1 << 31)
    assert bytes_used(lost + b"12345678".ljust(100, b"\0")) == 24
    assert bytes_used(struct.pack("<QQ", 1, 1 << 20) + bytes(100)) == 116
    assert statistics(STATS).read_events == 7


# --- capture


CLOSING = """tcpdump: listening on s1-eth1, link-type EN10MB (Ethernet), snapshot length 128 bytes
24511 packets captured
39809 packets received by filter
1 packet dropped by kernel
"""


def test_closing_counters():
    assert capture.parse_closing_counters(CLOSING, "tcpdump") == (24511, 39809, 1)
    with pytest.raises(RunError, match="received by filter"):
        capture.parse_closing_counters(CLOSING.replace("received by filter", "?"), "tcpdump")


def test_a_file_that_is_too_short_for_its_packets_is_a_full_disk(tmp_path):
    file = tmp_path / "s1-eth1.in.pcap"
    # If the disk is full, tcpdump ends well and says how many packets it captured.
    script = "trap 'echo \"$0\" >&2; exit 0' INT; echo ready >&2; while :; do sleep 0.05; done"
    for room, fits in ((24 + 24511 * 16 - 1, False), (24 + 24511 * 16, True)):
        process = SystemCommands().spawn(
            "tcpdump on s1-eth1 (in)",
            # A shell cannot trap a signal that is ignored, as it is where the tests run by nohup.
            ["env", "--default-signal=INT", "sh", "-c", script, CLOSING],
            stdout=file,
            stderr=tmp_path / "err",
        )
        wait_until(lambda ready=process: "ready" in ready.errors(), "the trap", 10.0)
        file.write_bytes(bytes(room))
        one = capture.Capture("s1-eth1", "in", file, process)
        if fits:
            assert capture.stop([one], tmp_path)[0].captured == 24511
        else:
            with pytest.raises(RunError, match=f"has {room} bytes, too few for the 24511 packets"):
                capture.stop([one], tmp_path)


def test_captures_are_read_where_their_block_ends_well(tmp_path, monkeypatch):
    record = records.capture("captures/s1-eth1.out.pcap")
    calls: list[str] = []
    monkeypatch.setattr(capture.Captures, "prepare", lambda part: calls.append("start"))
    monkeypatch.setattr(capture, "stop", lambda *given: calls.append("stop") or [record])
    run = SimpleNamespace(directory=RunDirectory(tmp_path))
    captures = capture.Captures(run)
    with captures:
        assert captures.records == []
    assert captures.records == [record]
    assert calls == ["start", "stop"]
    with pytest.raises(RunError, match="lost"), captures:
        raise RunError("lost")
    # An orderly end would hold up the error, and its own failure would hide it.
    assert calls == ["start", "stop", "start"]


SNMP = """Tcp: ActiveOpens RetransSegs
Tcp: 3 17
TcpExt: TCPTimeouts TCPLostRetransmit
TcpExt: 5 -1
"""


def test_names_are_nstats():
    assert parse_snmp(SNMP) == {
        "TcpActiveOpens": 3,
        "TcpRetransSegs": 17,
        "TcpExtTCPTimeouts": 5,
        "TcpExtTCPLostRetransmit": -1,
    }


def test_growth():
    host = HostCounters(before={"TcpRetransSegs": 2}, after={"TcpRetransSegs": 9})
    assert host.delta("TcpRetransSegs") == 7
    assert host.delta("TcpExtTCPTimeouts") == 0
    assert PortCounters(before={"drops": 1}, after={"drops": 4}).delta("drops") == 3
