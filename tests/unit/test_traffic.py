from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outcast import traffic
from outcast.commands import Process, SystemCommands
from outcast.errors import CommandError, ReadBackError
from tests.flows import FLOW, wants

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


def test_a_flow_of_no_whole_hundredths_of_a_second_is_sent_by_our_own(tmp_path: Path) -> None:
    odd = replace(FLOW, flow=1, sport=20002, duration_ns=125_000_000)
    started: list[list[str]] = []

    class Connected(SystemCommands):
        def spawn(self, name: str, argv: Sequence[str], **_options: Any) -> Process:
            started.append(list(argv))
            return super().spawn(
                name, ["sleep", "9"], stdout=tmp_path / "out", stderr=tmp_path / "err"
            )

        def run(self, argv: Sequence[str], **_options: Any) -> str:
            return "".join(
                f"ESTAB 0 0 10.0.0.1:5001 10.0.0.2:{port} cubic rto:200\n"
                for port in (FLOW.sport, odd.sport)
            )

    commands = Connected()
    program = Path("/stream")
    try:
        traffic.start_servers([FLOW, odd], lambda host: 0, tmp_path, commands, program)
        traffic.start_clients([FLOW, odd], lambda host: 0, tmp_path, commands, program)
        began_ns = time.time_ns()
        far = traffic.start_clients(
            [FLOW], lambda host: 0, tmp_path, commands, round_trip_ns=2_000_000_000
        )
    finally:
        commands.end_all()
    assert [argv[0] for argv in started[:3]] == ["iperf", "iperf", "/stream"]
    assert started[2][started[2].index("--duration") + 1] == "125000000"
    assert far.t_start_ns > began_ns + 10_000_000_000  # far senders have the time to connect


def test_a_long_duration_is_not_rounded() -> None:
    long = replace(FLOW, duration_ns=12_345_670_000_000)
    assert traffic.client_arguments(long, 0)[-1] == "12345.67"


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (", smallest payload 200 to 200", None),
        (", smallest payload 200 to 1448", "requested 200 to 200, the kernel shows 200 to 1448"),
        ("", "requested of random sizes"),
    ],
)
def test_a_senders_payloads_are_those_requested(
    said: str, wrong: str | None, tmp_path: Path
) -> None:
    flow = wants(tcprand={"min_payload": 200})
    commands = SystemCommands()
    client = commands.spawn(
        "the client",
        ["echo", f"50000 bytes in 60 writes{said}"],
        stdout=tmp_path / "out",
        stderr=tmp_path / "err",
    )
    client.wait(5)
    if wrong is None:
        traffic.check_client(flow, client)
    else:
        with pytest.raises(ReadBackError, match=wrong):
            traffic.check_client(flow, client)
    with pytest.raises(CommandError):
        traffic.check_client(FLOW, client)  # iperf says it in other words


def test_a_client_sent_as_many_bytes_as_were_asked_for(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text(CLIENT)
    client = SystemCommands().spawn(
        "the client", ["cat", str(report)], stdout=tmp_path / "out", stderr=tmp_path / "err"
    )
    client.wait(5)
    traffic.check_client(replace(FLOW, duration_ns=None, size_bytes=7_077_968), client)
    with pytest.raises(ReadBackError, match="bytes: requested 7000000"):
        traffic.check_client(replace(FLOW, duration_ns=None, size_bytes=7_000_000), client)


@pytest.mark.parametrize("server_dies", [True, False])
def test_a_client_that_fails_ends_the_traffic_and_names_the_cause(
    server_dies: bool, tmp_path: Path
) -> None:
    commands = SystemCommands()

    def spawn(name: str, script: str) -> Process:
        return commands.spawn(
            name, ["sh", "-c", script], stdout=tmp_path / "out", stderr=tmp_path / f"{name}.err"
        )

    server = spawn("server", "exit 9" if server_dies else "sleep 60")
    clients = {0: spawn("first", "echo reset >&2; exit 1"), 1: spawn("second", "sleep 60")}
    clients[0].wait(5)
    if server_dies:
        server.wait(5)
    began = time.monotonic()
    try:
        with pytest.raises(CommandError) as raised:
            traffic.await_end(
                [FLOW],
                traffic.Clients(clients, time.time_ns(), {}),
                60 * 10**9,
                server.require_alive,
                lambda t_s: None,
                [],
            )
    finally:
        commands.end_all()
    assert time.monotonic() - began < 5
    cause = "server: exit status 9" if server_dies else "first: exit status 1: reset"
    assert str(raised.value).startswith(cause)
