"""How busy the machine was while flows ran, because real time needs a free CPU.

Where no core is free, packets wait for the processor. The captures then show its queue instead of
the switch's. The shares are measured second by second, because a mean would hide a short overload.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WINDOW_S = 1.0
SHORTEST_WINDOW_S = 0.2
"""The rest at the end counts if it is at least this long, because times come in steps of 10 ms."""
_NAMES = {"machine": "machine", "arrivals_core": "core", "openvswitch": "switch"}
"""The members of Window by their names in the manifest."""
_LIMITS = {
    "switch": ("ovs-vswitchd was", 0.90),
    "core": ("the core that forwards was", 0.90),
    "machine": ("the machine's cores were", 0.95),
}
_REMEDY = "end other programs, lower links.rate, run fewer flows, or use --engine virtual"


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU time spent up to one moment, in seconds.

    Attributes:
        t_s: the moment, on a clock that does not step.
        machine_busy_s, machine_s: time of all cores that was not idle, and in all. Time that a
            virtual machine's host took away (steal) is not idle.
        core_busy_s, core_s: time of the core that processes all arrivals: in interrupts or taken
            away, and in all. Interrupts go before programs.
    """

    t_s: float
    machine_busy_s: float
    machine_s: float
    core_busy_s: float
    core_s: float
    switch_s: float


@dataclass(frozen=True, slots=True)
class Window:
    """Shares of one second, 0 to 1."""

    machine: float
    core: float
    switch: float


def read_load(switch_pid: int, core: int) -> Reading:
    """Reads the counters of proc(5): /proc/stat, and the stat of a process's main thread."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return parse(
        Path("/proc/stat").read_text(),
        Path(f"/proc/{switch_pid}/task/{switch_pid}/stat").read_text(),
        core,
        time.monotonic(),
        tick_s,
    )


def parse(machine: str, thread: str, core: int, t_s: float, tick_s: float) -> Reading:
    """A reading from the texts of /proc/stat and of a thread's stat, in ticks of `tick_s`."""
    # user nice system idle iowait irq softirq steal; guest time is within user's.
    lines = {words[0]: words[1:9] for words in map(str.split, machine.splitlines())}
    times = {name: [int(tick) for tick in lines[name]] for name in ("cpu", f"cpu{core}")}
    whole, single = times["cpu"], times[f"cpu{core}"]
    fields = thread.rpartition(")")[2].split()
    return Reading(
        t_s=t_s,
        machine_busy_s=(sum(whole) - whole[3] - whole[4]) * tick_s,
        machine_s=sum(whole) * tick_s,
        core_busy_s=sum(single[5:]) * tick_s,
        core_s=sum(single) * tick_s,
        switch_s=(int(fields[11]) + int(fields[12])) * tick_s,
    )


class LoadMeter:
    """Measures from the first tick on. Call `tick` several times a second."""

    def __init__(self, read_now: Callable[[], Reading]) -> None:
        self._read = read_now
        self._readings: list[Reading] = []
        self.windows: list[Window] = []

    def tick(self, least_s: float = WINDOW_S) -> None:
        """Takes a reading, and closes the window if it is long enough."""
        now = self._read()
        if not self._readings:
            self._readings.append(now)
        elif now.t_s - self._readings[-1].t_s >= least_s:
            self.windows.append(_window(self._readings[-1], now))
            self._readings.append(now)

    def finish(self) -> None:
        """Closes the last window. Without a call of `tick` nothing is measured."""
        if self._readings:
            self.tick(SHORTEST_WINDOW_S)

    def effective(self) -> dict[str, Any]:
        """Mean and worst shares for the manifest; empty if nothing was measured."""
        if not self.windows:
            return {}
        whole = _window(self._readings[0], self._readings[-1])
        shares = {}
        for name, member in _NAMES.items():
            worst = max(getattr(window, member) for window in self.windows)
            shares[f"cpu.{name}_share"] = round(getattr(whole, member), 3)
            shares[f"cpu.{name}_share_worst_second"] = round(worst, 3)
        return shares

    def warnings(self) -> list[str]:
        """A line for each limit that was passed."""
        warnings = []
        for member, (who, limit) in _LIMITS.items():
            shares = [getattr(window, member) for window in self.windows]
            over = sum(share > limit for share in shares)
            if over:
                warnings.append(
                    f"{who} more than {limit:.0%} busy in {over} of {len(shares)} seconds "
                    f"(worst: {max(shares):.0%}): packets waited for the CPU, and delays and "
                    f"drops may show that rather than the queue; {_REMEDY}"
                )
        return warnings


def _window(before: Reading, after: Reading) -> Window:
    machine_s = after.machine_s - before.machine_s
    core_s = after.core_s - before.core_s
    return Window(
        machine=(after.machine_busy_s - before.machine_busy_s) / machine_s if machine_s else 0.0,
        core=(after.core_busy_s - before.core_busy_s) / core_s if core_s else 0.0,
        switch=(after.switch_s - before.switch_s) / (after.t_s - before.t_s),
    )
