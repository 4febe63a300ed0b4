import contextlib
import os
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outcast import experiment, netlink
from outcast.emulation import c_programs
from outcast.emulation.commands import Process, SystemCommands, still_running, wait_until
from outcast.emulation.kernel.sockets import sample_sockets
from outcast.emulation.queues import qdiscs
from outcast.emulation.queues.reconfigure import rate_request
from outcast.emulation.traffic import iperf
from outcast.emulation.traffic.load import LoadMeter, Reading, parse
from outcast.errors import CommandError, ConfigError, ReadBackError, RunError
from outcast.experiment.links import FRAMINGS
from outcast.plan import ports
from outcast.plan.flows import Flow
from outcast.plan.make import make_plan
from tests.deadlines import HANG_S
from tests.flows import FLOW, RECEIVER, wants

CLIENT = """[  1] local 10.0.0.2%h2-eth0 port 20001 connected with 10.0.0.1 port 5001
[ ID] Interval            Transfer    Bandwidth       Write/Err  Rtry     Cwnd/RTT(var)
[  1] 0.0000-3.1502 sec  7077968 Bytes  17974690 bits/sec  54/0        192        2K/1072(375) us
"""


class Asleep(SystemCommands):
    """Starts a program that does nothing in place of each, and remembers what was asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.asked_for = folder, list[list[str]]()

    def spawn(self, name: str, argv: Sequence[str], hears: bool = False, **_: Any) -> Process:
        self.asked_for.append(list(argv))
        outputs = {"stdout": self.folder / "out", "stderr": self.folder / "err"}
        return super().spawn(name, ["sleep", "9"], hears=hears, **outputs)


@pytest.fixture
def commands() -> Iterator[SystemCommands]:
    made = SystemCommands()
    yield made
    made.end_all()


@pytest.fixture
def asleep(tmp_path, monkeypatch) -> Iterator[Asleep]:
    """Every receiver is at once ready."""
    monkeypatch.setattr(iperf, "listens", lambda netns, port, family: True)
    made = Asleep(tmp_path)
    yield made
    made.end_all()


def test_a_client_waits_for_its_start():
    argv = iperf.client_arguments(FLOW, 1_700_000_000_950_000_000)
    assert argv[argv.index("--txstart-time") + 1] == "1700000001.050000"
    assert argv[argv.index("-B") + 1] == "10.0.0.2:20001"
    assert argv[argv.index("-t") + 1] == "2.5"
    sized = replace(FLOW, duration_ns=None, size_bytes=70_000)
    assert iperf.client_arguments(sized, 0)[-2:] == ["-n", "70000"]


def test_iperfs_report():
    assert iperf.client_bytes(CLIENT) == 7_077_968
    assert iperf.client_bytes("tcp connect failed: Connection refused\n") is None


def test_a_receiver_for_each_congestion_control(tmp_path, asleep):
    other = replace(wants(congestion_control="bic"), flow=1, sport=20002, dport=5002)
    iperf.Flows([FLOW, other], lambda host: 0, tmp_path, asleep).__enter__()
    assert [argv[argv.index("-Z") + 1] for argv in asleep.asked_for] == ["cubic", "bic"]
    assert [argv[argv.index("-p") + 1] for argv in asleep.asked_for] == ["5001", "5002"]
    argv = iperf.client_arguments(other, 0)
    assert argv[argv.index("-Z") + 1] == "bic"


def test_a_flow_of_no_whole_hundredths_of_a_second_is_sent_by_our_own(
    tmp_path, monkeypatch, asleep
):
    odd = replace(FLOW, flow=1, sport=20002, duration_ns=125_000_000)
    received = [replace(RECEIVER, peer_port=port) for port in (FLOW.sport, odd.sport)]
    monkeypatch.setattr(iperf, "sample_sockets", lambda netns, families: received)
    both = iperf.Flows([FLOW, odd], lambda host: 0, tmp_path, asleep, Path("/stream"))
    both.__enter__()
    both.connect()
    began_ns = time.time_ns()
    far = iperf.Flows([FLOW], lambda host: 0, tmp_path, asleep)
    far.connect(round_trip_ns=2_000_000_000)
    # iperf's server would let the flow of our own sender, which is silent until its start, wait.
    assert [argv[:2] for argv in asleep.asked_for[:3]] == [
        ["/stream", "receive"],
        ["iperf", "-c"],
        ["/stream", "send"],
    ]
    assert asleep.asked_for[2][asleep.asked_for[2].index("--duration") + 1] == "125000000"
    # Far senders have the time to connect.
    assert far.set_start()[0] >= began_ns + 10_000_000_000


@pytest.mark.parametrize(("syn_rounds", "server"), [(1, "iperf"), (2, "/stream")])
def test_where_queues_drop_what_connects_the_receiver_is_ours(syn_rounds, server, tmp_path, asleep):
    iperf.Flows(
        *([FLOW], lambda host: 0, tmp_path, asleep, Path("/stream")), syn_rounds=syn_rounds
    ).__enter__()
    assert [argv[0] for argv in asleep.asked_for] == [server]


def over_loopback(count: int, duration_ns: int) -> list[Flow]:
    with contextlib.ExitStack() as stack:
        ports = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for _ in range(count + 1)
        ]
    own = {"src_ip": "127.0.0.1", "dst_ip": "127.0.0.1", "start_ns": 0, "dport": ports[0]}
    # Nobody may choose another congestion control where the machine allows reno alone.
    flow = wants(congestion_control="reno")
    return [
        replace(flow, flow=n, sport=sport, duration_ns=duration_ns, **own)
        for n, sport in enumerate(ports[1:])
    ]


def slow_iperf(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Makes `iperf -c` on PATH do something before it becomes iperf."""
    real = shutil.which("iperf")
    wrapper = folder / "bin/iperf"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then {body}; fi\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")


