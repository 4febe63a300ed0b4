"""What distinguishes the engines; the rest of outcast asks here, and never which engine it is."""

from __future__ import annotations

from typing import Literal, NamedTuple

EngineName = Literal["realtime", "virtual"]
EngineChoice = Literal["auto", "realtime", "virtual"]


class Properties(NamedTuple):
    """What an engine is like.

    Attributes:
        virtual_clock: whether time passes only as the experiment needs it. Then nodes take no time,
            this machine's speed changes nothing, and the seed alone decides every byte of a run.
        own_kernel: whether runs have a guest's kernel, with our patches and events.
        delay_ns: the delay of links that have none given.
        samples_every_ns: the time between samples of sockets and queues, if none is given.
        ring_kib: the ring of one tcpdump, in KiB.
        late_timers_ns: how late a shaper's timer may be without making the shaper slower.
    """

    virtual_clock: bool
    own_kernel: bool
    delay_ns: int
    samples_every_ns: int
    ring_kib: int
    late_timers_ns: int


VIRTUAL = Properties(
    virtual_clock=True,
    own_kernel=True,
    # How long a switch takes for a packet when nothing else waits (the TCPRand paper, section 5.1).
    delay_ns=25_000,
    samples_every_ns=10_000_000,
    # No packet comes while tcpdump reads, so a ring needs room for the packets of one instant. The
    # kernel writes to all of it at the start; for 64 MiB that takes a tenth of the set-up.
    ring_kib=8 * 1024,
    late_timers_ns=0,
)
# Sampling takes CPU time from the network; docs/analysis.md says how much.
_REALTIME = Properties(False, False, 0, 100_000_000, ring_kib=64 * 1024, late_timers_ns=100_000)


def properties(engine: EngineName | None) -> Properties:
    """The engine's properties. Captures of a real network (None) are like a run in real time."""
    return {"virtual": VIRTUAL, "realtime": _REALTIME}[engine or "realtime"]


def candidates(choice: EngineChoice) -> tuple[EngineName, ...]:
    """The engines that may make such a run, first the one that no machine's speed matters to."""
    return ("virtual", "realtime") if choice == "auto" else (choice,)
