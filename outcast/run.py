"""The run directory: what a run wrote, described well enough to be analysed on any machine.

```
config.yaml         the experiment, resolved
manifest.json       this module's Manifest: what ran, on what, with which settings in effect
captures/           <port>.<in|out>.pcap, nanosecond stamps
counters.json       this module's Counters: tc, nstat and tcpdump, before and after
flows/              iperf's own logs, and the sockets as ss(8) showed them; the schedule of
                    generated flows and what became of each, a JSON line a flow
samples/            sockets and queues over time, as the kernel's messages (outcast.samples)
blackout.json       the ON periods of a synthetic blackout
log.txt             the run's progress
*.parquet           what the analysis computed
summary.json, *.png, report.html
```

Stages read what the stage before wrote here, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outcast import files
from outcast.errors import InputError

_Model = TypeVar("_Model", bound=BaseModel)

FORMAT = 1
"""The manifest's version; raised when a reader of the old one would misread the new one."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SubflowRecord(_Record):
    """One more TCP connection of a flow with Multipath TCP, between the same hosts."""

    sport: int
    dport: int


class FlowRecord(_Record):
    """One flow as it was started: who, where to, and over which ports of the bottleneck."""

    flow: int
    group: int
    src: str
    src_ip: str
    sport: int
    dst: str
    dst_ip: str
    dport: int
    hops: int = Field(description="its class: links on a shortest path; its own may be longer")
    path: list[str] = Field(description="node names of the path that it takes, sender first")
    return_path: list[str] = Field(
        default_factory=list, description="the same of its acknowledgements, receiver first"
    )
    ingress: str | None = Field(description="the bottleneck's port that the flow enters by")
    start_ns: int = Field(description="planned start after the traffic's start")
    duration_ns: int | None
    size_bytes: int | None
    congestion_control: str
    subflows: list[SubflowRecord] = Field(
        default_factory=list, description="of Multipath TCP, besides the flow's own ports"
    )


class QueueRecord(_Record):
    """The bottleneck's queue as it was read back from the kernel."""

    kind: str
    rate_bps: int | None
    limit_bytes: int | None
    limit_packets: int | None
    delay_ns: int = Field(default=0, description="between a packet's arrival and its queueing")
    drops: Literal["at_limit", "on_arrival", "later"] = Field(
        default="at_limit",
        description="when it drops: arrivals that find it full, other arrivals too, or also "
        "packets that it had taken",
    )


class BottleneckRecord(_Record):
    """One output port whose queue is studied, and the ports that feed it."""

    switch: str
    egress: str
    ingress: list[str]
    destinations: list[str] = Field(description="IPv4 addresses reached through the egress port")
    queue: QueueRecord


class CaptureRecord(_Record):
    """One tcpdump and its three closing counters (tcpdump(1), "packets captured")."""

    port: str
    direction: Literal["in", "out"]
    file: str
    captured: int
    received_by_filter: int
    dropped_by_kernel: int


class BlackoutRecord(_Record):
    """What the synthetic blackout's switch did; blackout.json has every ON period."""

    port: str
    packets: int = Field(description="that came in from the link")
    dropped: int
    periods: int


class TrafficRecord(_Record):
    """When flows ran, on the captures' clock."""

    t_start_ns: int = Field(description="epoch time at which flows with start 0 were to begin")
    t_end_ns: int = Field(description="epoch time at which the last flow had ended")
    duration_ns: int = Field(description="the experiment's duration")


class Manifest(_Record):
    """What ran. `requested` and `effective` are flat dictionaries, setting to value."""

    format: int = FORMAT
    outcast: str
    name: str
    engine: Literal["realtime", "virtual"]
    datapath: Literal["netdev", "system"]
    seed: int
    kernel: dict[str, Any]
    versions: dict[str, str]
    requested: dict[str, Any]
    effective: dict[str, Any]
    traffic: TrafficRecord
    flows: list[FlowRecord]
    generated_hosts: list[str] = Field(
        default_factory=list,
        description="that send generated flows, which the counters of a host then hold too",
    )
    blackout: BlackoutRecord | None = None
    bottlenecks: list[BottleneckRecord]
    captures: list[CaptureRecord]
    warnings: list[str] = Field(
        default_factory=list,
        description="what makes the run's timing doubtful, each in one line with its remedy",
    )
    wall_s: dict[str, float] = Field(
        default_factory=dict, description="phase to seconds by the host's clock"
    )
    files: dict[str, str] = Field(default_factory=dict, description="SHA-256 of every file")
    dropped: dict[str, str] = Field(
        default_factory=dict, description="SHA-256 of captures removed after the analysis"
    )


