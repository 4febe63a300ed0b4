"""The packets whose fate differs between the passing and the failing runs of a network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import polars as pl

_MOST_PACKETS = 10
_TELLING_P = 0.05
_KEY = ["flow", "seq", "payload", "nth"]
_Key = tuple[int, int, int, int]


@dataclass(frozen=True)
class Telling:
    """A packet whose fate differs between runs that pass and runs that fail.

    `dropped_of_passing` and `dropped_of_failing` count the runs in which it was dropped.

    Attributes:
        seq: its first sequence number, counted from the flow's first.
        payload: bytes of payload.
        nth: which packet of this flow, sequence number and length it is at its port, from 0; a
            later one is sent again.
        p: Fisher's exact test of both, two-sided, times the number of packets that were dropped in
            any run (Bonferroni).
    """

    flow: int
    seq: int
    payload: int
    nth: int
    dropped_of_passing: int
    dropped_of_failing: int
    p: float


@dataclass(repr=False)
class Flaky:
    """A network under several seeds: those of runs that pass, and those of runs that fail."""

    passing: list[int] = field(default_factory=list)
    failing: list[int] = field(default_factory=list)
    _dropped: dict[bool, Counter[_Key]] = field(
        default_factory=lambda: {True: Counter(), False: Counter()}
    )

    def add(self, seed: int, passes: bool, packets: pl.DataFrame | None) -> None:
        """Takes a run's table of packets; None if no packet was sent."""
        (self.passing if passes else self.failing).append(seed)
        if packets is None:
            return
        # From the first packet on, modulo 2**32: in some seeds the numbers begin again at 0.
        seq = pl.col("seq").cast(pl.Int64)
        first = seq.first().over("flow", "egress")
        numbered = packets.with_columns(seq=(seq - first) % (1 << 32)).with_columns(
            nth=pl.int_range(pl.len()).over(["flow", "egress", "seq", "payload"])
        )
        dropped = numbered.filter(pl.col("verdict") == "dropped").select(_KEY)
        self._dropped[passes].update(dropped.unique().rows())

    @property
    def telling(self) -> list[Telling]:
        """The packets whose drops part failing seeds from passing ones; at most ten."""
        keys = {*self._dropped[True], *self._dropped[False]}
        found = [self._compared(key, len(keys)) for key in keys]
        found = [packet for packet in found if packet.p < _TELLING_P]
        found.sort(key=lambda packet: (packet.p, packet.flow, packet.seq, packet.nth))
        return found[:_MOST_PACKETS]

    def _compared(self, key: _Key, count: int) -> Telling:
        from scipy.stats import fisher_exact

        passing, failing = self._dropped[True][key], self._dropped[False][key]
        counts = [(passing, len(self.passing) - passing), (failing, len(self.failing) - failing)]
        p = min(1.0, float(fisher_exact(np.array(counts)).pvalue) * count)
        return Telling(*key, dropped_of_passing=passing, dropped_of_failing=failing, p=p)

    def __repr__(self) -> str:
        lines = [f"{len(self.passing)} of {len(self.passing) + len(self.failing)} seeds pass"]
        if self.failing and self.passing:
            lines.append(f"failing seeds: {', '.join(map(str, self.failing))}")
            lines += [
                f"flow {packet.flow}, seq {packet.seq} ({packet.payload} B, number {packet.nth}): "
                f"dropped in {packet.dropped_of_failing} of {len(self.failing)} that fail and "
                f"{packet.dropped_of_passing} of {len(self.passing)} that pass, p = {packet.p:.2g}"
                for packet in self.telling
            ] or ["no packet's drop tells them apart; more seeds may"]
        return "\n".join(lines)
