"""The manifest of joined captures: the folder that `outcast join ... -o DIR` writes.

The folder has the tables, the summary and the pictures of a run that captures give. It
has no config.yaml, plan.json or counters.json, because the configuration is not known and no
counter was read.

```
manifest.json       this module's CapturesManifest
captures/           copies of the captures, if they were requested or put there
*.parquet, summary.json, *.png, report.html
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from outcast import handed_in
from outcast.errors import InputError
from outcast.experiment.engine import EngineName
from outcast.files import sha256
from outcast.plan import grouping
from outcast.plan.grouping import Groups
from outcast.records.counters import CaptureRecord
from outcast.records.effective import AppliedChange
from outcast.records.flows import BottleneckRecord, FlowRecord, ProgramRecord, TrafficRecord
from outcast.records.interventions import Interventions
from outcast.records.probes import ProbeRecord
from outcast.records.run_directory import CAPTURES, BlackoutRecord, Manifest, RunDirectory


class CapturedFile(handed_in.Record):
    """A file that was joined."""

    path: str
    """Where it was, as an absolute path."""
    bytes: int
    sha256: str
    copied_to: handed_in.FileName | None = None
    """Its copy in the folder; null if it was not copied."""


class CapturedPort(handed_in.Record):
    """The capture of a port."""

    port: str
    direction: Literal["in", "out", "any"]
    """What the user said that it holds; `any` leaves it to the join."""
    named: str
    """The file's name."""
    files: list[CapturedFile] = Field(min_length=1, max_length=1)


class JoinRequest(handed_in.Record):
    """The user's request of the join, so that it can be repeated."""

    captures: list[CapturedPort]
    destinations: list[str] = Field(default_factory=list)
    routed: bool = False
    one_clock: bool = False
    max_sojourn_ns: int
    rate_bps: int | None = None
    limit_bytes: int | None = None


class ClockRecord(handed_in.Record):
    """How far a capture's clock was from that of the reference."""

    port: str
    offset_ns: int
    """Added to its stamps, at its first packet."""
    low_ns: int | None
    """The bounds that the packets leave."""
    high_ns: int | None
    drift_ppm: float
    """By how much it runs slow."""
    drift_low_ppm: float | None
    drift_high_ppm: float | None


class RateRecord(handed_in.Record):
    """An output's rate and limit, as its packets show them."""

    port: str
    rate_bps: float | None
    rate_low_bps: float | None
    rate_high_bps: float | None
    limit_unit: str | None
    limit_at_least: int | None
    limit_below: int | None
    limit_explains: float | None


class CapturesManifest(handed_in.Versioned):
    """The captures that were joined, and what followed from it."""

    format: int = 1
    source: Literal["captures"] = "captures"
    outcast: str
    name: str
    request: JoinRequest
    traffic: TrafficRecord
    """From the first packet with payload to the last one."""
    flows: list[FlowRecord]
    """Every flow of TCP or UDP that carries data; the direction of its acknowledgements, or of its
    requests, is none."""
    bottlenecks: list[BottleneckRecord]
    """Every output, the one with the most drops first."""
    clocks: list[ClockRecord] = Field(default_factory=list)
    estimates: list[RateRecord] = Field(default_factory=list)
    refusals: list[str] = Field(default_factory=list)
    """Why the join cannot be believed; empty if it can."""
    warnings: list[str] = Field(default_factory=list)
    """What the join remarked."""
    bin_ns: int
    """The width of the bins over time."""
    files: dict[handed_in.FileName, str] = Field(default_factory=dict)
    """SHA-256 of every file in the folder."""

    tells_senders: ClassVar[bool] = False
    has_all_outputs: ClassVar[bool] = True
    # What only runs have. The analysis and the views ask for it without knowing which they read.
    engine: ClassVar[EngineName | None] = None
    interventions: ClassVar[Interventions | None] = None
    programs: ClassVar[list[ProgramRecord]] = []
    probes: ClassVar[list[ProbeRecord]] = []
    changes: ClassVar[list[AppliedChange]] = []
    generated_hosts: ClassVar[list[str]] = []
    blackout: ClassVar[BlackoutRecord | None] = None
    requested: ClassVar[dict[str, Any]] = {}
    effective: ClassVar[dict[str, Any]] = {}
    wall_s: ClassVar[dict[str, float]] = {}
    captures: ClassVar[list[CaptureRecord]] = []

    @property
    def distrust(self) -> list[str]:
        """Why the captures do not agree: the refusals."""
        return self.refusals

    @property
    def planned_flows(self) -> list[FlowRecord]:
        """All flows."""
        return self.flows

    @property
    def unplanned_flows(self) -> list[FlowRecord]:
        """The flows of which some may be control connections: all that are compared."""
        return self.compared_flows

    @property
    def compared_flows(self) -> list[FlowRecord]:
        """The flows whose shares are compared: those of the first output."""
        first = self.bottlenecks[0]
        return [flow for flow in self.flows if flow.dst_ip in first.destinations]

    @property
    def groups(self) -> Groups[FlowRecord]:
        """The flows of every group; see `grouping.every`."""
        return grouping.every(self.flows)


AnyManifest = Manifest | CapturesManifest
"""The manifest of a run, or of joined captures."""


def read_manifest(directory: RunDirectory) -> AnyManifest:
    """Reads the manifest of a run or of joined captures.

    Raises InputError as `RunDirectory.read_manifest`.
    """
    if not directory.manifest.exists():
        return directory.read_manifest()
    tree = handed_in.read_json(directory.manifest)
    if isinstance(tree, dict) and tree.get("source") == CAPTURES:
        return handed_in.as_model(directory.manifest, tree, CapturesManifest)
    return handed_in.as_model(directory.manifest, tree, Manifest)


def find(directory: RunDirectory, file: CapturedFile, *, hashed: bool = True) -> Path:
    """Returns where a capture is: in the folder's `captures/`, or where it was when joined.

    With `hashed` its whole content is compared, otherwise only the size.

    Raises InputError if it is in neither place, or has another content than it had.
    """
    origin = Path(file.path)
    places = [directory.captures / origin.name, origin]
    if file.copied_to is not None:
        places.insert(0, directory.path / file.copied_to)
    there = [place for place in places if place.is_file()]
    for place in there:
        try:
            if place.stat().st_size != file.bytes:
                continue
            if not hashed or sha256(place) == file.sha256:
                return place
        except OSError as error:
            raise InputError(f"{place}: cannot be read: {handed_in.reason(error)}") from None
    if there:
        raise InputError(
            f"{there[0]}: has another content than when it was joined; join it anew, or put the "
            f"old one into {directory.captures}/"
        )
    raise InputError(f"{origin}: is not there any more; put it back, or into {directory.captures}/")
