"""The run directory: what a run wrote. It holds all that its analysis needs, on any machine.

```
config.yaml         the experiment, resolved
plan.json           what was planned: the network, captures and flows (outcast.plan.stored)
manifest.json       this module's Manifest: what ran, on what, with which settings in effect
captures/           <port>.<in|out>.pcap, nanosecond stamps
counters.json       tc, nstat and tcpdump, before and after (outcast.records.counters)
flows/              iperf's own logs, and the sockets as the kernel showed them; the schedule of
                    generated flows and what became of each, a JSON line a flow
programs/           each program's files, and what its executions wrote
samples/            sockets and queues over time, as the kernel's messages (outcast.records.samples)
blackout.json       the ON periods of a synthetic blackout
rates.json          the rates that traces gave to links, as they were read back
whatif.json         what came of interventions (outcast.uses.whatif.compared)
fate.json           from when on an outcome was decided (outcast.uses.whatif.compared)
trace/              events of the guest's kernel, and tables of them (outcast.records.trace)
log.txt             the run's progress
sources/            copies of the user's files that the run was made from, for the record only
*.parquet           what the analysis computed
summary.json, *.png, report.html
```

Stages read what the stage before wrote here, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, Field

from outcast import handed_in
from outcast.errors import InputError
from outcast.experiment.engine import EngineName
from outcast.files import sha256, write_text
from outcast.plan import grouping, stored
from outcast.plan.grouping import Groups
from outcast.plan.model import Plan
from outcast.records.counters import CaptureRecord, Counters, Rates
from outcast.records.effective import AppliedChange
from outcast.records.flows import (
    BottleneckRecord,
    ControlRecord,
    FlowRecord,
    ProbeRecord,
    ProgramRecord,
    TrafficRecord,
)
from outcast.records.interventions import Interventions
from outcast.records.trace import (
    EVENTS_FILE,
    FOLDER,
    FORMATS_FILE,
    SYMBOLS_FILE,
    TRACED_FILE,
    Formats,
    Traced,
)

_Model = TypeVar("_Model", bound=BaseModel)


class BlackoutRecord(handed_in.Record):
    """The work of the synthetic blackout's switch; blackout.json has every ON period."""

    port: str
    packets: int
    """Packets that came in from the link."""
    dropped: int
    periods: int


class GuestRecord(handed_in.Record):
    """The root and the code that the virtual engine's guest ran from."""

    root: str
    """The key of its root; `host` for the machine's own programs."""
    lock: str | None = None
    """SHA-256 of what is pinned for that root."""
    code: str | None = None
    """The key of our code in the guest."""


CAPTURES = "captures"
"""The manifest's `source` in a folder of joined captures (outcast.records.captures)."""


class Manifest(handed_in.Versioned):
    """The record of what ran. `requested` and `effective` map settings to values."""

    tells_senders: ClassVar[bool] = True
    """Whether records describe the senders: their congestion control, counters and least RTO."""
    has_all_outputs: ClassVar[bool] = False
    """Whether `bottlenecks` are all outputs of one hop, and not those that were chosen."""

    format: int = 1

    @classmethod
    def require_format(cls, tree: Any) -> None:
        """Raises ValueError as every record does, and if the folder holds no run."""
        if isinstance(tree, dict) and tree.get("source") == CAPTURES:
            raise ValueError("this folder holds joined captures; allowed is a run")
        super().require_format(tree)

    outcast: str
    name: str
    engine: EngineName
    datapath: Literal["netdev", "system"]
    seed: int
    kernel: dict[str, Any]
    guest: GuestRecord | None = None
    """Null in real time."""
    versions: dict[str, str]
    requested: dict[str, Any]
    effective: dict[str, Any]
    traffic: TrafficRecord
    flows: list[FlowRecord]
    generated_hosts: list[str] = Field(default_factory=list)
    """Hosts that send generated flows, which their counters include."""
    programs: list[ProgramRecord] = Field(default_factory=list)
    program_controls: list[ControlRecord] = Field(default_factory=list)
    """Congestion controls that programs chose, as samples of their sockets saw them."""
    probes: list[ProbeRecord] = Field(default_factory=list)
    blackout: BlackoutRecord | None = None
    bottlenecks: list[BottleneckRecord]
    captures: list[CaptureRecord]
    interventions: Interventions | None = None
    """What was changed in a run that was made again."""
    changes: list[AppliedChange] = Field(default_factory=list)
    """What `events` changed, and when."""
    warnings: list[str] = Field(default_factory=list)
    """Why the run's timing is doubtful, one line for each reason with its remedy."""
    distrust: list[str] = Field(default_factory=list)
    """Checks after the traffic that failed. The run is kept, and `capture.trusted` is false."""
    wall_s: dict[str, float] = Field(default_factory=dict)
    """Seconds that each phase took by the host's clock."""
    files: dict[handed_in.FileName, str] = Field(default_factory=dict)
    """SHA-256 of every file."""
    dropped: dict[handed_in.FileName, str] = Field(default_factory=dict)
    """SHA-256 of captures removed after the analysis."""

    @property
    def planned_flows(self) -> list[FlowRecord]:
        """The flows that the run started itself; programs' flows are known from captures only."""
        return [record for record in self.flows if not record.of_program]

    @property
    def unplanned_flows(self) -> list[FlowRecord]:
        """The flows that programs sent, and that carry data."""
        return [record for record in self.flows if record.of_program and record.carries_data]

    @property
    def compared_flows(self) -> list[FlowRecord]:
        """The flows whose shares are compared: the planned ones, or else those of programs.

        Of the latter those that carry data, at the first bottleneck that has any.
        """
        if self.planned_flows:
            return self.planned_flows
        carrying = [record for record in self.flows if record.carries_data] or self.flows
        at_ports = (
            [
                record
                for record in carrying
                if record.ingress in port.ingress and record.dst_ip in port.destinations
            ]
            for port in self.bottlenecks
        )
        return next((flows for flows in at_ports if flows), [])

    @property
    def groups(self) -> Groups[FlowRecord]:
        """The flows of every group; see `grouping.every`."""
        return grouping.every(self.flows, self.compared_flows)


