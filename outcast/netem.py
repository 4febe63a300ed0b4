"""Link delays to the nanosecond.

tc(8) of iproute2 6.1 passes a netem delay in units of 64 ns, cut to whole microseconds before:
5 us become 4992 ns. The kernel itself takes nanoseconds (TCA_NETEM_LATENCY64 in
linux/pkt_sched.h), so the qdisc is set up by rtnetlink(7) here.
"""

from __future__ import annotations

import os
import socket
import struct

from outcast.errors import RunError

_RTM_NEWQDISC = 36
_REQUEST_ACK_CREATE_REPLACE = 0x1 | 0x4 | 0x400 | 0x100
_NLMSG_ERROR = 2
_TC_H_ROOT = 0xFFFFFFFF
_TCA_KIND, _TCA_OPTIONS = 1, 2
LATENCY64, JITTER64 = 10, 11
# struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
_PARAMETERS = struct.Struct("=6I")


def replace_root(
    interface: str, handle: int, *, delay_ns: int, jitter_ns: int, limit_packets: int
) -> None:
    """Makes netem the root qdisc of an interface of the calling thread's network namespace.

    Args:
        interface: its name.
        handle: the qdisc's major number.
        delay_ns: what each packet waits.
        jitter_ns: by how much that varies, uniformly, to either side.
        limit_packets: how many packets can be waiting.

    Raises:
        RunError: the kernel refused; with its reason.
    """
    options = _PARAMETERS.pack(0, limit_packets, 0, 0, 0, 0)
    options += _attribute(LATENCY64, struct.pack("=q", delay_ns))
    options += _attribute(JITTER64, struct.pack("=q", jitter_ns))
    body = struct.pack(
        "=BxxxiIII", 0, socket.if_nametoindex(interface), handle << 16, _TC_H_ROOT, 0
    )
    body += _attribute(_TCA_KIND, b"netem\0") + _attribute(_TCA_OPTIONS, options)
    header = struct.pack("=IHHII", 16 + len(body), _RTM_NEWQDISC, _REQUEST_ACK_CREATE_REPLACE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(header + body)
        answer = netlink.recv(65536)
    (kind,) = struct.unpack_from("=H", answer, 4)
    (error,) = struct.unpack_from("=i", answer, 16)
    if kind != _NLMSG_ERROR or error:
        raise RunError(f"{interface}: netem of {delay_ns} ns: {os.strerror(-error)}")


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
