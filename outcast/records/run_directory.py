"""The run directory: what a run wrote. It holds all that its analysis needs, on any machine.

```
config.yaml         the experiment, resolved
plan.json           what was planned: the network, captures and flows (outcast.plan.stored)
manifest.json       this module's Manifest: what ran, on what, with which settings in effect
captures/           <port>.<in|out>.pcap, nanosecond stamps
counters.json       this module's Counters: tc, nstat and tcpdump, before and after
flows/              iperf's own logs, and the sockets as the kernel showed them; the schedule of
                    generated flows and what became of each, a JSON line a flow
programs/           each program's files, and what its executions wrote
samples/            sockets and queues over time, as the kernel's messages (outcast.records.samples)
blackout.json       the ON periods of a synthetic blackout
rates.json          the rates that traces gave to links, as they were read back
whatif.json         what came of interventions (outcast.records.interventions)
fate.json           from when on an outcome was decided (outcast.records.interventions)
trace/              events of the guest's kernel, and tables of them (outcast.records.trace)
log.txt             the run's progress
sources/            copies of the user's files that the run was made from, for the record only
*.parquet           what the analysis computed
summary.json, *.png, report.html
```

Stages read what the stage before wrote here, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, Field, model_validator

from outcast import handed_in
from outcast.errors import InputError, how_ended
from outcast.experiment.engine import EngineName
from outcast.experiment.programs import MOST_EXECUTIONS
from outcast.experiment.queues.base import Drops
from outcast.experiment.wire import Framing
from outcast.files import sha256, write_text
from outcast.plan import grouping, stored
from outcast.plan.grouping import Groups
from outcast.plan.model import Plan
from outcast.records.effective import COUNTED, AppliedChange
from outcast.records.interventions import Decision, Interventions, Lost, WhatIf
from outcast.records.probes import ProbeRecord
from outcast.records.trace import (
    EVENTS_FILE,
    FOLDER,
    FORMATS_FILE,
    SYMBOLS_FILE,
    TRACED_FILE,
    Formats,
    Traced,
)
from outcast.units import MOST_SPAN_NS

_Model = TypeVar("_Model", bound=BaseModel)

MOST_TIME_NS = 1 << 62
"""The latest time stamp of a capture, in the year 2116."""
MOST_HOPS = 10_000
MOST_COUNT = 1 << 53
"""The most packets or bytes, because a float distinguishes all whole numbers up to here."""

_Port = Annotated[int, Field(ge=0, le=65535)]
_TimeNs = Annotated[int, Field(ge=0, le=MOST_TIME_NS)]
_SpanNs = Annotated[int, Field(ge=0, le=MOST_SPAN_NS)]
_Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
_FlowNumber = Annotated[int, Field(ge=0, lt=1 << 31)]
_Name = Annotated[str, Field(min_length=1, max_length=255)]
_Address = Annotated[str, AfterValidator(lambda text: str(ip_address(text)))]


class SubflowRecord(handed_in.Record):
    """One more TCP connection of a flow with Multipath TCP, between the same hosts."""

    sport: _Port
    dport: _Port
    src_ip: _Address | None = Field(
        default=None, description="of a further interface of the sender; null for the flow's own"
    )


class FlowRecord(handed_in.Record):
    """One flow that was started: its sender and receiver, and its ports at the bottleneck."""

    flow: _FlowNumber
    group: _FlowNumber
    src: _Name
    src_ip: _Address
    sport: _Port
    dst: _Name
    dst_ip: _Address
    dport: _Port
    hops: int | None = Field(
        ge=1,
        le=MOST_HOPS,
        description="its class, the number of links on a shortest path; its own path may be "
        "longer. Null in joined captures, which do not tell",
    )
    path: list[_Name] = Field(
        max_length=MOST_HOPS, description="names of the nodes on its path, the sender first"
    )
    return_path: list[_Name] = Field(
        default_factory=list,
        max_length=MOST_HOPS,
        description="the path of its acknowledgements, the receiver first",
    )
    ingress: _Name | None = Field(description="the bottleneck's port that the flow enters by")
    start_ns: _SpanNs = Field(description="planned start after the traffic's start")
    duration_ns: _SpanNs | None
    size_bytes: _Count | None
    congestion_control: str | None = Field(
        description="null if the flow is not TCP; `unknown` in joined captures"
    )
    subflows: list[SubflowRecord] = Field(
        default_factory=list,
        description="further connections of Multipath TCP, besides the flow's own",
    )
    name: _Name | None = Field(
        default=None,
        description="what the configuration calls its group, or its program; null without a name",
    )
    protocol: Literal["tcp", "udp"] = "tcp"
    of_program: bool = Field(
        default=False,
        description="whether a program sent it, so that only the captures tell of it",
    )
    carries_data: bool = Field(
        default=True,
        description="false for a direction of a program's connection with less than a tenth of "
        "the other one's payload, as acknowledgements and requests",
    )

    @property
    def connections(self) -> list[tuple[str, int, str, int]]:
        """Addresses and ports of each of its connections, its own first."""
        own = [(self.src_ip, self.sport, self.dst_ip, self.dport)]
        return own + [
            (sub.src_ip or self.src_ip, sub.sport, self.dst_ip, sub.dport) for sub in self.subflows
        ]


class PeerRecord(handed_in.Record):
    """A host that a program talks to, and the paths between the two hosts."""

    host: _Name
    ip: _Address
    hops: int = Field(ge=1, le=MOST_HOPS, description="links on a shortest path")
    path: list[_Name] = Field(max_length=MOST_HOPS, description="nodes from the program's host")
    return_path: list[_Name] = Field(max_length=MOST_HOPS)


class ExecutionRecord(handed_in.Record):
    """One execution of a program."""

    number: int = Field(ge=0, le=MOST_EXECUTIONS)
    t_start_ns: _TimeNs = Field(description="epoch time just before it was started")
    t_end_ns: _TimeNs = Field(description="epoch time at which it had ended")
    status: int = Field(
        description="its exit status; negative for the signal that ended it, or by which the run "
        "ended a client that was late"
    )
    ended_by: Literal["itself", "run", "limit"] = Field(
        description="`run`: a server at the end of the run, or a client that took too long; "
        "`limit`: its own limit of time"
    )
    output_bytes: _Count = Field(description="written to standard output and standard error")
    kept_bytes: _Count = Field(description="of these, so many are in the run directory")
    fault: str | None = Field(
        default=None, max_length=300, description="where it crashed, in the kernel's words"
    )

    @property
    def crash(self) -> str | None:
        """How a signal that was not ours ended it, in one line; None if none did."""
        if self.status >= 0 or self.ended_by != "itself":
            return None
        return how_ended(self.status).strip() + (f": {self.fault}" if self.fault else "")


class ControlRecord(handed_in.Record):
    """A program's TCP socket that had another congestion control than its host's."""

    host: _Name
    port: _Port
    peer_port: _Port
    congestion_control: str


class ProgramRecord(handed_in.Record):
    """One program of the configuration, and every execution of it."""

    name: _Name
    host: _Name
    ip: _Address
    command: list[str]
    server: bool
    port: _Port | None = Field(description="where a server listens, if `ready` names it")
    repeat: int = Field(ge=1, le=MOST_EXECUTIONS, description="executions asked for")
    peers: list[PeerRecord]
    executions: list[ExecutionRecord] = Field(max_length=MOST_EXECUTIONS)

    @property
    def failures(self) -> int:
        """Executions that ended by themselves with another status than 0, or took too long."""
        if self.server:
            return 0
        return sum(
            execution.status != 0 or execution.ended_by != "itself" for execution in self.executions
        )


class QueueRecord(handed_in.Record):
    """The bottleneck's queue, read back from the kernel."""

    kind: str
    rate_bps: int | None = Field(gt=0, le=MOST_COUNT)
    limit_bytes: _Count | None
    limit_packets: _Count | None
    delay_ns: _SpanNs = Field(default=0, description="between a packet's arrival and its queueing")
    jitter_ns: _SpanNs | None = Field(
        default=None,
        description="by how much that delay varies, up and down; null where it was not recorded",
    )
    drops: Drops = Field(
        default="at_limit",
        description="which packets it drops: arrivals that find it full, other arrivals too, or "
        "also packets that it had queued",
    )
    frame_bytes: int = Field(
        default=1514,
        gt=0,
        le=1 << 16,
        description="the largest frame of its link, without the checksum",
    )
    overhead_bytes: int = Field(
        default=0,
        ge=0,
        le=1 << 8,
        description="what takes time on the link with every frame besides its bytes",
    )
    least_bytes: int = Field(
        default=0, ge=0, le=1 << 8, description="the least that a frame takes, overhead included"
    )

    @property
    def framing(self) -> Framing:
        """How many bytes' time a frame takes on the link."""
        return Framing(self.overhead_bytes, self.least_bytes)


