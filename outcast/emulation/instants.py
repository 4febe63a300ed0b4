"""Fixed instants of virtual time at which parts of a run begin, independent of the set-up before.

What the set-up does, and how long it takes, must not affect the packets. So the guest sleeps to a
fixed instant before the network is built, before its queues are set up, before probes open their
sockets, and before the flows connect. They start at a fixed time after that.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time

STEP_NS = 1_000_000_000
"""The time between the instants of the set-up. The set-up takes 60 ms of virtual time in a fat-tree
of 20 switches, because only waiting takes time."""
CONNECT_STEP_NS = 5_000_000_000
"""The time between the instants at which flows may connect."""
OFFSET_NS = 123_456_789
"""The offset after a whole step, at which other processes of the guest hardly have a timer."""
_TIMER_ABSTIME = 1
_libc = ctypes.CDLL(None, use_errno=True)


def following(now_ns: int, step_ns: int, offset_ns: int = OFFSET_NS) -> int:
    """The first instant after a time that is at an offset after a multiple of the step."""
    return (now_ns - offset_ns) // step_ns * step_ns + step_ns + offset_ns


def sleep_to(step_ns: int) -> int:
    """Sleeps to the instant that follows; returns it in nanoseconds since boot."""
    instant_ns = following(time.monotonic_ns(), step_ns)
    sleep_until(instant_ns)
    return instant_ns


def sleep_until(instant_ns: int) -> None:
    at = struct.pack("ll", *divmod(instant_ns, 10**9))
    number = _libc.clock_nanosleep(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, at, None)
    if number:
        raise OSError(number, f"sleeping to an instant: {os.strerror(number)}")
