"""How busy the machine was while flows ran, because real time needs a free CPU.

Where no core is free, packets wait for the processor. The captures then show its queue instead of
the switch's. The shares are measured second by second, because a mean would hide a short overload.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

WINDOW_S = 1.0
SHORTEST_WINDOW_S = 0.2
"""The rest at the end counts if it is at least this long, because times come in steps of 10 ms."""
_LIMITS = {
    "openvswitch": ("ovs-vswitchd was", 0.90),
    "arrivals_core": ("the core that forwards was", 0.90),
    "machine": ("the machine's cores were", 0.95),
}
_REMEDY = "end other programs, lower links.rate, run fewer flows, or use --engine virtual"


class Reading(NamedTuple):
    """CPU time up to one moment: what was busy, and in all, in seconds.

    Attributes:
        machine: all cores. Time that a virtual machine's host took away (steal) is busy.
        arrivals_core: the core that processes all arrivals, in interrupts, which go before
            programs, or taken away.
        openvswitch: ovs-vswitchd's main thread, on a clock that does not step.
    """

    machine: tuple[float, float]
    arrivals_core: tuple[float, float]
    openvswitch: tuple[float, float]


def read_load(switch_pid: int, core: int) -> Reading:
    """Reads the counters of proc(5): /proc/stat, and the stat of a process's main thread."""
    machine = Path("/proc/stat").read_text()
    thread = Path(f"/proc/{switch_pid}/task/{switch_pid}/stat").read_text()
    return parse(machine, thread, core, time.monotonic(), 1 / os.sysconf("SC_CLK_TCK"))


def parse(machine: str, thread: str, core: int, t_s: float, tick_s: float) -> Reading:
    """A reading from the texts of /proc/stat and of a thread's stat, in ticks of `tick_s`."""
    # user nice system idle iowait irq softirq steal; guest time is within user's.
    lines = {words[0]: words[1:9] for words in map(str.split, machine.splitlines())}
    whole, single = ([int(tick) for tick in lines[name]] for name in ("cpu", f"cpu{core}"))
    fields = thread.rpartition(")")[2].split()
    return Reading(
        ((sum(whole) - whole[3] - whole[4]) * tick_s, sum(whole) * tick_s),
        (sum(single[5:]) * tick_s, sum(single) * tick_s),
        ((int(fields[11]) + int(fields[12])) * tick_s, t_s),
    )


class LoadMeter:
    """Measures from the first tick on. Call `tick` several times a second."""

    def __init__(self, read_now: Callable[[], Reading]) -> None:
        self._read = read_now
        self._readings: list[Reading] = []

    def tick(self, least_s: float = WINDOW_S) -> None:
        """Takes a reading, and keeps it if the last one is that old."""
        now = self._read()
        if not self._readings or now.openvswitch[1] - self._readings[-1].openvswitch[1] >= least_s:
            self._readings.append(now)

    def finish(self) -> None:
        """Takes the last reading. Without a call of `tick` nothing is measured."""
        if self._readings:
            self.tick(SHORTEST_WINDOW_S)

    def _shares(self, name: str) -> list[float]:
        """The shares of each second, 0 to 1."""
        return [_share(name, before, after) for before, after in pairwise(self._readings)]

    def effective(self) -> dict[str, Any]:
        """Mean and worst shares for the manifest; empty if nothing was measured."""
        if len(self._readings) < 2:
            return {}
        shares = {}
        for name in Reading._fields:
            mean = _share(name, self._readings[0], self._readings[-1])
            shares[f"cpu.{name}_share"] = round(mean, 3)
            shares[f"cpu.{name}_share_worst_second"] = round(max(self._shares(name)), 3)
        return shares

    def warnings(self) -> list[str]:
        warnings = []
        for name, (who, limit) in _LIMITS.items():
            shares = self._shares(name)
            if over := sum(share > limit for share in shares):
                warnings.append(
                    f"{who} more than {limit:.0%} busy in {over} of {len(shares)} seconds "
                    f"(worst: {max(shares):.0%}): packets waited for the CPU, and delays and "
                    f"drops may show that rather than the queue; {_REMEDY}"
                )
        return warnings


def _share(name: str, before: Reading, after: Reading) -> float:
    (busy_0_s, all_0_s), (busy_1_s, all_1_s) = getattr(before, name), getattr(after, name)
    return (busy_1_s - busy_0_s) / (all_1_s - all_0_s) if all_1_s > all_0_s else 0.0
