from __future__ import annotations

from outcast.emulation.counters import parse_snmp
from outcast.records.run_directory import HostCounters, PortCounters

SNMP = """Tcp: ActiveOpens RetransSegs
Tcp: 3 17
TcpExt: TCPTimeouts TCPLostRetransmit
TcpExt: 5 -1
"""


def test_names_are_nstats() -> None:
    assert parse_snmp(SNMP) == {
        "TcpActiveOpens": 3,
        "TcpRetransSegs": 17,
        "TcpExtTCPTimeouts": 5,
        "TcpExtTCPLostRetransmit": -1,
    }


def test_growth() -> None:
    host = HostCounters(before={"TcpRetransSegs": 2}, after={"TcpRetransSegs": 9})
    assert host.delta("TcpRetransSegs") == 7
    assert host.delta("TcpExtTCPTimeouts") == 0
    assert PortCounters(before={"drops": 1}, after={"drops": 4}).delta("drops") == 3
