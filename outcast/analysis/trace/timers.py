"""A socket's timers: which one is armed, when it is due, and what became of it.

A timer is due at a tick. The kernel's timer wheel lets it go off at the first tick after its time
is over, and later ones in coarser steps (kernel/time/timer.c, calc_wheel_index).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from outcast.analysis.trace import events as of
from outcast.analysis.trace.causes import TIMERS

TICK_NS = 1_000_000
"""A jiffy of the guest's kernel (CONFIG_HZ is 1000)."""
_SIZE, _SHIFT, _DEPTH = 64, 3, 9

End = Literal["fired", "armed again", "cleared"]
_ENDS: dict[int, End] = {of.ARMED: "armed again", of.FIRED: "fired", of.CLEARED: "cleared"}


@dataclass(frozen=True, slots=True)
class Timer:
    """The timer that is armed at some time.

    Attributes:
        kind: one of `causes.TIMERS`.
        due_ns: when it goes off if nothing comes before; None if the run shows no tick.
        set_ns: how long it was set for, in whole ticks.
        rto_ns: the socket's timeout then, with its backoff.
    """

    kind: str
    armed_ns: int
    due_ns: int | None
    set_ns: int
    rto_ns: int
    backoff: int
    end: End | None
    end_ns: int | None


def goes_off(expires: int, now: int) -> int:
    """The jiffy at which a timer goes off that is armed at the jiffy `now`."""
    for level in range(_DEPTH):
        if expires - now < (_SIZE - 1) << (level * _SHIFT) or level == _DEPTH - 1:
            shift = level * _SHIFT
            return ((expires >> shift) + 1) << shift
    raise AssertionError  # the loop ends at its last level


def tick_zero_ns(timers: pl.DataFrame) -> int | None:
    """The time of jiffy 0, from timers that went off; None if none did."""
    fired = timers.filter(pl.col("action") == of.FIRED)
    if not fired.height:
        return None
    zero = fired["t_ns"].to_numpy() - fired["now"].cast(pl.Int64).to_numpy() * TICK_NS
    # A timer can be late if its socket is in use, never early.
    return int(np.min(zero))


def armed_at(timers: pl.DataFrame, t_ns: int, zero_ns: int | None) -> Timer | None:
    """The sending timer of a socket that is armed at a time, after all that happened then."""
    sending = timers.filter(pl.col("kind") != of.TIME_DACK)
    before = sending.filter(pl.col("t_ns") <= t_ns)
    if not before.height:
        return None
    last = before.row(-1, named=True)
    if last["action"] != of.ARMED:
        return None
    after = sending.filter(pl.col("t_ns") > t_ns)
    end: End | None = None
    end_ns = None
    if after.height:
        following = after.row(0, named=True)
        end, end_ns = _ENDS[following["action"]], following["t_ns"]
    due_ns = None
    if zero_ns is not None:
        due_ns = zero_ns + goes_off(last["expires"], last["now"]) * TICK_NS
    return Timer(
        kind=TIMERS[last["kind"]],
        armed_ns=last["t_ns"],
        due_ns=due_ns,
        set_ns=(last["expires"] - last["now"]) * TICK_NS,
        rto_ns=last["rto_us"] * 1000,
        backoff=last["backoff"],
        end=end,
        end_ns=end_ns,
    )
