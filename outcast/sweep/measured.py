"""The time and disk that runs took on this machine, and estimates for other runs.

`$XDG_CACHE_HOME/outcast/measured.jsonl` has a line of JSON for each run that was made here. A plain
model of a run's time and disk scales what the nearest of these runs took. Where there are none of
the same engine, the model is all there is.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from outcast import files
from outcast.experiment import Experiment
from outcast.plan.model import Plan
from outcast.records.run_directory import RunDirectory
from outcast.sweep.task import RUN_BYTES

_NEAREST = 5
_FAR = math.log(4)
"""A distance beyond this is far: four times the flows, the traffic or the network."""
_MOST_LINES = 2000
_WITH_TRAFFIC = ("traffic", "analysis")
"""The phases whose time grows with the traffic; that of the others grows with the network."""

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
    """What decides how long a run takes.

    Attributes:
        flows: the number of flows.
        bits: what the bottleneck can carry in the experiment's duration.
        ports: the ports of all switches, and the hosts.
        hops: the links on a flow's path, on average.
        captured: how many captures are taken.
    """

    engine: Literal["realtime", "virtual"]
    flows: _Count
    bits: _Positive
    duration_s: _Seconds
    ports: _Count
    hops: _Positive
    captured: _Count

    def distance(self, other: Size) -> float:
        """0 for equal sizes. A factor of e in flows, bits, ports or captures counts as 1 each."""
        ratios = (
            self.flows / other.flows,
            self.bits / other.bits,
            self.ports / other.ports,
            self.captured / other.captured,
        )
        return sum(abs(math.log(ratio)) for ratio in ratios)

    @property
    def modelled_other_s(self) -> float:
        """The model's seconds that grow with the network and its captures."""
        of_captures_s = CAPTURE_S[self.engine] * self.captured
        return START_S[self.engine] + PORT_S[self.engine] * self.ports + of_captures_s

    @property
    def modelled_traffic_s(self) -> float:
        """The model's seconds that grow with the traffic, without the time of real traffic."""
        return HOP_BIT_S[self.engine] * self.bits * self.hops

    @property
    def real_s(self) -> float:
        """The seconds that pass by the wall clock whatever the machine does."""
        return self.duration_s if self.engine == "realtime" else 0.0


@dataclass(frozen=True)
class Measurement:
    """What one run took.

    Attributes:
        traffic_s: seconds that grow with the traffic.
        other_s: all other seconds.
        captures: what happened to the captures, as in `outcast.sweep.task.Captures`.
    """

    size: Size
    traffic_s: _Seconds
    other_s: _Seconds
    disk_bytes: Annotated[int, Field(ge=0, le=10**18)]
    captures: str


@dataclass(frozen=True)
class Estimate:
    """An estimate of the time and disk that a run needs.

    Attributes:
        runs: the number of measured runs behind the estimate; 0 where the model is all there is.
        far: whether all of these runs are further away than `_FAR`.
    """

    wall_s: float
    disk_bytes: float
    runs: int
    far: bool


@dataclass(frozen=True)
class Forecast:
    """An estimate of the time and disk that several runs need.

    Attributes:
        wall_s: the time for all runs, with the given number of runs at a time.
        each_s: the time for one run, on average.
        disk_bytes: the disk that all results need.
        known: the number of measured runs behind the estimate of each. If it is 0, the model gave
            at least one.
        far: whether the measured runs were much smaller or larger, so that the estimate is rough.
    """

    wall_s: float
    each_s: float
    disk_bytes: float
    known: int
    far: bool