class PortCounters(_Record):
    """`tc -s qdisc show` of a port's root qdisc before and after the flows."""

    before: dict[str, Any]
    after: dict[str, Any]

    def delta(self, counter: str) -> int:
        """How much a counter of the root qdisc (`drops`, `packets`, `bytes`) grew."""
        return int(self.after[counter]) - int(self.before[counter])


class HostCounters(_Record):
    """nstat(8)'s absolute counters of a host's network namespace before and after the flows."""

    before: dict[str, int]
    after: dict[str, int]

    def delta(self, counter: str) -> int:
        """How much a counter (`TcpRetransSegs`, `TcpExtTCPTimeouts`) grew; absent means 0."""
        return self.after.get(counter, 0) - self.before.get(counter, 0)


class LinkTotals(_Record):
    """What an interface had sent at some time; bytes with Ethernet headers."""

    packets: int
    bytes: int


class LinkRecord(_Record):
    """One direction of a link: the flows planned to cross it, and the kernel's counters."""

    port: str = Field(description="the interface that sends")
    node: str
    neighbour: str = Field(description="the node that it sends to")
    rate_bps: int
    flows: list[int] = Field(description="whose data is to cross it")
    acknowledged: list[int] = Field(description="whose acknowledgements are to cross it")
    other: bool = Field(description="whether anything else may")
    before: LinkTotals
    after: LinkTotals

    @property
    def packets(self) -> int:
        """Packets sent while flows ran."""
        return self.after.packets - self.before.packets

    @property
    def bytes(self) -> int:
        """Bytes sent while flows ran."""
        return self.after.bytes - self.before.bytes


class Counters(_Record):
    """counters.json: switch ports by name, hosts by name, the captures' counters, and links."""

    ports: dict[str, PortCounters]
    hosts: dict[str, HostCounters]
    captures: list[CaptureRecord]
    links: list[LinkRecord] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def counters(self) -> Path:
        return self.path / "counters.json"

    @property
    def captures(self) -> Path:
        return self.path / "captures"

    @property
    def flows(self) -> Path:
        return self.path / "flows"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def blackout(self) -> Path:
        return self.path / "blackout.json"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    def read_manifest(self) -> Manifest:
        """The manifest. Raises InputError where there is none or it cannot be read."""
        return _read(self.manifest, Manifest)

    def read_counters(self) -> Counters:
        """The counters. Raises InputError where there are none or they cannot be read."""
        return _read(self.counters, Counters)

    def write_manifest(self, manifest: Manifest) -> None:
        write_text(self.manifest, manifest.model_dump_json(indent=1) + "\n")

    def write_counters(self, counters: Counters) -> None:
        write_text(self.counters, counters.model_dump_json(indent=1) + "\n")

    def seal(self, **changes: Any) -> Manifest:
        """Rewrites the manifest with `changes` and the hashes of all other files."""
        files = {
            str(path.relative_to(self.path)): sha256(path)
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and path != self.manifest
        }
        manifest = self.read_manifest().model_copy(update={**changes, "files": files})
        self.write_manifest(manifest)
        return manifest


def _read(path: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path.parent}: no {path.name}; a folder that `outcast run` wrote is needed"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(f"{path}: {where}: {first['msg']}") from None


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all. Raises OSError naming it where it cannot be written."""
    with files.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON with a stable order of keys, written whole or not at all."""
    write_text(path, json.dumps(value, indent=1, sort_keys=False) + "\n")


def sha256(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
