"""Sends and receives flows that iperf cannot send.

These are flows with TCPRand's payloads or Multipath TCP, and flows of a length that iperf rounds.
The programs are in C (`outcast.emulation.c_programs`): at 1 Gbps a flow of small payloads makes
some hundred thousand writes a second, which sendmmsg(2) hands to the kernel. stream.c sends one
flow or receives many. tcprand.c has TCPRand's payloads, for stream.c and for the generator.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

from outcast.errors import ReadBackError
from outcast.experiment import TcpRand, Transport
from outcast.plan.addresses import with_port
from outcast.plan.flows import Flow

if TYPE_CHECKING:
    from outcast.experiment.parts import Family

IPERF_DURATION_NS = 10_000_000
"""iperf(1) cuts a duration to hundredths of a second."""
IPERF_LEAST_BYTES = 60
"""iperf never stops sending if it shall send less than its own header."""
UNPACED_BPS = 10**12
"""A rate above that of any link. It limits nothing, and TCP paces by its own rate."""


def needed(transport: Transport) -> bool:
    """Whether iperf cannot send flows with these settings."""
    return transport.tcprand is not None or transport.mptcp is not None


def sends(flow: Flow) -> bool:
    """Whether stream.c sends a flow, and so receives it too.

    iperf 2.1.8 binds to no source port with IPv6 (`-B [ADDRESS]:PORT` sets the address alone).
    """
    if needed(flow.transport) or flow.family == "ipv6":
        return True
    if flow.size_bytes is not None:
        return flow.size_bytes < IPERF_LEAST_BYTES
    return bool((flow.duration_ns or 0) % IPERF_DURATION_NS)


def receiver_arguments(
    program: Path, port: int, transport: Transport, family: Family = "ipv4"
) -> list[str]:
    argv = [str(program), "receive", "--port", str(port)]
    argv += ["--ipv6"] if family == "ipv6" else []
    argv += ["--congestion-control", transport.congestion_control]
    return argv + (["--mptcp"] if transport.mptcp else [])


def sender_arguments(
    program: Path, flow: Flow, seed: int, t_start_ns: int | None = None
) -> list[str]:
    """The command line that sends one flow, with random numbers by the experiment's `seed`.

    Its start adds to `t_start_ns`, an epoch time; without that the program gets its start once it
    has connected.
    """
    transport = flow.transport
    argv = [str(program), "send", "--from", with_port(flow.src_ip, flow.sport)]
    argv += ["--to", with_port(flow.dst_ip, flow.dport)]
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
    if flow.dscp:
        argv += ["--tos", str(flow.dscp << 2)]
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
    """Algorithm 1's parameters in the form of tcprand.h; None where rMin is fixed."""
    adaptive = tcprand.adaptive
    if adaptive is None:
        return None
    nu_tau = "inf" if adaptive.nu_tau == "infinite" else adaptive.nu_tau
    return f"{adaptive.sigma2},{adaptive.mu},{nu_tau},{adaptive.nu_omega},{adaptive.theta}"


def pacing_rate_bps(transport: Transport) -> int | None:
    """The value of SO_MAX_PACING_RATE (socket(7)) to set; None leaves it alone.

    Any value makes TCP space its packets by its own timer. If the rate that TCP computes from
    window and round trip is lower, that one holds (net/core/sock.c). With fq at the port only a
    requested rate is set, because fq itself makes TCP compute its rate.
    """
    if transport.pacing == "internal":
        return transport.pacing_rate_bps or UNPACED_BPS
    return transport.pacing_rate_bps


def sent_bytes(text: str) -> int | None:
    match = re.search(r"^([0-9]+) bytes in [0-9]+ writes", text, re.MULTILINE)
    return int(match[1]) if match else None


def smallest_payload(text: str) -> tuple[int, int] | None:
    """The smallest and the largest rMin that the sender reports; None without random payloads."""
    match = re.search(r", smallest payload ([0-9]+) to ([0-9]+)$", text, re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else None


def check_smallest_payload(tcprand: TcpRand, used: tuple[int, int], where: str) -> None:
    """Raises ReadBackError where rMin differs from the request."""
    least, most = used
    if tcprand.adaptive is not None:
        requested = f"{tcprand.adaptive.theta} and more"
        fits = tcprand.adaptive.theta <= least
    else:
        requested = f"{tcprand.min_payload} to {tcprand.min_payload}"
        fits = least == most == tcprand.min_payload
    if not fits:
        raise ReadBackError(where, "smallest payload", requested, f"{least} to {most}")
