"""The manifest of joined captures: the folder that `outcast join ... -o DIR` writes.

The folder has the tables, summary and pictures that captures give. It has no config.yaml, plan.json
or counters.json, because the configuration is unknown and no counter was read.

```
manifest.json       this module's CapturesManifest
captures/           copies of the captures, if someone put them there
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
from outcast.records.flows import (
    BottleneckRecord,
    FlowRecord,
    ProbeRecord,
    ProgramRecord,
    TrafficRecord,
)
from outcast.records.interventions import Interventions
from outcast.records.run_directory import CAPTURES, BlackoutRecord, Manifest, RunDirectory


class CapturedFile(handed_in.Record):
    """A file that was joined."""

    path: str
    """Where it was, as an absolute path."""
    bytes: int = 0
    sha256: str = ""


class CapturedPort(handed_in.Record):
    port: str
    direction: Literal["in", "out", "any"]
    """The packets in it by the user's words; `any` leaves it to the join."""
    file: CapturedFile


class JoinRequest(handed_in.Record):
    """The user's request of the join, so that it can be repeated."""

    captures: list[CapturedPort]
    destinations: list[str] = Field(default_factory=list)
    routed: bool = False
    one_clock: bool = False
    max_sojourn_ns: int
    rate_bps: int | None = None
    limit_bytes: int | None = None


class ClockEstimate(handed_in.Record):
    """How far a capture's clock is from the common one, which is that of the reference capture.

    Attributes:
        offset_ns: was added to its stamps, at its first packet; 0 if nothing contradicted them.
        low_ns, high_ns: the bounds of the offset by the packets; None without a bound.
        drift_ppm: how slow it runs, in millionths; 0 if nothing contradicted it.
        drift_low_ppm, drift_high_ppm: its bounds; None without a bound.
    """

    port: str
    offset_ns: int
    low_ns: int | None
    high_ns: int | None
    drift_ppm: float
    drift_low_ppm: float | None
    drift_high_ppm: float | None


class QueueEstimate(handed_in.Record):
    """An output's rate and limit, estimated from its packets.

    Attributes:
        rate_bps: bits of frames a second while packets wait; None if none ever waited.
        limit_unit: what the limit counts: `bytes` or `packets`; None if nothing was dropped.
        limit_at_least, limit_below: at_least <= limit < below; `below` None if no bound shows.
        limit_explains: the share of packets that this limit explains; 1 is all, 0.5 nothing.
    """

    port: str
    rate_bps: float | None = None
    rate_low_bps: float | None = None
    rate_high_bps: float | None = None
    limit_unit: str | None = None
    limit_at_least: int | None = None
    limit_below: int | None = None
    limit_explains: float | None = None


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
    """Every flow of TCP or UDP that carries data; a direction of acknowledgements or requests does
    not. Mice are left out."""
    bottlenecks: list[BottleneckRecord]
    """Every output, the one with the most drops first."""
    clocks: list[ClockEstimate] = Field(default_factory=list)
    estimates: list[QueueEstimate] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    bin_ns: int
    files: dict[handed_in.FileName, str] = Field(default_factory=dict)
    """SHA-256 of every file in the folder."""

    tells_senders: ClassVar[bool] = False
    has_all_outputs: ClassVar[bool] = True
    # Only runs have these. The analysis and the views read them without a difference.
    engine: ClassVar[EngineName | None] = None
    interventions: ClassVar[Interventions | None] = None
    distrust: ClassVar[list[str]] = []
    programs: ClassVar[list[ProgramRecord]] = []
    probes: ClassVar[list[ProbeRecord]] = []
    changes: ClassVar[list[AppliedChange]] = []
    generated_hosts: ClassVar[list[str]] = []
    blackout: ClassVar[BlackoutRecord | None] = None
    requested: ClassVar[dict[str, Any]] = {}
    effective: ClassVar[dict[str, Any]] = {}
    wall_s: ClassVar[dict[str, float]] = {}
    captures: ClassVar[list[CaptureRecord]] = []
    unplanned_flows: ClassVar[list[FlowRecord]] = []

    @property
    def planned_flows(self) -> list[FlowRecord]:
        return self.flows

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
    """The place of a capture: in the folder's `captures/`, or where it was when joined.

    With `hashed` its whole content is compared, otherwise only the size.

    Raises InputError if it is in neither place, or has another content than it had.
    """
    origin = Path(file.path)
    places = [directory.captures / origin.name, origin]
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
            f"{there[0]}: has another content than when it was joined; join it again, or put the "
            f"old one into {directory.captures}/"
        )
    raise InputError(f"{origin}: is not there any more; put it back, or into {directory.captures}/")
