"""Link delays to the nanosecond.

tc(8) of iproute2 6.1 passes a netem delay in units of 64 ns, cut to whole microseconds before:
5 us become 4992 ns. The kernel itself takes nanoseconds (TCA_NETEM_LATENCY64 in
linux/pkt_sched.h), so the qdisc is set up by rtnetlink(7) here.
"""

from __future__ import annotations

import struct

from outcast import rtnetlink

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
    options += rtnetlink.attribute(LATENCY64, struct.pack("=q", delay_ns))
    options += rtnetlink.attribute(JITTER64, struct.pack("=q", jitter_ns))
    rtnetlink.replace_qdisc(
        interface, "netem", parent=rtnetlink.ROOT, major=handle, options=options
    )
