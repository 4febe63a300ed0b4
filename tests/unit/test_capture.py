from types import SimpleNamespace

import pytest

from outcast.emulation.commands import SystemCommands, wait_until
from outcast.emulation.kernel.counters import parse_snmp
from outcast.emulation.traffic import capture
from outcast.errors import RunError
from outcast.records.counters import HostCounters, PortCounters
from outcast.records.run_directory import RunDirectory
from tests import records

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
    captures = capture.Captures(run, None)
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