class BottleneckRecord(handed_in.Record):
    """One output port whose queue is studied, and the ports that feed it."""

    switch: _Name | None = Field(description="null in joined captures, which do not tell")
    egress: _Name
    ingress: list[_Name]
    destinations: list[_Address] = Field(description="addresses reached through the egress port")
    queue: QueueRecord
    routed: bool = Field(default=False, description="a router, which lowers the TTL")


class CaptureRecord(handed_in.Record):
    """One tcpdump and its three closing counters (tcpdump(1), "packets captured")."""

    port: _Name
    direction: Literal["in", "out"]
    file: handed_in.FileName
    captured: _Count
    received_by_filter: _Count
    dropped_by_kernel: _Count


class BlackoutRecord(handed_in.Record):
    """The work of the synthetic blackout's switch; blackout.json has every ON period."""

    port: _Name
    packets: _Count = Field(description="packets that came in from the link")
    dropped: _Count
    periods: _Count


class TrafficRecord(handed_in.Record):
    """When flows ran, on the captures' clock."""

    t_start_ns: _TimeNs = Field(description="epoch time of the planned start of flows with start 0")
    t_end_ns: _TimeNs = Field(description="epoch time at which the last flow had ended")
    duration_ns: int = Field(gt=0, le=MOST_SPAN_NS, description="the experiment's duration")

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> TrafficRecord:
        if self.t_end_ns <= self.t_start_ns:
            raise ValueError("t_end_ns: is not after t_start_ns")
        return self


