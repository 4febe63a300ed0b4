"""What runs took on this machine, and from that an estimate for others.

A line of JSON for each run that was made here, in `$XDG_CACHE_HOME/outcast/measured.jsonl`.
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
"""Four times the flows, or the traffic."""
_MOST_LINES = 2000
_WITH_TRAFFIC = ("traffic", "analysis")
"""The phases that grow with the traffic; the others grow with the network."""


@dataclass(frozen=True)
class Size:
    """What decides how long a run takes.

    Attributes:
        flows: their number.
        bits: that the bottleneck can carry in the experiment's duration.
    """

    engine: Literal["realtime", "virtual"]
    flows: int
    bits: float
    duration_s: float

    def distance(self, other: Size) -> float:
        """0 for equal ones; e-fold differences of flows and bits count alike."""
        return abs(math.log(self.flows / other.flows)) + abs(math.log(self.bits / other.bits))


@dataclass(frozen=True)
class Measurement:
    """One run: seconds that grow with its traffic, other seconds, and bytes on the disk."""

    size: Size
    traffic_s: float
    other_s: float
    disk_bytes: int
    captures: str


@dataclass(frozen=True)
class Estimate:
    """What a run is expected to take.

    Attributes:
        runs: from how many others that is taken.
        far: whether even the nearest of these differs in size by more than `_FAR` says.
    """

    wall_s: float
    disk_bytes: float
    runs: int
    far: bool


def size_of(experiment: Experiment, engine: Literal["realtime", "virtual"], flows: int) -> Size:
    """The size of a run before it is made."""
    duration_s = experiment.duration_ns / 1e9
    bits = duration_s * experiment.links.rate_bps
    return Size(engine, max(1, flows), bits, duration_s)


def default_file() -> Path:
    """Where this user's measurements stand."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "outcast" / "measured.jsonl"


def measure(
    directory: RunDirectory, experiment: Experiment, wall_s: float, disk_bytes: int, captures: str
) -> Measurement:
    """A finished run's measurement; `wall_s` is the whole process's."""
    manifest = directory.read_manifest()
    traffic_s = min(wall_s, sum(manifest.wall_s.get(phase, 0.0) for phase in _WITH_TRAFFIC))
    size = size_of(experiment, manifest.engine, len(manifest.flows))
    return Measurement(size, traffic_s, wall_s - traffic_s, disk_bytes, captures)


def of_single_run(directory: RunDirectory, experiment: Experiment) -> Measurement:
    """The measurement of what `outcast run` made, without its figures, which a sweep has not."""
    wall_s = sum(directory.read_manifest().wall_s.values())
    disk_bytes = sum(
        path.stat().st_size
        for path in directory.path.rglob("*")
        if path.is_file() and path.suffix not in (".png", ".html")
    )
    return measure(directory, experiment, wall_s, disk_bytes, "keep")


def note(measurement: Measurement, file: Path) -> None:
    """Adds a line; where that is not possible, estimates stay as they are."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(measurement)) + "\n")
    except OSError:
        return


def read_measurements(file: Path) -> list[Measurement]:
    """The newest measurements; lines that cannot be read are passed by."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()[-_MOST_LINES:]
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            told = json.loads(line)
            found.append(Measurement(**{**told, "size": Size(**told["size"])}))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def estimate(size: Size, captures: str, known: Sequence[Measurement]) -> Estimate | None:
    """From the runs of this engine that are nearest in size, newer ones first; None without any.

    What grows with the traffic is scaled by it. Where no run kept its captures in the same way,
    the disk is estimated from those that kept them otherwise.
    """
    alike = [each for each in reversed(known) if each.size.engine == size.engine]
    if not alike:
        return None
    nearest = sorted(alike, key=lambda each: size.distance(each.size))[:_NEAREST]
    wall_s = median(
        each.other_s
        + (
            size.duration_s
            if size.engine == "realtime"
            else each.traffic_s * size.bits / each.size.bits
        )
        for each in nearest
    )
    stored = [each for each in alike if each.captures == captures] or alike
    stored = sorted(stored, key=lambda each: size.distance(each.size))[:_NEAREST]
    disk_bytes = median(each.disk_bytes * size.bits / each.size.bits for each in stored)
    far = size.distance(nearest[0].size) > _FAR
    return Estimate(wall_s, disk_bytes, len(nearest), far)
