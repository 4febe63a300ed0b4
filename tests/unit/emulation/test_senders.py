import ctypes
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.emulation import c_programs, senders
from outcast.emulation.commands import SystemCommands, wait_until
from outcast.emulation.kernel import sockets
from outcast.errors import ReadBackError
from outcast.experiment import Transport
from tests import flows
from tests.deadlines import HANG_S
from tests.flows import wants

MSS = 1448
BETA = 717 / 1024

FLOW = replace(
    flows.FLOW,
    flow=3,
    src_ip="127.0.0.1",
    dst_ip="127.0.0.1",
    sport=0,
    start_ns=0,
    duration_ns=200_000_000,
)


class Adaptive(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("sigma2", "mu", "nu_tau", "nu_omega", "theta")]


class Epoch(ctypes.Structure):
    _fields_ = [("alpha", ctypes.c_double), ("w_max", ctypes.c_double)]


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    """The C program's functions."""
    target = c_programs.provide(
        c_programs.TCPRAND, tmp_path_factory.mktemp("library"), SystemCommands()
    )
    found = ctypes.CDLL(str(target))
    found.min_payload.argtypes = [ctypes.c_double, Epoch, Adaptive, ctypes.c_int]
    found.after.argtypes = [Epoch, ctypes.c_uint32]
    found.after.restype = Epoch
    found.payload.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_int, ctypes.c_int]
    return found


@given(
    cwnd=st.floats(1, 400),
    alpha=st.floats(2, 100),
    growth=st.floats(1, 100),
    sigma2=st.sampled_from([0.2, 1.0, 5.0]),
    mu=st.sampled_from([0.0, 1.0]),
    nu_tau=st.sampled_from([1.0, 2.0, math.inf]),
    nu_omega=st.sampled_from([0.0, 1.0]),
)
def test_the_smallest_payload_follows_algorithm_1(
    library, cwnd, alpha, growth, sigma2, mu, nu_tau, nu_omega
):
    w_max = alpha + growth
    growth = w_max - alpha
    found = library.min_payload(
        cwnd, Epoch(alpha, w_max), Adaptive(sigma2, mu, nu_tau, nu_omega, 200), MSS
    )
    tau = w_max - growth / nu_tau
    omega = w_max + growth / nu_omega if nu_omega else math.inf
    if tau <= cwnd <= omega:
        phi = NormalDist(mu, math.sqrt(sigma2)).cdf((cwnd - alpha) / growth)
        assert found == pytest.approx(max(MSS * (1 - phi), 200), abs=1)
    else:
        assert found == MSS


def test_before_the_first_loss_payloads_are_full(library):
    untouched = library.after(Epoch(0, 0), 0x7FFFFFFF)
    assert library.min_payload(30, untouched, Adaptive(1, 1, 1, 0, 200), MSS) == MSS


def test_a_loss_sets_the_maximum_as_cubic_does(library):
    first = library.after(Epoch(0, 0), 70)
    assert (first.alpha, first.w_max) == (70, pytest.approx(70 / BETA))
    again = library.after(first, 70)
    assert (again.alpha, again.w_max) == (first.alpha, first.w_max)
    # Below the last maximum, so fast convergence applies.
    lower = library.after(first, 35)
    assert (lower.alpha, lower.w_max) == (35, pytest.approx(35 / BETA * (1 + BETA) / 2))
    higher = library.after(lower, 40)
    assert higher.w_max == pytest.approx(40 / BETA)


def test_sizes_are_uniform_and_replay(library):
    def draw(seed: int, count: int) -> list[int]:
        state = ctypes.c_uint64(seed)
        return [library.payload(ctypes.byref(state), 200, MSS) for _ in range(count)]

    sizes = draw(7, 124_900)
    assert draw(7, 100) == sizes[:100]
    assert draw(8, 100) != sizes[:100]
    counts = [sizes.count(size) for size in range(200, MSS + 1)]
    assert sum(counts) == len(sizes)
    # Chi-square over 1249 sizes, 100 expected of each: mean 1248, deviation 50.
    assert sum((count - 100) ** 2 / 100 for count in counts) < 1248 + 5 * 50


def test_a_command_line_for_each_kind():
    program = Path("/scratch/stream")
    fixed = senders.sender_arguments(program, wants(FLOW, tcprand={"min_payload": 50}), 1, 1000)
    assert fixed[fixed.index("--start") + 1] == "1000"
    assert fixed[fixed.index("--min-payload") + 1] == "50"
    assert fixed[fixed.index("--duration") + 1] == "200000000"
    other = senders.sender_arguments(program, replace(FLOW, flow=4, transport=wants(
        tcprand={"min_payload": 50}).transport), 1)  # fmt: skip
    assert other[other.index("--seed") + 1] != fixed[fixed.index("--seed") + 1]
    adaptive = senders.sender_arguments(
        program, wants(FLOW, tcprand={"adaptive": {"mu": 0, "nu_tau": "infinite"}}), 1
    )
    assert adaptive[adaptive.index("--adaptive") + 1] == "1.0,0.0,inf,1.0,200"
    paced = wants(FLOW, tcprand={"min_payload": 50}, pacing="internal", pacing_rate="8mbit")
    argv = senders.sender_arguments(program, paced, 1)
    assert argv[argv.index("--pacing-rate") + 1] == "1000000"
    mptcp = wants(FLOW, mptcp={"subflows": 2})
    told = senders.sender_arguments(program, mptcp, 1)
    assert "--mptcp" in told
    assert "--start" not in told
    assert "--mptcp" in senders.receiver_arguments(program, 5002, mptcp.transport)


