"""Our own requests by rtnetlink(7): counters of interfaces, and qdiscs that need no tc(8).

pyroute2 reads everything that the kernel tells of an interface. For the counters of a network's
ports that takes fifty times as long.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from outcast import netlink
from outcast.errors import FeatureMissingError, RunError


def replace_qdisc(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
    """Calls `outcast.netlink.replace_qdisc`, which describes the arguments.

    Raises:
        FeatureMissingError: the kernel has no such qdisc.
        RunError: the kernel refused; the text has its reason.
    """
    try:
        netlink.replace_qdisc(interface, kind, parent=parent, major=major, options=options)
    except OSError as error:
        # The kernel answers so for a kind that it does not know (qdisc_create in sch_api.c).
        if error.errno == errno.ENOENT:
            raise FeatureMissingError(f"this kernel has no qdisc {kind}") from None
        raise RunError(f"{interface}: qdisc {major}: {kind}: {error.strerror}") from None


COUNTERS = (
    *("rx_packets", "tx_packets", "rx_bytes", "tx_bytes"),
    *("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"),
)
"""The first members of struct rtnl_link_stats64 (linux/if_link.h)."""
_IFLA_STATS_LINK_64 = 1
_STATS_MESSAGE = struct.Struct("=BxxxII")
"""struct if_stats_msg: family, interface, and a mask of the statistics that are asked for."""
_RECEIVE_BYTES = 1 << 16


def interface_counters(interface: int = 0) -> dict[int, dict[str, int]]:
    """The kernel's counters of interfaces in the calling thread's network namespace, by index.

    Args:
        interface: the index of the one that is asked for; 0 asks for all.

    Returns:
        COUNTERS of each, as ip-link(8) shows them.

    Raises:
        RunError: the kernel refused.
    """
    body = _STATS_MESSAGE.pack(0, interface, 1 << (_IFLA_STATS_LINK_64 - 1))
    flags = netlink.REQUEST | (0 if interface else netlink.DUMP)
    counted: dict[int, dict[str, int]] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        asked.send(netlink.message(netlink.RTM_GETSTATS, flags, 1, body))
        while True:
            for kind, answer in netlink.messages(asked.recv(_RECEIVE_BYTES)):
                if kind == netlink.DONE:
                    return counted
                if kind == netlink.ERROR:
                    number = -struct.unpack_from("=i", answer)[0]
                    raise RunError(f"counters of interfaces: {os.strerror(number)}")
                _, index, _ = _STATS_MESSAGE.unpack_from(answer)
                stats = netlink.attribute(answer[_STATS_MESSAGE.size :], _IFLA_STATS_LINK_64)
                values = struct.unpack_from(f"={len(COUNTERS)}Q", stats or b"")
                counted[index] = dict(zip(COUNTERS, values, strict=True))
            if interface:
                return counted
