"""A run as the pictures see it: its manifest, summary and tables, and the colour of each class."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from outcast.analysis import store
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.records.summary import Summary
from outcast.view.figures.style import CLASS_COLOURS, GREY


@dataclass(frozen=True)
class DrawnRun:
    """An analysed run, read once for all pictures."""

    directory: RunDirectory
    manifest: Manifest
    summary: Summary

    def has(self, name: str) -> bool:
        """Whether the run has the table NAME.parquet."""
        return (self.directory.path / f"{name}.parquet").exists()

    def table(self, name: str) -> pl.LazyFrame:
        """NAME.parquet, read when it is needed."""
        return store.scan(self.directory.path / f"{name}.parquet")

    @property
    def hops(self) -> list[int]:
        """Every hop count, the fewest first."""
        return sorted({flow.hops for flow in self.manifest.flows})

    @property
    def packet_ns(self) -> int:
        """How long a full frame takes at the bottleneck."""
        rate_bps = self.manifest.bottlenecks[0].queue.rate_bps
        return 1514 * 8 * 10**9 // rate_bps if rate_bps else 100_000

    def colour(self, hops: int) -> str:
        """The class with the fewest hops is vermilion."""
        return CLASS_COLOURS[self.hops.index(hops) % len(CLASS_COLOURS)]

    def port_label(self, port: str) -> str:
        """An input port with the classes that enter by it."""
        hops = sorted({flow.hops for flow in self.manifest.flows if flow.ingress == port})
        classes = ", ".join(f"{count}-hop" for count in hops)
        return f"{port} ({classes})" if classes else port

    def port_colour(self, port: str) -> str:
        """The colour of the class with the fewest hops that enters by the port."""
        hops = [flow.hops for flow in self.manifest.flows if flow.ingress == port]
        return self.colour(min(hops)) if hops else GREY
