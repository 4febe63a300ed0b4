from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outcast import traffic
from outcast.commands import Process, SystemCommands
from outcast.experiment import Transport
from outcast.flows import Flow

FLOW = Flow(
    flow=0,
    group=0,
    src="h2",
    src_ip="10.0.0.2",
    sport=20001,
    dst="h1",
    dst_ip="10.0.0.1",
    dport=5001,
    path=("h2", "s1", "h1"),
    return_path=("h1", "s1", "h2"),
    hops=2,
    start_ns=100_000_000,
    duration_ns=2_500_000_000,
    size_bytes=None,
)

CLIENT = """[  1] local 10.0.0.2%h2-eth0 port 20001 connected with 10.0.0.1 port 5001
[ ID] Interval            Transfer    Bandwidth       Write/Err  Rtry     Cwnd/RTT(var)
[  1] 0.0000-3.1502 sec  7077968 Bytes  17974690 bits/sec  54/0        192        2K/1072(375) us
"""


def test_a_client_waits_for_its_start() -> None:
    argv = traffic.client_arguments(FLOW, 1_700_000_000_950_000_000)
    assert argv[argv.index("--txstart-time") + 1] == "1700000001.050000"
    assert argv[argv.index("-B") + 1] == "10.0.0.2:20001"
    assert argv[argv.index("-t") + 1] == "2.5"
    sized = replace(FLOW, duration_ns=None, size_bytes=70_000)
    assert traffic.client_arguments(sized, 0)[-2:] == ["-n", "70000"]


def test_iperfs_report() -> None:
    assert traffic.client_bytes(CLIENT) == 7_077_968
    assert traffic.client_bytes("tcp connect failed: Connection refused\n") is None


def wants(**settings: object) -> Flow:
    return replace(FLOW, transport=Transport.model_validate(settings))


def test_a_receiver_for_each_congestion_control(tmp_path: Path) -> None:
    other = replace(wants(congestion_control="bic"), flow=1, sport=20002, dport=5002)
    started: list[list[str]] = []

    class Listening(SystemCommands):
        def spawn(self, name: str, argv: Sequence[str], **_options: Any) -> Process:
            started.append(list(argv))
            return super().spawn(
                name, ["sleep", "9"], stdout=tmp_path / "out", stderr=tmp_path / "err"
            )

        def run(self, argv: Sequence[str], **_options: Any) -> str:
            return "LISTEN\n"

    commands = Listening()
    try:
        traffic.start_servers([FLOW, other], lambda host: 0, tmp_path, commands)
    finally:
        commands.end_all()
    assert [argv[argv.index("-Z") + 1] for argv in started] == ["cubic", "bic"]
    assert [argv[argv.index("-p") + 1] for argv in started] == ["5001", "5002"]
    argv = traffic.client_arguments(other, 0)
    assert argv[argv.index("-Z") + 1] == "bic"