class GuestRecord(handed_in.Record):
    """The root and the code that the virtual engine's guest ran from."""

    root: str = Field(description="the key of its root; `host` for the machine's own programs")
    lock: str | None = Field(default=None, description="SHA-256 of what is pinned for that root")
    code: str | None = Field(default=None, description="the key of our code in the guest")


CAPTURES = "captures"
"""The manifest's `source` in a folder of joined captures (outcast.records.captures)."""


def require_once(names: Mapping[str, Sequence[object]]) -> None:
    """Raises ValueError where a part of a manifest names something twice."""
    for key, values in names.items():
        if len(set(values)) < len(values):
            raise ValueError(f"{key}: one is there twice")


class Manifest(handed_in.Versioned):
    """The record of what ran. `requested` and `effective` map settings to values."""

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
    guest: GuestRecord | None = Field(default=None, description="null in real time")
    versions: dict[str, str]
    requested: dict[str, Any]
    effective: dict[str, Any]
    traffic: TrafficRecord
    flows: list[FlowRecord]
    generated_hosts: list[str] = Field(
        default_factory=list,
        description="hosts that send generated flows, which their counters include",
    )
    programs: list[ProgramRecord] = Field(default_factory=list)
    program_controls: list[ControlRecord] = Field(
        default_factory=list,
        description="congestion controls that programs chose, as far as samples of their sockets "
        "saw them",
    )
    probes: list[ProbeRecord] = Field(default_factory=list)
    blackout: BlackoutRecord | None = None
    bottlenecks: list[BottleneckRecord]
    captures: list[CaptureRecord]
    interventions: Interventions | None = Field(
        default=None, description="what was changed in a run that was made again"
    )
    changes: list[AppliedChange] = Field(
        default_factory=list, description="what `events` changed, and when"
    )
    warnings: list[str] = Field(
        default_factory=list,
        description="why the run's timing is doubtful, one line for each reason with its remedy",
    )
    distrust: list[str] = Field(
        default_factory=list,
        description="checks after the traffic that failed: the run is kept, and not trusted",
    )
    wall_s: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict, description="seconds that each phase took by the host's clock"
    )
    files: dict[handed_in.FileName, str] = Field(
        default_factory=dict, description="SHA-256 of every file"
    )
    dropped: dict[handed_in.FileName, str] = Field(
        default_factory=dict, description="SHA-256 of captures removed after the analysis"
    )

    @property
    def planned_flows(self) -> list[FlowRecord]:
        """The flows that the run started itself; programs' flows are known from captures only."""
        return [record for record in self.flows if not record.of_program]

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

    @model_validator(mode="after")
    def _names_are_given_once(self) -> Manifest:
        names: dict[str, list[object]] = {
            "flows": [record.flow for record in self.flows],
            "programs": [record.name for record in self.programs],
            "probes": [record.probe for record in self.probes],
            "bottlenecks": [record.egress for record in self.bottlenecks],
            "captures": [(record.port, record.direction) for record in self.captures],
            **{
                f"bottlenecks: {record.egress}: ingress": [*record.ingress]
                for record in self.bottlenecks
            },
        }
        require_once(names)
        if any(record.hops is None for record in self.flows):
            raise ValueError("flows: hops: allowed is a number of links")
        for key in COUNTED:
            value = self.effective.get(key)
            if value is None:  # for example the minimum RTO, if the kernel does not tell its tick
                continue
            if not isinstance(value, int) or not 0 <= value <= MOST_SPAN_NS:
                raise ValueError(f"effective: {key}: allowed is a whole number, 0 or above")
        return self


