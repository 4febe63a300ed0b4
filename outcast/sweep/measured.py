"""The time and disk that runs took on this machine, and estimates for other runs.

`$XDG_CACHE_HOME/outcast/measured.jsonl` has a line of JSON for each run that was made here. A plain
model says a run's time and disk. The newest of these runs say how many times that this machine
takes. Where there are none of the same engine, the model is all there is.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

from pydantic import Field, TypeAdapter

from outcast import files
from outcast.experiment import Experiment
from outcast.experiment.engine import EngineName, properties
from outcast.plan.model import Plan
from outcast.records.run_directory import RunDirectory
from outcast.sweep.task import RUN_BYTES

_MOST_LINES = 2000
_NEWEST = 20
"""So many of the newest runs of an engine say how fast this machine is."""

START_S = {"virtual": 2.5, "realtime": 3.0}
PORT_S = {"virtual": 0.013, "realtime": 0.03}
CAPTURE_S = {"virtual": 0.04, "realtime": 0.04}
HOP_BIT_S = {"virtual": 0.4e-9, "realtime": 0.2e-9}
"""The model's seconds: of every run, of each port and host, of each capture, and for each bit on
each link of its path. Rounded from runs on two quiet cores; `benchmarks/estimates.py` says how far
it is off."""
TIMES_MOST, TIMES_LEAST = 4.0, 0.5
"""By how much the model can be wrong: most runs take so many times what it says, or fewer."""
BIT_BYTES = {"keep": 0.03, "compress": 0.015, "drop": 0.005}
"""The model's bytes on the disk for each bit through the bottleneck."""
BASE_BYTES = 400e3
"""The model's bytes of every run besides."""
USUAL_HOPS = 4.0
"""Links on a path, where there are no flows."""

_Count = Annotated[int, Field(ge=1, le=10**9)]
_Positive = Annotated[float, Field(ge=1e-3, le=1e18)]
_Seconds = Annotated[float, Field(ge=0.0, le=1e8)]
"""Bounds beyond every run. What is beyond them was damaged, and a logarithm or quotient of it could
fail."""


@dataclass(frozen=True)
class Size:
    """The facts that decide how long a run takes.

    Attributes:
        bits: what the bottleneck can carry in the experiment's duration.
        ports: the ports of all switches, and the hosts.
        hops: the links on a flow's path, on average.
    """

    engine: EngineName
    bits: _Positive
    duration_s: _Seconds
    ports: _Count
    hops: _Positive
    captured: _Count

    @property
    def modelled_s(self) -> float:
        """The model's seconds, without the time of real traffic."""
        return (
            START_S[self.engine]
            + PORT_S[self.engine] * self.ports
            + CAPTURE_S[self.engine] * self.captured
            + HOP_BIT_S[self.engine] * self.bits * self.hops
        )

    @property
    def exclusive(self) -> bool:
        """Whether it needs the machine for itself, because realtime runs disturb each other."""
        return not properties(self.engine).virtual_clock

    @property
    def real_s(self) -> float:
        """The seconds that pass by the wall clock whatever the machine does."""
        return self.duration_s if self.exclusive else 0.0


@dataclass(frozen=True)
class Measurement:
    """The cost of one run.

    `wall_s` is the seconds of its whole process.
    """

    size: Size
    wall_s: _Seconds
    disk_bytes: Annotated[int, Field(ge=0, le=10**18)]
    captures: str


@dataclass(frozen=True)
class Forecast:
    """An estimate of the time and disk that runs need.

    Attributes:
        wall_s: the time for all runs, with the given number of runs at a time.
        known: the number of measured runs behind the estimate of each. If it is 0, the model gave
            at least one.
    """

    wall_s: float
    each_s: float
    disk_bytes: float
    known: int


def size_of(experiment: Experiment, engine: EngineName, plan: Plan) -> Size:
    """The size of a run, before it is made."""
    duration_s = experiment.duration_ns / 1e9
    link = plan.links.get(plan.ends[plan.bottleneck.egress])
    rate_bps = experiment.links.rate_bps if link is None else link.rate_bps
    return Size(
        engine,
        bits=duration_s * rate_bps,
        duration_s=duration_s,
        ports=len(plan.ends),
        captured=max(1, len(plan.capture_ports)),
        hops=fmean(len(flow.path) - 1 for flow in plan.flows) if plan.flows else USUAL_HOPS,
    )


