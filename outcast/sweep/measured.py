"""The time and disk that runs took on this machine, and estimates for other runs.

`$XDG_CACHE_HOME/outcast/measured.jsonl` has a line of JSON for each run that was made here.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from outcast.experiment import Experiment
from outcast.records.run_directory import RunDirectory

_NEAREST = 5
_FAR = math.log(4)
"""A distance from here on is far: four times the flows, or four times the traffic."""
_MOST_LINES = 2000
_WITH_TRAFFIC = ("traffic", "analysis")
"""The phases whose time grows with the traffic; that of the others grows with the network."""


@dataclass(frozen=True)
class Size:
    """What decides how long a run takes.

    Attributes:
        flows: the number of flows.
        bits: what the bottleneck can carry in the experiment's duration.
    """

    engine: Literal["realtime", "virtual"]
    flows: int
    bits: float
    duration_s: float

    def distance(self, other: Size) -> float:
        """0 for equal sizes. A factor of e in the flows, or in the bits, counts as 1."""
        return abs(math.log(self.flows / other.flows)) + abs(math.log(self.bits / other.bits))


@dataclass(frozen=True)
class Measurement:
    """What one run took.

    Attributes:
        traffic_s: seconds that grow with the traffic.
        other_s: all other seconds.
        captures: what happened to the captures, as in `outcast.sweep.task.Captures`.
    """

    size: Size
    traffic_s: float
    other_s: float
    disk_bytes: int
    captures: str


@dataclass(frozen=True)
class Estimate:
    """An estimate of the time and disk that a run needs.

    Attributes:
        runs: the number of measured runs behind the estimate.
        far: whether even the nearest of these runs is further away than `_FAR`.
    """

    wall_s: float
    disk_bytes: float
    runs: int
    far: bool


def size_of(experiment: Experiment, engine: Literal["realtime", "virtual"], flows: int) -> Size:
    """The size of a run, from its experiment alone."""
    duration_s = experiment.duration_ns / 1e9
    bits = duration_s * experiment.links.rate_bps
    return Size(engine, max(1, flows), bits, duration_s)


def default_file() -> Path:
    """The file with this user's measurements."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "outcast" / "measured.jsonl"


def measure(
    directory: RunDirectory, experiment: Experiment, wall_s: float, disk_bytes: int, captures: str
) -> Measurement:
    """A finished run's measurement; `wall_s` is the time of its whole process."""
    manifest = directory.read_manifest()
    traffic_s = min(wall_s, sum(manifest.wall_s.get(phase, 0.0) for phase in _WITH_TRAFFIC))
    size = size_of(experiment, manifest.engine, len(manifest.flows))
    return Measurement(size, traffic_s, wall_s - traffic_s, disk_bytes, captures)


def of_single_run(directory: RunDirectory, experiment: Experiment) -> Measurement:
    """The measurement of a run of `outcast run`, without its figures, which a sweep lacks."""
    wall_s = sum(directory.read_manifest().wall_s.values())
    disk_bytes = sum(
        path.stat().st_size
        for path in directory.path.rglob("*")
        if path.is_file() and path.suffix not in (".png", ".html")
    )
    return measure(directory, experiment, wall_s, disk_bytes, "keep")


def note(measurement: Measurement, file: Path) -> None:
    """Adds a line to the file. If that fails, estimates simply stay as they are."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(measurement)) + "\n")
    except OSError:
        return


def read_measurements(file: Path) -> list[Measurement]:
    """The newest measurements in the file. Skips lines that cannot be read."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()[-_MOST_LINES:]
    except OSError:
        return []
    measurements = []
    for line in lines:
        try:
            fields = json.loads(line)
            measurements.append(Measurement(**{**fields, "size": Size(**fields["size"])}))
        except (ValueError, TypeError, KeyError):
            continue
    return measurements


def estimate(size: Size, captures: str, known: Sequence[Measurement]) -> Estimate | None:
    """An estimate from the nearest runs of the same engine; None if there are none.

    Of runs at the same distance, newer ones count first. Whatever grows with the traffic is scaled
    by it. If no run treated its captures in the same way, the disk is estimated from other runs.
    """
    alike = [run for run in reversed(known) if run.size.engine == size.engine]
    if not alike:
        return None
    nearest = sorted(alike, key=lambda run: size.distance(run.size))[:_NEAREST]
    wall_s = median(
        run.other_s
        + (
            size.duration_s
            if size.engine == "realtime"
            else run.traffic_s * size.bits / run.size.bits
        )
        for run in nearest
    )
    stored = [run for run in alike if run.captures == captures] or alike
    stored = sorted(stored, key=lambda run: size.distance(run.size))[:_NEAREST]
    disk_bytes = median(run.disk_bytes * size.bits / run.size.bits for run in stored)
    far = size.distance(nearest[0].size) > _FAR
    return Estimate(wall_s, disk_bytes, len(nearest), far)