def own_namespace(host: str) -> Any:
    return None


def test_flows_start_together_however_long_one_took_to_connect(tmp_path, monkeypatch, commands):
    flows = over_loopback(3, 200_000_000)
    slow_iperf(tmp_path, monkeypatch, f'case "$*" in *:{flows[1].sport}\\ *) sleep 1.5;; esac')
    held = c_programs.provide(c_programs.HELD_START, tmp_path, commands)
    began_ns = time.time_ns()
    sending = iperf.Flows(
        *(flows, own_namespace, tmp_path, commands), held_start=held, start_afterwards=True
    )
    sending.__enter__()
    sending.connect()
    t_start_ns, start, warnings = sending.set_start()
    assert warnings == []
    at_start: list[int] = []

    def on_sample(t_s: float) -> None:
        at_start.extend(
            sample.bytes_acked
            for sample in sample_sockets(own_namespace(""))
            if sample.peer_port == flows[0].dport and sample.is_established
        )

    iperf.await_end(*(sending.running, t_start_ns, 200_000_000, lambda: None, on_sample, [-0.1]))
    sending.finish()
    sending.__exit__(None)
    assert t_start_ns > began_ns + 1_500_000_000
    assert start["connect_s"] > 1.5
    # iperf's own header is sent before the start, but the data is not.
    assert len(at_start) == 3
    assert max(at_start) < 1000
    for process in sending.clients.values():
        assert (iperf.client_bytes(process.output()) or 0) > 100_000


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exit 7", "had not connected when its client ended with status 7: it wrote no reason$"),
        ("echo ------ Client; sleep 9", "had not connected within 0.5 s$"),
        ("echo no route >&2; sleep 9", "had not connected within 0.5 s: no route$"),
        ("unset LD_PRELOAD", "had not waited for its start within 0.5 s"),
    ],
)
def test_a_flow_that_does_not_connect_or_wait_is_named(body, said, tmp_path, monkeypatch, commands):
    flows = over_loopback(1, 200_000_000)
    slow_iperf(tmp_path, monkeypatch, body)
    monkeypatch.setattr(iperf, "CONNECT_DEADLINE_S", 0.5)
    held = c_programs.provide(c_programs.HELD_START, tmp_path, commands)
    sending = iperf.Flows(
        *(flows, own_namespace, tmp_path, commands), held_start=held, start_afterwards=True
    )
    sending.__enter__()
    with pytest.raises(RunError, match=rf"flow 0 \(h2 to h1\) {said}"):
        sending.connect()


