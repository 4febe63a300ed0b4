"""Hosts of one guest share a kernel: none takes away the memory that another one's TCP needs."""

import outcast

SETTINGS = {
    "engine": "virtual",
    "topology.rivals": 2,
    "links": {"rate": "10gbit", "delay": "0us", "mtu": 9000},
    "links.overrides": [{"between": ["s1", "s2"], "delay": "10ms"}],
    "queue": {"kind": "tbf", "limit": "25MB"},
    "transport.receive_buffer": "256MB",
    "transport.send_buffer": "256MB",
    "noise": {"profile": "exact"},
    "flows": [{"from": "3-hop", "hosts": 2}],
    "duration": "700ms",
    "analysis": {"bin": "100ms", "windows": []},
}


def test_great_buffers_leave_the_other_hosts_their_windows(tmp_path):
    run = outcast.run(outcast.load("configs/linear-12.yaml", SETTINGS), tmp_path / "run")
    hosts = run.directory.read_counters().hosts
    assert {host.within("TcpExtTCPMemoryPressures") for host in hosts.values()} == {0}
    windows = run.table("sockets").filter(run.table("sockets")["t"] > 5e8)["snd_wnd"]
    assert windows.min() > 8 << 20
