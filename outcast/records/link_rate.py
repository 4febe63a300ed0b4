"""The rate of a link over time: as it was set up, and as events and traces changed it.

What divides by a link's rate asks here, because the rate may have changed during the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from outcast.records.captures import AnyManifest
from outcast.records.counters import Rates
from outcast.units import MOST_SPAN_NS

FIRST_NS = -(1 << 60)
"""The time from which on the first rate holds: before everything else in a run."""


@dataclass(frozen=True)
class LinkRate:
    """A rate in steps.

    Attributes:
        t_ns: from when each rate is in force, after the traffic's start; ascending. The first is
            FIRST_NS.
        rate_bps: the rates. While the link is down the rate is 0.
    """

    t_ns: tuple[int, ...]
    rate_bps: tuple[int, ...]

    @property
    def is_constant(self) -> bool:
        return len(self.t_ns) == 1

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        return np.array(self.t_ns, np.int64), np.array(self.rate_bps, np.float64)

    def at(self, t_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The rate in bit/s at each of these times."""
        times, rates = self._arrays
        return np.asarray(rates[np.searchsorted(times, t_ns, side="right") - 1], np.float64)

    def mean_bps(self, edges_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The mean rate in bit/s between each two neighbours of these increasing times."""
        times, rates = self._arrays
        if self.is_constant:
            return np.full(edges_ns.size - 1, rates[0])
        # Sums from the first edge on, because sums from FIRST_NS on would cost precision.
        inner = times[(times > edges_ns[0]) & (times < edges_ns[-1])]
        all_ns = np.unique(np.concatenate([edges_ns, inner]))
        carried = np.concatenate([[0.0], np.cumsum(self.at(all_ns[:-1]) * np.diff(all_ns))])
        at_edges = carried[np.searchsorted(all_ns, edges_ns)]
        return np.asarray(np.diff(at_edges) / np.diff(edges_ns), np.float64)


def link_rate(manifest: AnyManifest, rates: Rates, port: str, first_bps: int) -> LinkRate:
    """The rate at which a port sent, by what the run made and read back."""
    steps, ups = (steps_of(manifest, port, what) for what in ("rate_bps", "up"))
    for trace in rates.ports:
        if trace.port == port:
            steps += zip(trace.t_ns, trace.rate_bps, strict=True)
    times = sorted({FIRST_NS, *(t for t, _ in steps), *(t for t, _ in ups)})
    by_time, up_by_time = dict(sorted(steps)), dict(sorted(ups))
    current_bps, is_up = first_bps, 1
    t_ns: list[int] = []
    rate_bps: list[int] = []
    for time_ns in times:
        current_bps, is_up = by_time.get(time_ns, current_bps), up_by_time.get(time_ns, is_up)
        in_force_bps = current_bps if is_up else 0
        if not rate_bps or rate_bps[-1] != in_force_bps:
            t_ns.append(time_ns)
            rate_bps.append(in_force_bps)
    return LinkRate(tuple(t_ns), tuple(rate_bps))


def steps_of(manifest: AnyManifest, port: str, what: str) -> list[tuple[int, int]]:
    """From when after the traffic's start events gave a port another setting, and which.

    A `delay_ns` is without what noise adds to it.
    """
    return [
        (change.applied_ns, change.shown)
        for change in manifest.changes
        if (change.port, change.what) == (port, what)
        and change.applied_ns is not None
        and change.shown is not None
    ]


def down_spans_ns(manifest: AnyManifest, port: str) -> Sequence[tuple[int, int]]:
    """When a port's link was down: from and until, after the traffic's start.

    A link that did not come up again is down for as long as a run can last.
    """
    spans = []
    since: int | None = None
    for t_ns, is_up in steps_of(manifest, port, "up"):
        if not is_up and since is None:
            since = t_ns
        elif is_up and since is not None:
            spans.append((since, t_ns))
            since = None
    if since is not None:
        spans.append((since, MOST_SPAN_NS))
    return spans