@pytest.mark.parametrize(
    ("flows", "round_trip_ns", "syn_rounds", "lead_s"),
    [
        (10, 0, 1, 0.7),
        (10, 10**9, 1, 5.2),
        # RFC 6298: a SYN is sent again after 1 s, and then after 2 s more.
        (10, 0, 2, 2.0),
        (10, 0, 3, 4.0),
        (10, 10**9, 3, 5.2),
        (1000, 0, 3, 20.5),
        # Linux gives up after six retries.
        (10, 0, 7, 64.0),
        (10, 0, 100, 64.0),
    ],
)
def test_the_time_to_connect_in(flows, round_trip_ns, syn_rounds, lead_s):
    assert iperf.lead_s(flows, round_trip_ns, syn_rounds) == pytest.approx(lead_s)


def ended(folder: Path, commands: SystemCommands, argv: list[str]) -> Process:
    """A client that said something and ended."""
    client = commands.spawn("the client", argv, stdout=folder / "out", stderr=folder / "err")
    client.wait(5)
    return client


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (", smallest payload 200 to 200", None),
        (", smallest payload 200 to 1448", "requested 200 to 200, the kernel shows 200 to 1448"),
        ("", "requested of random sizes"),
    ],
)
def test_a_senders_payloads_are_those_requested(said, wrong, tmp_path, commands):
    flow = wants(tcprand={"min_payload": 200})
    client = ended(tmp_path, commands, ["echo", f"50000 bytes in 60 writes{said}"])
    if wrong is None:
        iperf.check_client(flow, client)
    else:
        with pytest.raises(ReadBackError, match=wrong):
            iperf.check_client(flow, client)
    with pytest.raises(CommandError):
        iperf.check_client(FLOW, client)  # iperf says it in other words.


def test_a_client_sent_as_many_bytes_as_were_asked_for(tmp_path, commands):
    client = ended(tmp_path, commands, ["echo", CLIENT])
    iperf.check_client(replace(FLOW, duration_ns=None, size_bytes=7_077_968), client)
    with pytest.raises(ReadBackError, match="bytes: requested 7000000"):
        iperf.check_client(replace(FLOW, duration_ns=None, size_bytes=7_000_000), client)


@pytest.mark.parametrize("server_dies", [True, False])
def test_a_client_that_fails_ends_the_traffic_and_names_the_cause(server_dies, tmp_path, commands):
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
    with pytest.raises(CommandError) as raised:
        iperf.await_end(
            lambda: still_running(clients.values()),
            time.time_ns(),
            60 * 10**9,
            server.require_alive,
            lambda t_s: None,
            [],
        )
    assert time.monotonic() - began < 50
    cause = "server: exit status 9" if server_dies else "first: exit status 1: reset"
    assert str(raised.value).startswith(cause)


def test_a_server_that_waits_at_the_first_interrupt_is_interrupted_again(
    tmp_path, monkeypatch, commands
):
    monkeypatch.setattr(iperf, "SERVER_END_S", 0.5)
    script = "import signal, time; signal.signal(2, lambda *_: signal.signal(2, 0)); print(1)"
    server = commands.spawn(
        "server",
        [sys.executable, "-u", "-c", f"{script}\nwhile True: time.sleep(0.1)"],
        stdout=tmp_path / "out",
        stderr=tmp_path / "err",
    )
    wait_until(lambda: bool(server.output()), "the server's first line", HANG_S)
    sending = iperf.Flows([], own_namespace, tmp_path, commands)
    sending.lasting.append(server)
    sending.end()
    assert server.popen.returncode == -signal.SIGINT


# --- load


MACHINE = """cpu  100 10 50 700 20 5 15 100 40 0
cpu0 50 5 25 565 15 2 8 50 20 0
cpu1 20 5 5 140 10 2 8 10 20 0
"""
THREAD = "42 (ovs (odd) name) S 1 42 42 0 -1 4194560 9 0 0 0 30 12 0 0 20 0 1 0 99 0 0"


