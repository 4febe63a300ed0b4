"""A run's results, read once for all parts of its report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from outcast.analysis import store
from outcast.errors import InputError
from outcast.records.run_directory import Manifest, RunDirectory
from outcast.records.summary import Summary
from outcast.view.terminal.tables import read_summary


@dataclass(frozen=True)
class RunTables:
    """An analysed run: its records, and its tables as they are asked for."""

    directory: RunDirectory
    manifest: Manifest
    summary: Summary

    def table(self, name: str) -> pl.DataFrame | None:
        """A table of the analysis, None where the run has none of that name.

        Raises InputError where it cannot be read.
        """
        path = self.directory.path / f"{name}.parquet"
        return store.read(path) if path.exists() else None

    def _required(self, name: str) -> pl.DataFrame:
        frame = self.table(name)
        if frame is None:
            path = self.directory.path
            raise InputError(f"{path}: no {name}.parquet; `outcast analyze {path}` writes it")
        return frame

    @cached_property
    def packets(self) -> pl.DataFrame:
        return self._required("packets")

    @cached_property
    def queue(self) -> pl.DataFrame:
        return self._required("queue")

    @cached_property
    def blackouts(self) -> pl.DataFrame:
        return self._required("blackouts")

    @cached_property
    def throughput(self) -> pl.DataFrame:
        return self._required("throughput")

    @cached_property
    def flows(self) -> pl.DataFrame:
        return self._required("flows")

    @property
    def hops(self) -> list[int]:
        return sorted({flow.hops for flow in self.manifest.flows})

    def port_label(self, port: str) -> str:
        """The port's name and the classes of the flows that come in by it."""
        hops = sorted({flow.hops for flow in self.manifest.flows if flow.ingress == port})
        classes = ", ".join(f"{count}-hop" for count in hops)
        return f"{port} ({classes})" if classes else port


def read(directory: RunDirectory) -> RunTables:
    """Raises InputError where the folder holds no analysed run."""
    return RunTables(directory, directory.read_manifest(), read_summary(directory))