@pytest.mark.parametrize(
    ("settings", "rate_bps"),
    [
        ({}, None),
        ({"pacing": "fq"}, None),
        ({"pacing": "fq", "pacing_rate": "1gbit"}, 10**9),
        ({"pacing": "internal"}, senders.UNPACED_BPS),
        ({"pacing": "internal", "pacing_rate": "1gbit"}, 10**9),
    ],
)
def test_who_is_told_to_pace(settings, rate_bps):
    assert senders.pacing_rate_bps(Transport.model_validate(settings)) == rate_bps


def free_ports() -> tuple[int, int]:
    """Two ports; both are held until both are known, so they differ."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        return int(one.getsockname()[1]), int(other.getsockname()[1])


@pytest.mark.parametrize("settings", [{"tcprand": {"min_payload": 700}}, {"mptcp": {}}])
def test_a_flow_of_so_many_bytes_over_loopback(settings, tmp_path):
    commands = SystemCommands()
    program = c_programs.provide(c_programs.STREAM, tmp_path, commands)
    sport, dport = free_ports()
    flow = replace(
        # A user without rights may take reno everywhere, and cubic only where it is allowed.
        wants(FLOW, congestion_control="reno", **settings),
        sport=sport,
        dport=dport,
        duration_ns=None,
        size_bytes=50_001,
    )
    try:
        server = commands.spawn(
            "receiver",
            senders.receiver_arguments(program, flow.dport, flow.transport),
            stdout=tmp_path / "receiver.out",
            stderr=tmp_path / "receiver.err",
        )
        end = time.monotonic() + HANG_S
        while not commands.run(["ss", "-tlnH", "sport", "=", f":{flow.dport}"]).strip():
            assert time.monotonic() < end, server.errors()
        sender = commands.spawn(
            "sender",
            senders.sender_arguments(program, flow, 1),
            stdout=tmp_path / "sender.out",
            stderr=tmp_path / "sender.err",
            hears=True,
        )

        def is_ready() -> bool:
            # Another process may have taken the port meanwhile; then the sender says so and ends.
            sender.require_alive()
            return "ready" in sender.output()

        wait_until(is_ready, "the sender to connect", HANG_S)
        told_ns = time.time_ns() + 300_000_000
        sender.tell(str(told_ns))
        assert sender.wait(HANG_S) == 0
        assert time.time_ns() > told_ns
        said = sender.output()
    finally:
        commands.end_all()
    assert senders.sent_bytes(said) == 50_001
    assert ("smallest payload 700 to 700" in said) is ("tcprand" in settings)


@pytest.mark.parametrize(
    ("duration_ns", "size_bytes", "ours"),
    [
        (500_000_000, None, False),
        (125_000_000, None, True),
        (9_000_000, None, True),
        (None, 60, False),
        (None, 59, True),
    ],
)
def test_what_iperf_would_cut_off_or_never_end_is_ours(duration_ns, size_bytes, ours):
    flow = replace(FLOW, duration_ns=duration_ns, size_bytes=size_bytes)
    assert senders.sends(flow) is ours
    assert senders.sends(replace(wants(flow, mptcp={}), size_bytes=1000))


SERVER = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
connection, _ = listening.accept()
print("connected", flush=True)
received = 0
while data := connection.recv(1 << 20):
    received += len(data)
print(received, flush=True)
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    yield started
    started.kill()
    started.wait()


def test_a_program_reads_by_itself_where_the_kernel_cannot(server):
    with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as client:
        assert server.stdout.readline() == "connected\n"
        client.sendall(bytes(20_000))
        assert sockets.read_at_once([server.pid]) == 0
        client.sendall(bytes(20_000))
    assert int(server.communicate(timeout=HANG_S)[0]) == 40_000


class Kernel(socket.socket):
    """A socket of a kernel that takes the option and does not heed it."""

    def setsockopt(self, *_given: object) -> None:
        pass

    def getsockopt(self, *asked: object) -> int | bytes:
        return b"\1" * 248 if socket.TCP_INFO in asked else 0


def test_an_option_that_does_not_take_is_an_error(monkeypatch):
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(OSError, match="No such process"):
        sockets.read_at_once([gone.pid])
    with Kernel() as ours:
        monkeypatch.setattr(sockets, "_connections", lambda _pid: iter([ours]))
        with pytest.raises(ReadBackError, match="TCP_SINK"):
            sockets.read_at_once([1])