MOST_STEPS = 1_000_000
"""The most steps of all rates of a link over time in a run."""


class PortRates(handed_in.Record):
    """The rates that a trace gave a port, as they were set and read back."""

    port: _Name
    trace: handed_in.FileName = Field(description="the run's copy of the trace's file")
    t_ns: list[Annotated[int, Field(ge=0, le=MOST_SPAN_NS)]] = Field(
        max_length=MOST_STEPS,
        description="from when each rate was in force, after the traffic's start",
    )
    rate_bps: list[Annotated[int, Field(gt=0, le=MOST_COUNT)]] = Field(max_length=MOST_STEPS)
    latest_ns: _SpanNs = Field(description="the longest time by which a rate was set late")
    skipped: _Count = Field(description="rates that were over before they could be set")

    @model_validator(mode="after")
    def _has_a_rate_for_each_time(self) -> PortRates:
        if len(self.t_ns) != len(self.rate_bps):
            raise ValueError("rate_bps: has another length than t_ns")
        if any(later <= earlier for earlier, later in pairwise(self.t_ns)):
            raise ValueError("t_ns: does not ascend")
        return self


class Rates(handed_in.Versioned):
    """rates.json: what the traces of links set."""

    ports: list[PortRates] = Field(default_factory=list)


def _growth(counter: str, before: object, after: object) -> int:
    """Returns a counter's growth. Raises InputError if it is no counter or went back."""
    if isinstance(before, int) and isinstance(after, int) and 0 <= before <= after <= MOST_COUNT:
        return after - before
    raise InputError(f"counters.json: {counter}: {before!r} before the flows, {after!r} after")


class PortCounters(handed_in.Record):
    """`tc -s qdisc show` of a port's shaper before the flows, at the duration's end and after them.

    Flows that have not sent all go on after the duration, until their buffers are empty.
    """

    before: dict[str, Any]
    at_end: dict[str, Any] | None = None
    after: dict[str, Any]

    def delta(self, counter: str) -> int:
        """Returns the growth of a counter of the root qdisc (`drops`, `packets`, `bytes`)."""
        return _growth(counter, self.before.get(counter), self.after.get(counter))

    def own_delta(self, counter: str) -> int:
        """Returns the growth of a counter of the queue below the root, as `class_1_drops`."""
        before, after = (counted.get("own", {}) for counted in (self.before, self.after))
        return _growth(f"own: {counter}", before.get(counter), after.get(counter))


