"""The networks that the fixture `outcast` gives to a test."""

from __future__ import annotations

import copy
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from outcast.api import experiments, making
from outcast.api.runs import Run
from outcast.errors import (
    ConfigError,
    NoAnalysisError,
    NothingSentError,
    OutcastError,
    without_folder,
)
from outcast.experiment import reader
from outcast.experiment.reader import Source
from outcast.plan.programs import LET_FAIL

if TYPE_CHECKING:
    from outcast.uses import Comparison


class UntrustedRunWarning(UserWarning):
    """A run's captures and counters contradict each other, so no test should build on it."""


class ProgramWarning(UserWarning):
    """A program was executed less often than requested, or something that it wrote was not kept."""


class Networks:
    """Runs networks for one test.

    Attributes:
        beside: the test's file; relative paths of a configuration are relative to its folder.
        seed: the seed of all runs; None leaves it to the configuration.
        kept: folders of the runs so far, finished or failed, in order.
    """

    def __init__(self, folder: Path, beside: Path, seed: int | None) -> None:
        self._folder = folder
        self.beside = beside
        self.seed = seed
        self.kept: list[Path] = []

    def run(self, **keys: Any) -> Run:
        """Runs the network that these keys describe, as in a configuration file.

        A client that fails is no error here: its program's `status` is not 0. Figures and the
        report are left out. Only the programs' results are known if no packet was sent, or if
        outcast-test is installed, which has no analysis.

        Raises:
            ConfigError: the configuration is refused.
            FeatureMissingError: no engine can run it here.
            OutcastError: the run failed.
        """
        __tracebackhide__ = True
        return self._run(lambda: self._source(keys), self.seed)

    def load(self, path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> Run:
        """Runs a configuration file, whose path is relative to the test's folder.

        Args:
            path: the file.
            overrides: other values for some keys, with dots between levels.

        Raises as `run`.
        """
        __tracebackhide__ = True
        file = self.beside.parent / path
        return self._run(lambda: reader.read(file, overrides or {}), self.seed)

    def flaky(
        self, passes: Callable[[Run], bool], seeds: int | Sequence[int] = 20, **keys: Any
    ) -> Flaky:
        """Runs a network under several seeds, and looks for the packet that decides.

        If the test fails, the run of the first failing seed is its evidence.

        Args:
            passes: returns for a run whether it passes.
            seeds: seeds to try, or the number of them, which begin at 1.
            keys: the network, as for `run`.

        Returns which seeds pass, and the packets whose fates differ between passing and failing.

        Raises as `run`.
        """
        __tracebackhide__ = True
        chosen = range(1, seeds + 1) if isinstance(seeds, int) else seeds
        if len(chosen) < 2:
            raise ConfigError(f"seeds: {seeds!r}; allowed are at least 2")
        found = Flaky()
        for seed in chosen:
            run = self._run(lambda: self._source(keys), seed)
            packets = run.table("packets", whole=True) if "packets" in run.tables else None
            found.add(seed, bool(passes(run)), packets)
            if found.failing != [seed]:
                shutil.rmtree(self.kept.pop(), ignore_errors=True)
        return found

    def compare(
        self, a: Mapping[str, Any], b: Mapping[str, Any], *, seeds: int = 30, **options: Any
    ) -> Comparison:
        """Runs two configurations over the same seeds; see `outcast.compare` and its options."""
        from outcast import compare

        sources = (_adapted(self._source(keys), self.seed) for keys in (a, b))
        both = [experiments.checked(source).experiment for source in sources]
        target = self._folder / "compare"
        return compare(*both, seeds=seeds, directory=target, progress=False, **options)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _source(self, keys: Mapping[str, Any]) -> Source:
        folder = self.beside.parent
        tree = reader.plain(keys, str(self.beside))
        return Source({"name": "test"} | tree, str(self.beside), folder=folder, files_from=folder)

    def _run(self, source: Callable[[], Source], seed: int | None) -> Run:
        __tracebackhide__ = True
        target = self._folder / str(len(self.kept) + 1)
        try:
            planned = experiments.checked(_adapted(source(), seed))
            making.execute(planned, target, progress=False, draw=False)
        except OutcastError as error:
            failed = target.with_name(f"{target.name}.failed")
            self.kept += [failed] if failed.exists() else []
            if isinstance(error, NothingSentError | NoAnalysisError):
                # A test may check only the programs, whose results are known.
                return Run(failed)
            # The folder moves if the test fails.
            error.args = (without_folder(str(error)), *error.args[1:])
            raise error.with_traceback(None) from None
        self.kept.append(target)
        run = Run(target)
        if not run.trusted:
            warnings.warn("; ".join(run.reasons), UntrustedRunWarning, stacklevel=3)
        for line in run.manifest.warnings:
            # The programs' status has failures that a test allows.
            if line.startswith("program ") and LET_FAIL not in line:
                warnings.warn(line, ProgramWarning, stacklevel=3)
        return run


def _adapted(source: Source, seed: int | None) -> Source:
    """The configuration with another seed; by default clients may fail, and packets repeat."""
    tree: dict[str, Any] = {"engine": "virtual"} | copy.deepcopy(dict(source.tree))
    if seed is not None:
        tree["seed"] = seed
    programs = tree.get("programs")
    for program in programs if isinstance(programs, list) else ():
        if isinstance(program, dict) and "ready" not in program:
            program.setdefault("allow_failure", True)
    return replace(source, tree=tree)


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