class HasPath(Protocol):
    """A folder that has Places."""

    @property
    def path(self) -> Path: ...


class Place:
    """A file or folder by its name; as an attribute of the folder that it is in, its path."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: HasPath, _kind: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class RunDirectory:
    path: Path

    config = Place("config.yaml")
    plan = Place("plan.json")
    manifest = Place("manifest.json")
    counters = Place("counters.json")
    sources = Place("sources")
    captures = Place("captures")
    flows = Place("flows")
    programs = Place("programs")
    samples = Place("samples")
    blackout = Place("blackout.json")
    rates = Place("rates.json")
    trace = Place(FOLDER)
    trace_events = Place(f"{FOLDER}/{EVENTS_FILE}")
    trace_formats = Place(f"{FOLDER}/{FORMATS_FILE}")
    trace_symbols = Place(f"{FOLDER}/{SYMBOLS_FILE}")
    traced = Place(f"{FOLDER}/{TRACED_FILE}")
    summary = Place("summary.json")
    whatif = Place("whatif.json")
    decision = Place("fate.json")
    log = Place("log.txt")

    def read_plan(self) -> Plan:
        """Reads the stored plan. Raises InputError if it is missing or cannot be read."""
        try:
            return stored.read_plan(self.plan)
        except FileNotFoundError:
            raise InputError(
                f"{self.path}: no {self.plan.name}; runs made before outcast stored it have none"
            ) from None

    def write_plan(self, plan: Plan) -> None:
        write_text(self.plan, stored.dumps(plan))

    def read_manifest(self) -> Manifest:
        return read_record(self.manifest, Manifest)

    def read_counters(self) -> Counters:
        return read_record(self.counters, Counters)

    def read_trace_formats(self) -> Formats:
        return read_record(self.trace_formats, Formats, "the run recorded no events")

    def read_traced(self) -> Traced | None:
        return read_record(self.traced, Traced) if self.traced.exists() else None

    def read_rates(self) -> Rates:
        return read_record(self.rates, Rates) if self.rates.exists() else Rates()

    def write_rates(self, rates: Rates) -> None:
        write_text(self.rates, rates.model_dump_json() + "\n")

    def write_manifest(self, manifest: handed_in.Versioned) -> None:
        write_record(self.manifest, manifest)

    def write_counters(self, counters: Counters) -> None:
        write_record(self.counters, counters)

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of every file but the manifest, by its name in the folder."""
        return {
            str(path.relative_to(self.path)): sha256(path)
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and path != self.manifest
        }

    def seal(self, **changes: Any) -> Manifest:
        """Writes the manifest again with these changes and with the hashes of all other files."""
        files = self.hashes()
        manifest = self.read_manifest().model_copy(update={**changes, "files": files})
        self.write_manifest(manifest)
        return manifest


def read_record(
    path: Path, model: type[_Model], hint: str = "a folder that `outcast run` wrote is needed"
) -> _Model:
    """Reads a record of a run.

    Raises InputError if it cannot be read. If it is missing, the error says what is there instead.
    """
    try:
        return handed_in.read_model(path, model)
    except FileNotFoundError:
        folder = path.parent
        found = f"no {path.name}; {hint}" if folder.exists() else "there is no such folder"
        if (folder / "sweep.yaml").exists():
            found = f"is a sweep; `outcast results {folder}` shows it"
        raise InputError(f"{folder}: {found}") from None


def write_record(path: Path, record: BaseModel) -> None:
    write_text(path, record.model_dump_json(indent=1) + "\n")