class HostCounters(handed_in.Record):
    """nstat(8)'s absolute counters of a host's network namespace; see `PortCounters`."""

    before: dict[str, int]
    at_end: dict[str, int] | None = None
    after: dict[str, int]

    def delta(self, counter: str) -> int:
        """Returns the growth of a counter, as `TcpRetransSegs`. An absent counter is 0."""
        return _growth(counter, self.before.get(counter, 0), self.after.get(counter, 0))

    def within(self, counter: str) -> int:
        """The growth of a counter within the duration; until the flows' end if that was before."""
        last = self.after if self.at_end is None else self.at_end
        return _growth(counter, self.before.get(counter, 0), last.get(counter, 0))


Cause = Literal["queue", "delay", "link", "failure", "interface", "blackout", "host"]
"""The causes by which packets of one direction of a link are lost:

- `queue`: the sending port's queue dropped them.
- `delay`: they were more than the link's delay holds at a time.
- `link`: the link lost them by its own setting, after the port had sent them.
- `failure`: the link was down.
- `interface`: the sending interface dropped them (ip-link(8), `tx_dropped` and `tx_errors`).
- `blackout`: a synthetic blackout's switch dropped them at the far end.
- `host`: they reached the receiving host, and its sockets had no room for them.
"""


class LinkTotals(handed_in.Record):
    """The packets that an interface had sent up to some time. Bytes include Ethernet headers."""

    packets: _Count
    bytes: _Count
    lost: dict[Cause, _Count] | None = Field(
        default=None,
        description="packets lost up to then by cause, of the causes that the port itself counts; "
        "null in runs made before outcast recorded them",
    )


class LinkRecord(handed_in.Record):
    """One direction of a link: the flows planned to cross it, and the kernel's counters."""

    port: str = Field(description="the interface that sends")
    node: _Name
    neighbour: _Name = Field(description="the node that it sends to")
    rate_bps: int = Field(gt=0, le=MOST_COUNT)
    overhead_bytes: int = Field(
        default=0, ge=0, le=1 << 8, description="what takes time with every frame besides its bytes"
    )
    flows: list[_FlowNumber] = Field(
        description="numbers of the flows whose data crosses it by plan"
    )
    acknowledged: list[_FlowNumber] = Field(
        description="numbers of the flows whose acknowledgements cross it by plan"
    )
    other: bool = Field(description="whether other traffic may cross it")
    before: LinkTotals
    at_start: LinkTotals | None = None
    at_end: LinkTotals | None = None
    after: LinkTotals

    @property
    def within(self) -> LinkRecord:
        """The record within the duration; until the flows' end if that was before."""
        ends = {"before": self.at_start or self.before, "after": self.at_end or self.after}
        return self.model_copy(update=ends)

    @property
    def packets(self) -> int:
        """Packets sent while flows ran."""
        return _growth(self.port, self.before.packets, self.after.packets)

    @property
    def bytes(self) -> int:
        """Bytes sent while flows ran."""
        return _growth(self.port, self.before.bytes, self.after.bytes)

    @property
    def lost(self) -> dict[Cause, int] | None:
        """Packets lost while flows ran, by the causes that the port counts; None if unrecorded."""
        before, after = self.before.lost, self.after.lost
        if before is None or after is None:
            return None
        return {
            cause: _growth(f"{self.port}: lost, {cause}", before.get(cause, 0), count)
            for cause, count in after.items()
        }