def size_of(experiment: Experiment, engine: Literal["realtime", "virtual"], plan: Plan) -> Size:
    """The size of a run, before it is made."""
    duration_s = experiment.duration_ns / 1e9
    link = plan.links.get(plan.ends[plan.bottleneck.egress])
    rate_bps = experiment.links.rate_bps if link is None else link.rate_bps
    return Size(
        engine,
        flows=max(1, len(plan.flows)),
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


def measure(
    directory: RunDirectory, size: Size, wall_s: float, disk_bytes: int, captures: str
) -> Measurement:
    """A finished run's measurement; `wall_s` is the time of its whole process."""
    phases = directory.read_manifest().wall_s
    traffic_s = min(wall_s, sum(phases.get(phase, 0.0) for phase in _WITH_TRAFFIC))
    return Measurement(size, traffic_s, wall_s - traffic_s, disk_bytes, captures)


def of_single_run(directory: RunDirectory, experiment: Experiment) -> Measurement:
    """The measurement of a run of `outcast run`, without its figures, which a sweep lacks."""
    manifest = directory.read_manifest()
    size = size_of(experiment, manifest.engine, directory.read_plan())
    disk_bytes = sum(
        path.stat().st_size
        for path in directory.path.rglob("*")
        if path.is_file() and path.suffix not in (".png", ".html")
    )
    return measure(directory, size, sum(manifest.wall_s.values()), disk_bytes, "keep")


def note(measurement: Measurement, file: Path) -> None:
    """Adds a line to the file. If that fails, estimates simply stay as they are."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(measurement)) + "\n")
    except OSError:
        return


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


def estimate(size: Size, captures: str, known: Sequence[Measurement]) -> Estimate:
    """An estimate from the nearest runs of the same engine, or from the model without any.

    Of runs at the same distance, newer ones count first. Far runs count only if there are no near
    ones. The model says how much more or less than each of them this run takes. If no run treated
    its captures in the same way, the disk is estimated from other runs.
    """
    alike = [run for run in reversed(known) if run.size.engine == size.engine]
    near = [run for run in alike if size.distance(run.size) <= _FAR]
    nearest = sorted(near or alike, key=lambda run: size.distance(run.size))[:_NEAREST]
    alike_stored = [[run for run in runs if run.captures == captures] for runs in (near, alike)]
    stored = next(filter(None, [*alike_stored, near]), alike)
    stored = sorted(stored, key=lambda run: size.distance(run.size))[:_NEAREST]
    if not nearest:
        wall_s = size.modelled_other_s + size.modelled_traffic_s + size.real_s
        return Estimate(wall_s, BASE_BYTES + BIT_BYTES[captures] * size.bits, 0, far=False)
    return Estimate(
        wall_s=median(_scaled_s(run, size) for run in nearest),
        disk_bytes=median(run.disk_bytes * size.bits / run.size.bits for run in stored),
        runs=len(nearest),
        far=not near,
    )


def _scaled_s(run: Measurement, size: Size) -> float:
    """The seconds of a run of this size, from what another run took."""
    other_s = run.other_s * size.modelled_other_s / run.size.modelled_other_s
    hop_bits = size.hops * size.bits / (run.size.hops * run.size.bits)
    traffic_s = max(0.0, run.traffic_s - run.size.real_s) * hop_bits
    return other_s + traffic_s + size.real_s


def forecast(
    sizes: Sequence[Size], captures: str, jobs: int, known: Sequence[Measurement]
) -> Forecast:
    """Estimates the time and disk of runs, with `jobs` virtual runs at a time.

    Realtime runs are made one by one.
    """
    counted = Counter(sizes)
    each = {size: estimate(size, captures, known) for size in counted}
    alone_s = shared_s = disk_bytes = 0.0
    for size, count in counted.items():
        wall_s = each[size].wall_s * count
        alone_s, shared_s = (
            (alone_s + wall_s, shared_s) if size.real_s else (alone_s, shared_s + wall_s)
        )
        disk_bytes += each[size].disk_bytes * count
    return Forecast(
        wall_s=alone_s + shared_s / max(1, min(jobs, len(sizes))),
        each_s=(alone_s + shared_s) / max(1, len(sizes)),
        disk_bytes=disk_bytes,
        known=min((one.runs for one in each.values()), default=0),
        far=any(one.far for one in each.values()),
    )