def memory_bytes(size: Size) -> int:
    """The most memory that a run takes, from runs of fat-trees of 8 to 20 pods."""
    of_network = size.ports * 2**18
    return max(RUN_BYTES, 400 * 2**20 + of_network + size.captured * 2**21)


def default_file() -> Path:
    """The file with this user's measurements."""
    return files.cache_folder() / "measured.jsonl"


def of_single_run(directory: RunDirectory, experiment: Experiment) -> Measurement:
    """The measurement of a run of `outcast run`, without its figures, which a sweep lacks."""
    manifest = directory.read_manifest()
    size = size_of(experiment, manifest.engine, directory.read_plan())
    disk_bytes = sum(
        path.stat().st_size
        for path in directory.path.rglob("*")
        if path.is_file() and path.suffix not in (".png", ".html")
    )
    return Measurement(size, sum(manifest.wall_s.values()), disk_bytes, "keep")


def note(measurement: Measurement, file: Path) -> None:
    """Adds a line to the file. If that fails, estimates simply stay as they are."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(measurement)) + "\n")
    except OSError:
        return


def recorder(
    sizes: Mapping[str, Size], captures: str, file: Path | None
) -> Callable[[str, float, int], None]:
    """What a scheduler calls with each result: it adds the measurement to a file, if there is one.

    `sizes` has the size of each run by its name.
    """

    def record(name: str, wall_s: float, disk_bytes: int) -> None:
        if file is not None:
            note(Measurement(sizes[name], wall_s, disk_bytes, captures), file)

    return record


def read_measurements(file: Path) -> list[Measurement]:
    """The newest measurements in the file. Skips lines that cannot be read, or cannot be true."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[-_MOST_LINES:]
    except OSError:
        return []
    of_line = TypeAdapter(Measurement)
    measurements = []
    for line in lines:
        # A ValidationError is a ValueError.
        with contextlib.suppress(ValueError):
            measurements.append(of_line.validate_json(line, strict=True))
    return measurements


def estimate(size: Size, captures: str, known: Sequence[Measurement]) -> Forecast:
    """An estimate for a run, from the newest runs of the same engine, or by the model without any.

    The model says how much more or less than each of them this run takes. If no run treated its
    captures in the same way, the disk is estimated from other runs.
    """
    alike = [run for run in known if run.size.engine == size.engine][-_NEWEST:]
    if not alike:
        disk_bytes = BASE_BYTES + BIT_BYTES[captures] * size.bits
        wall_s = size.modelled_s + size.real_s
        return Forecast(wall_s, wall_s, disk_bytes, 0)
    times = median(max(0.0, run.wall_s - run.size.real_s) / run.size.modelled_s for run in alike)
    stored = [run for run in alike if run.captures == captures] or alike
    wall_s = times * size.modelled_s + size.real_s
    disk_bytes = size.bits * median(run.disk_bytes / run.size.bits for run in stored)
    return Forecast(wall_s, wall_s, disk_bytes, len(alike))


def forecast(
    sizes: Sequence[Size], captures: str, jobs: int, known: Sequence[Measurement]
) -> Forecast:
    """Estimates the time and disk of runs, with `jobs` virtual runs at a time.

    Realtime runs are made one by one.
    """
    counted = Counter(sizes)
    each = {size: estimate(size, captures, known) for size in counted}
    alone_s, shared_s = (
        sum(each[size].wall_s * count for size, count in counted.items() if size.exclusive is alone)
        for alone in (True, False)
    )
    return Forecast(
        wall_s=alone_s + shared_s / max(1, min(jobs, len(sizes))),
        each_s=(alone_s + shared_s) / max(1, len(sizes)),
        disk_bytes=sum(each[size].disk_bytes * count for size, count in counted.items()),
        known=min((of_size.known for of_size in each.values()), default=0),
    )