class Counters(handed_in.Record):
    """counters.json: switch ports by name, hosts by name, the captures' counters, and links."""

    ports: dict[str, PortCounters]
    hosts: dict[str, HostCounters]
    captures: list[CaptureRecord]
    links: list[LinkRecord] = Field(default_factory=list)


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
    """The paths of one run."""

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
    lost = Place("lost.json")
    """The packets that links are to lose, and then have lost; it is there while a run goes on."""
    whatif = Place("whatif.json")
    decision = Place("fate.json")
    log = Place("log.txt")

    def read_plan(self) -> Plan:
        """Reads the stored plan. Raises InputError if there is none or it cannot be read."""
        try:
            return stored.read_plan(self.plan)
        except FileNotFoundError:
            raise InputError(
                f"{self.path}: no {self.plan.name}; runs made before outcast stored it have none"
            ) from None

    def write_plan(self, plan: Plan) -> None:
        write_text(self.plan, stored.dumps(plan))

    def read_manifest(self) -> Manifest:
        """Reads the manifest.

        Raises InputError if there is none or it cannot be read. Raises it too if the folder holds
        what no run leaves, for example a link or a FIFO.
        """
        # A folder without a manifest is no run. It is not searched, because it may be large.
        if os.path.lexists(self.manifest):
            handed_in.require_plain(self.path)
        return read_record(self.manifest, Manifest)

    def read_counters(self) -> Counters:
        """Reads the counters. Raises InputError if there are none or they cannot be read."""
        return read_record(self.counters, Counters)

    def read_trace_formats(self) -> Formats:
        """Reads how the recorded events are laid out. Raises InputError if it cannot be read."""
        return read_record(self.trace_formats, Formats, "the run recorded no events")

    def write_trace_formats(self, formats: Formats) -> None:
        write_text(self.trace_formats, formats.model_dump_json(indent=1) + "\n")

    def read_traced(self) -> Traced | None:
        """Reads which tables of events there are; None without any. Raises InputError."""
        return read_record(self.traced, Traced) if self.traced.exists() else None

    def write_traced(self, traced: Traced) -> None:
        write_text(self.traced, traced.model_dump_json(indent=1) + "\n")

    def read_whatif(self) -> WhatIf | None:
        """Reads what came of interventions; None without any. Raises InputError."""
        return read_record(self.whatif, WhatIf) if self.whatif.exists() else None

    def write_whatif(self, record: WhatIf) -> None:
        write_text(self.whatif, record.model_dump_json(indent=1) + "\n")

    def read_lost(self) -> Lost:
        """Reads what links are to lose; nothing where nobody asks. Raises InputError."""
        return read_record(self.lost, Lost) if self.lost.exists() else Lost()

    def write_lost(self, record: Lost) -> None:
        write_text(self.lost, record.model_dump_json(indent=1) + "\n")

    def read_decision(self) -> Decision | None:
        """Reads when an outcome was decided; None if nobody asked. Raises InputError."""
        return read_record(self.decision, Decision) if self.decision.exists() else None

    def write_decision(self, record: Decision) -> None:
        write_text(self.decision, record.model_dump_json(indent=1) + "\n")

    def read_rates(self) -> Rates:
        """Reads what traces set; nothing where there were none. Raises InputError."""
        return read_record(self.rates, Rates) if self.rates.exists() else Rates()

    def write_rates(self, rates: Rates) -> None:
        write_text(self.rates, rates.model_dump_json() + "\n")

    def write_manifest(self, manifest: Manifest) -> None:
        write_text(self.manifest, manifest.model_dump_json(indent=1) + "\n")

    def write_counters(self, counters: Counters) -> None:
        write_text(self.counters, counters.model_dump_json(indent=1) + "\n")

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of every file but the manifest, by its name in the folder."""
        return {
            str(path.relative_to(self.path)): sha256(path)
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and path != self.manifest
        }

    def seal(self, **changes: Any) -> Manifest:
        """Writes the manifest anew with these changes and with the hashes of all other files."""
        files = self.hashes()
        manifest = self.read_manifest().model_copy(update={**changes, "files": files})
        self.write_manifest(manifest)
        return manifest


def read_record(
    path: Path, model: type[_Model], hint: str = "a folder that `outcast run` wrote is needed"
) -> _Model:
    """Reads a record of a run.

    Raises InputError if it cannot be read. If it is missing, the error has the hint.
    """
    try:
        return handed_in.read_model(path, model)
    except FileNotFoundError:
        raise InputError(f"{path.parent}: no {path.name}; {hint}") from None