def test_times_are_read_from_the_kernels_texts():
    reading = parse(MACHINE, THREAD, 1, 3.0, 0.01)
    # Idle and iowait count as idle, steal does not. Guest time is part of user time.
    assert reading.machine == pytest.approx((2.8, 10.0))
    # On the forwarding core, only what precedes forwarding or is forwarding counts.
    assert reading.arrivals_core == pytest.approx((0.2, 2.0))
    assert reading.openvswitch == pytest.approx((0.42, 3.0))


def test_a_busy_second_is_named_and_the_others_are_in_the_mean():
    readings = [
        Reading((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
        Reading((0.4, 2.0), (0.5, 1.0), (0.1, 1.0)),
        Reading((2.36, 4.0), (0.9, 2.0), (0.4, 2.0)),
    ]
    meter = LoadMeter(iter(readings).__next__)
    meter.tick()
    assert (meter.warnings(), meter.effective()) == ([], {})
    meter.tick()
    assert meter.warnings() == []
    meter.finish()
    (warning,) = meter.warnings()
    assert "the machine's cores were more than 95% busy in 1 of 2 seconds (worst: 98%)" in warning
    assert meter.effective() == {
        "cpu.machine_share": 0.59,
        "cpu.machine_share_worst_second": 0.98,
        "cpu.arrivals_core_share": 0.45,
        "cpu.arrivals_core_share_worst_second": 0.5,
        "cpu.openvswitch_share": 0.2,
        "cpu.openvswitch_share_worst_second": 0.3,
    }


# --- What a frame takes on a link: the arithmetic, what the shapers are told, and old runs


FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"


@pytest.mark.parametrize(
    ("frame_bytes", "wire_bytes"),
    [
        (1514, 1538),
        (9014, 9038),
        # An acknowledgement with timestamps, one without, which is filled up, and an ARP request.
        (66, 90),
        (60, 84),
        (54, 84),
        (42, 84),
    ],
)
def test_preamble_check_sequence_and_gap_take_time(frame_bytes, wire_bytes):
    assert FRAMINGS["ethernet"].wire_bytes(frame_bytes) == wire_bytes
    assert FRAMINGS["none"].wire_bytes(frame_bytes) == frame_bytes


@pytest.mark.parametrize(("overhead", "frame_ns"), [("ethernet", 12_304), ("none", 12_112)])
def test_a_full_frames_time_at_a_gigabit(overhead, frame_ns):
    loaded = experiment.load(FIG3C, [f"links.overhead={overhead}"])
    plan = make_plan(loaded)
    assert {link.frame_ns for link in plan.links.values()} == {frame_ns}
    # 941 and 956 Mbps.
    assert round(1448 * 8e3 / frame_ns) == {"ethernet": 941, "none": 956}[overhead]
    port = ports.switch_queue(loaded, plan, "e0_0-eth1")
    assert qdiscs.record(port).framing == FRAMINGS[overhead]
    # The limit stays in bytes of frames.
    assert port.queue.tc() == (("bfifo", (16384).to_bytes(4, "little"), None),)


def test_another_overhead_is_refused():
    with pytest.raises(ConfigError, match=r"links\.overhead.*'ethernet' or 'none'"):
        experiment.load(FIG3C, ["links.overhead=atm"])


@pytest.mark.parametrize("kind", ["tbf", "htb"])
def test_a_change_of_rate_keeps_the_overhead(kind):
    loaded = experiment.load(FIG3C, [f"queue={{kind: {kind}, limit: 16KB}}", "links.rate=1gbit"])
    port = ports.switch_queue(loaded, make_plan(loaded), "e0_0-eth1")
    request = rate_request(7, replace(port, rate_bps=5 * 10**8))
    options = netlink.attribute(request[36:], 2) or b""
    parameters = netlink.attribute(options, 1) or b""
    # Struct tc_ratespec: cell_log, linklayer, overhead, mpu, rate in bytes a second; cell_align is
    # of tables of times, which the kernel does not use.
    told = struct.unpack_from("=BBH2xHI", parameters)
    assert told == (0, 1, 24, 84, 62_500_000)
