"""Our own sender and receiver, for what iperf cannot send.

That is TCPRand's payloads, Multipath TCP, and flows of a length that iperf does not keep.

In C, compiled by the run that needs it: at 1 Gbps a flow of small payloads is some hundred thousand
writes a second, handed to the kernel by sendmmsg(2). stream.c is a program that sends one flow or
receives many; tcprand.c, TCPRand's payloads, is part of it, and a library of the traffic generator.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from outcast.emulation.commands import Commands
from outcast.errors import ReadBackError
from outcast.experiment import TcpRand, Transport
from outcast.plan.flows import Flow

PROGRAM = Path(__file__).with_name("stream.c")
PAYLOADS = Path(__file__).with_name("tcprand.c")
HELD_START = Path(__file__).with_name("held_start.c")
IPERF_DURATION_NS = 10_000_000
"""iperf(1) cuts a time off to hundredths of a second."""
IPERF_LEAST_BYTES = 60
"""Asked for less than its own header, iperf sends without end."""
UNPACED_BPS = 10**12
"""Above any link here: a rate that limits nothing, and has TCP pace by its own."""


def needed(transport: Transport) -> bool:
    """Whether flows with these settings are ours to send and to receive."""
    return transport.tcprand is not None or transport.mptcp is not None


def sends(flow: Flow) -> bool:
    """Whether a flow is ours to send, be it to iperf's server."""
    if needed(flow.transport):
        return True
    if flow.size_bytes is not None:
        return flow.size_bytes < IPERF_LEAST_BYTES
    return bool((flow.duration_ns or 0) % IPERF_DURATION_NS)


def build(folder: Path, commands: Commands) -> Path:
    """Compiles the program into a folder; its path. Raises CommandError."""
    program = folder / "stream"
    commands.run(["cc", "-O2", "-o", str(program), str(PROGRAM), str(PAYLOADS), "-lm"])
    return program


def build_library(folder: Path, commands: Commands) -> Path:
    """Compiles TCPRand's payloads as a shared library, of tcprand.h; its path.

    Raises:
        CommandError: the compiler failed.
    """
    library = folder / "tcprand.so"
    commands.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(PAYLOADS), "-lm"],
    )
    return library


def build_held_start(folder: Path, commands: Commands) -> Path:
    """Compiles what has iperf wait for the word of its start, see held_start.c; its path.

    Raises:
        CommandError: the compiler failed.
    """
    library = folder / "held_start.so"
    commands.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HELD_START), "-ldl"])
    return library


def receiver_arguments(program: Path, port: int, transport: Transport) -> list[str]:
    """The command line of a receiver of any number of flows."""
    argv = [str(program), "receive", "--port", str(port)]
    argv += ["--congestion-control", transport.congestion_control]
    return argv + (["--mptcp"] if transport.mptcp else [])


def sender_arguments(
    program: Path, flow: Flow, seed: int, t_start_ns: int | None = None
) -> list[str]:
    """The command line that sends one flow.

    Its start adds to the epoch time `t_start_ns`; without one it is told its start once connected.
    `seed` is the experiment's; each flow draws numbers of its own from it.
    """
    transport = flow.transport
    argv = [str(program), "send", "--from", f"{flow.src_ip}:{flow.sport}"]
    argv += ["--to", f"{flow.dst_ip}:{flow.dport}"]
    if t_start_ns is not None:
        argv += ["--start", str(t_start_ns + flow.start_ns)]
    if flow.size_bytes is not None:
        argv += ["--bytes", str(flow.size_bytes)]
    else:
        argv += ["--duration", str(flow.duration_ns)]
    argv += ["--congestion-control", transport.congestion_control]
    if transport.mptcp is not None:
        argv.append("--mptcp")
    rate_bps = pacing_rate_bps(transport)
    if rate_bps is not None:
        argv += ["--pacing-rate", str(rate_bps // 8)]
    if transport.tcprand is not None:
        own = random.Random(f"{seed} tcprand {flow.flow}").getrandbits(64)
        argv += ["--seed", str(own)]
        numbers = adaptive_numbers(transport.tcprand)
        if numbers is not None:
            argv += ["--adaptive", numbers]
        else:
            argv += ["--min-payload", str(transport.tcprand.min_payload)]
    return argv


def adaptive_numbers(tcprand: TcpRand) -> str | None:
    """Algorithm 1's parameters as tcprand.h takes them; None where rMin is fixed."""
    adaptive = tcprand.adaptive
    if adaptive is None:
        return None
    nu_tau = "inf" if adaptive.nu_tau == "infinite" else adaptive.nu_tau
    return f"{adaptive.sigma2},{adaptive.mu},{nu_tau},{adaptive.nu_omega},{adaptive.theta}"


def pacing_rate_bps(transport: Transport) -> int | None:
    """What SO_MAX_PACING_RATE (socket(7)) is to be set to; None: it is left alone.

    Any value makes TCP space its packets by a timer of its own, by the rate that it works out of
    window and round trip where that is less (net/core/sock.c). With fq at the port only a rate
    that is asked for is set: fq itself has TCP work out its rate.
    """
    if transport.pacing == "internal":
        return transport.pacing_rate_bps or UNPACED_BPS
    return transport.pacing_rate_bps


def sent_bytes(text: str) -> int | None:
    """The bytes that the sender reports at its end."""
    match = re.search(r"^([0-9]+) bytes in [0-9]+ writes", text, re.MULTILINE)
    return int(match[1]) if match else None


def smallest_payload(text: str) -> tuple[int, int] | None:
    """The smallest and the largest rMin that the sender reports; None without random payloads."""
    match = re.search(r", smallest payload ([0-9]+) to ([0-9]+)$", text, re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else None


def check_smallest_payload(tcprand: TcpRand, used: tuple[int, int], where: str) -> None:
    """Raises ReadBackError where rMin was another than requested."""
    least, most = used
    if tcprand.adaptive is not None:
        wanted = f"{tcprand.adaptive.theta} and more"
        fits = tcprand.adaptive.theta <= least
    else:
        wanted = f"{tcprand.min_payload} to {tcprand.min_payload}"
        fits = least == most == tcprand.min_payload
    if not fits:
        raise ReadBackError(where, "smallest payload", wanted, f"{least} to {most}")
