"""The whole experiment, and the sweep over its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator

from outcast.experiment.engine import (
    EngineChoice,
    EngineName,
    Guest,
    Kernel,
    candidates,
    properties,
)
from outcast.experiment.events import Event
from outcast.experiment.links import Links
from outcast.experiment.measure import MOST_PROBES, Analysis, Capture, Probe, Samples, Trace
from outcast.experiment.noise import PROFILES, Noise
from outcast.experiment.parts import (
    NAME_PATTERN,
    Addressing,
    Family,
    Part,
    TimeNs,
    described,
    optional,
)
from outcast.experiment.programs import Program
from outcast.experiment.queues import Queue
from outcast.experiment.topology import Routing, Shortest, Topology
from outcast.experiment.transport import Transport
from outcast.experiment.workloads import FlowGroup, Workload
from outcast.units import format_time

_OWN_KEYS = ("points", "order", "captures", "labels")
_FIXED = ("sweep", "repetitions")
"""Keys that cannot be swept, because all runs of a sweep share them."""


class Sweep(Part):
    """The runs of `outcast sweep`.

    Every other key here is a key of the configuration, with dots between levels, and has a list of
    values. All combinations are run.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"additionalProperties": {"type": ["array", "object"]}},
    )
    __pydantic_extra__: dict[str, list[JsonValue]] = Field(init=False)

    points: tuple[dict[str, JsonValue], ...] = described(
        "instead of all combinations: a list of points, each a mapping of key to value. If there "
        "are also lists of values, each point is combined with all of them",
        default=(),
    )
    order: Literal["given", "random"] = described(
        "the order in which runs start; random is drawn from the seed", default="given"
    )
    captures: Literal["keep", "compress", "drop"] = described(
        "what happens to a run's captures after its analysis", default="keep"
    )

    labels: dict[str, Annotated[str, Field(min_length=1, max_length=80)]] = described(
        "what tables, axes and legends call a swept key, as `{flows.1.hosts: rivals}`; if left "
        "out, the key",
        default={},
    )

    @property
    def lists(self) -> Mapping[str, list[JsonValue]]:
        return self.__pydantic_extra__

    @property
    def keys(self) -> list[str]:
        return [*self.lists, *sorted({key for point in self.points for key in point})]

    @model_validator(mode="before")
    @classmethod
    def _with_dots(cls, tree: Any) -> Any:
        """Reads `queue: {limit: [...]}` as `queue.limit: [...]`."""
        if not isinstance(tree, Mapping):
            return tree
        flat = {key: value for key, value in tree.items() if key in _OWN_KEYS}
        for key, value in tree.items():
            for dotted, inner in _flattened(str(key), value) if key not in _OWN_KEYS else ():
                if dotted in flat:
                    raise ValueError(f"{dotted} is given twice")
                if not isinstance(inner, list) or not inner:
                    raise ValueError(f"{dotted}: allowed is a list of one value or more")
                flat[dotted] = inner
        return flat

    def _require(self) -> None:
        if both := [key for key in self.keys if self.keys.count(key) > 1]:
            raise ValueError(
                f"{min(both)} is in points and also has a list of values; allowed is one of the two"
            )
        for key in self.keys:
            if key.split(".")[0] in _FIXED:
                raise ValueError(f"{key} cannot be swept")
        for key, label in self.labels.items():
            if key not in self.keys:
                swept = ", ".join(self.keys) or "none"
                raise ValueError(f"labels: {key} is not swept; swept are {swept}")
            if not label.isprintable():
                raise ValueError(f"labels: {key}: allowed are printable characters")
        if any(not point for point in self.points):
            raise ValueError("points: one is empty; allowed is a mapping of keys to values")


def _flattened(key: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for inner_key, inner_value in value.items():
            yield from _flattened(f"{key}.{inner_key}", inner_value)
    else:
        yield key, value


MOST_BINS = 1_000_000
"""The most points that a curve over time can have; each flow has such a curve."""


class BottleneckPort(Part):
    """The port whose queue is studied, in place of the one that is found."""

    port: str = described("a switch's output port that flows leave by, as `s2-eth1`")


class QueueException(Part):
    """Another queue at some switch ports. If several exceptions name a port, the last counts."""

    at: str | list[str] = described(
        "a layer as `edge`, which means all ports of its switches; `bottleneck`; a port as "
        "`e0_0-eth1`; or a list of ports"
    )
    queue: Queue = described("as the key `queue` above")

    def _require(self) -> None:
        if not self.at:
            raise ValueError("at: the list is empty; allowed is one port or more")
        if self.queue.where != "every_port":
            raise ValueError("queue.where: not allowed here, because `at` says where")


class Blackout(Part):
    """A switch that drops everything that one of its ports receives in ON periods.

    The times between ON periods are exponentially distributed and drawn from the seed (the Outcast
    paper, section 4.3).
    """

    at: str = described("a port, as s1-eth2, that is an input of the bottleneck")
    drops: int = described("consecutive packets dropped in an ON period", ge=1, le=10_000)
    by: Literal["time", "packets"] = described(
        "time: an ON period lasts as long as this many full frames take on the link (the paper's "
        "way); packets: it lasts until this many have been dropped",
        default="time",
    )
    off_mean_ns: TimeNs = described("mean time between ON periods", default=5_000_000, gt=0)


class Experiment(Part):
    """The whole experiment."""

    name: str = described("name of the results", pattern=NAME_PATTERN)
    topology: Topology = described("the hosts and switches, and which of them are linked")
    links: Links = described("the links' rates and delays")
    noise: Noise = described(
        "what keeps machines from marching in step; see docs/noise.md", default=Noise()
    )
    queue: Queue = described("the queue of every switch port")
    queues: tuple[QueueException, ...] = described(
        "exceptions to `queue`; the last one that names a port counts", default=()
    )
    routing: Routing = Shortest()
    transport: Transport = described("TCP at every host", default=Transport())
    addressing: Addressing = described(
        "the addresses that hosts have. With both, flows and `{h2}` in a program's command are of "
        "IPv4 unless they say ipv6. See docs/ipv6.md",
        default="ipv4",
    )
    flows: tuple[FlowGroup, ...] = described("who sends to whom, and when", default=())
    workloads: tuple[Workload, ...] = described(
        "traffic generated by a model; see docs/traffic.md", default=()
    )
    programs: tuple[Program, ...] = described(
        "commands that run in hosts; see docs/programs.md", default=()
    )
    probes: tuple[Probe, ...] = described(
        "small packets whose round trips are measured; see docs/probes.md",
        default=(),
        max_length=MOST_PROBES,
    )
    blackout: Blackout | None = optional(
        "a switch that drops packets in a row; see docs/traffic.md"
    )
    events: tuple[Event, ...] = described(
        "what changes during the run; see docs/events.md", default=()
    )
    duration_ns: TimeNs = described("time from the start of the first flows to the end", gt=0)
    bottleneck: BottleneckPort | None = optional(
        "the port that is studied; if left out, the one where each flow's share of the rate is "
        "smallest"
    )
    capture: Capture = described("which ports tcpdump listens at", default=Capture())
    samples: Samples = described("how often sockets and queues are read", default=Samples())
    analysis: Analysis = described(
        "how captures are summed up", default=Analysis(), validate_default=True
    )
    kernel: Kernel | None = optional("modules of your own; see docs/own-kernel-code.md")
    guest: Guest = described(
        "what runs in the virtual engine's guest; see docs/engines.md", default=Guest()
    )
    trace: Trace | None = optional(
        "events of the guest's kernel that the run records; see docs/trace.md"
    )
    engine: EngineChoice = described(
        "auto: the virtual engine where it can run, else the realtime one", default="auto"
    )
    seed: int = described(
        "seed of all random draws; in the virtual engine it gives the same packets",
        default=1,
        ge=0,
        lt=2**63,
    )
    repetitions: int = described(
        "runs of each point of a sweep; `outcast run` runs once", default=1, ge=1, le=10_000
    )
    sweep: Sweep | None = optional("what `outcast sweep` varies; ignored by `outcast run`")

    def resolved(self, engine: EngineName) -> Experiment:
        """A copy with every default filled in: engine, delay, noise, offloads, samples."""
        noise = self.noise.resolved(engine)
        links = self.links.resolved(properties(engine).delay_ns, noise)
        # A key of the links wins, and the configuration then says so in both places.
        noise = noise.model_copy(update={"oscillators_ppm": links.clock_offset_ppm})
        if self.links.jitter_ns is not None and not noise.greatest_jitter:
            noise = noise.model_copy(update={"switch_latency_ns": links.jitter_ns})
        samples, transport = self.samples, self.transport
        if samples.every_ns is None:
            samples = samples.model_copy(update={"every_ns": properties(engine).samples_every_ns})
        if transport.offloads is None:
            on = noise.profile is not None and PROFILES[noise.profile].offloads
            offloads = on and not self._forbids_offloads()
            transport = transport.model_copy(update={"offloads": offloads})
        update = {"links": links, "noise": noise, "transport": transport}
        return self.model_copy(update={**update, "engine": engine, "samples": samples})

    def _forbids_offloads(self) -> bool:
        """Whether something needs frames as they are on the wire.

        If a link may take larger frames than another one, several segments would cross it as one
        frame, which the next link cuts.
        """
        transports = [self.transport, *map(self.group_transport, range(len(self.flows)))]
        keys = [*self.links.overrides, *(own for _, own in self.links.layers.given())]
        network = getattr(self.topology, "network", None)
        own = [words for link in (network.links if network else ()) for words in link.own.values()]
        return (
            self.blackout is not None
            or any(tcp.tcprand is not None for tcp in transports)
            or any(key.mtu_bytes is not None for key in keys)
            or any("mtu" in words for words in own)
        )

    def group_transport(self, group: int) -> Transport:
        own = self.flows[group].transport
        return self.transport if own is None else own.over(self.transport)

    def family_of(self, part: FlowGroup | Workload | Probe) -> Family:
        """The addresses of a group's, a workload's or a probe's packets."""
        return part.addressing or ("ipv6" if self.addressing == "ipv6" else "ipv4")

    @field_validator("analysis")
    @classmethod
    def _default_bin_fits(cls, analysis: Analysis, before: ValidationInfo) -> Analysis:
        duration_ns: int | None = before.data.get("duration_ns")
        return analysis if duration_ns is None else analysis.within(duration_ns)

    def _require(self) -> None:
        self._transports_fit()
        self._addresses_are_there()
        self._traces_in_virtual_time()
        self._workloads_do_as_transport_says()
        self._times_fit()
        self._bursts_hold_a_frame()

    def _transports_fit(self) -> None:
        for index in range(len(self.flows)):
            try:
                self.group_transport(index)
            except ValueError as error:
                raise ValueError(f"flows.{index}.transport: {error}") from None

    def _addresses_are_there(self) -> None:
        sent = {"flows": self.flows, "workloads": self.workloads, "probes": self.probes}
        for key, parts in sent.items():
            for index, part in enumerate(parts):
                family = self.family_of(part)
                if self.addressing not in (family, "both"):
                    raise ValueError(
                        f"{key}.{index}.addressing: {family}, but hosts have addressing: "
                        f"{self.addressing}; allowed is addressing: both"
                    )

    def _traces_in_virtual_time(self) -> None:
        traceable = any(properties(engine).own_kernel for engine in candidates(self.engine))
        if self.trace is not None and not traceable:
            raise ValueError(
                "trace: in real time recording events takes time from what is measured; allowed "
                "is engine: virtual"
            )

    def _workloads_do_as_transport_says(self) -> None:
        for index, workload in enumerate(self.workloads):
            unknown = self.transport.beyond_the_generator()
            if workload.kind != "constant_rate" and unknown is not None:
                raise ValueError(
                    f"workloads.{index}: {workload.kind} traffic cannot be sent with "
                    f"transport.{unknown}; allowed are kind: constant_rate, "
                    f"or {unknown} within flows.N.transport alone"
                )

    def _times_fit(self) -> None:
        if not (self.flows or self.workloads or self.programs or self.probes):
            raise ValueError(
                "flows: there are none; allowed are flows, workloads, programs or probes"
            )
        begins = {f"flows.{n}.start": each.start_ns for n, each in enumerate(self.flows)}
        for n, program in enumerate(self.programs):
            begins[f"programs.{n}.start"] = program.start.at_ns + (program.start.spread_ns or 0)
        begins |= {f"events.{n}.at": each.at_ns for n, each in enumerate(self.events)}
        if self.analysis.since is not None:
            begins["analysis.from"] = self.analysis.since.offset_ns
        for key, begin_ns in begins.items():
            if begin_ns >= self.duration_ns:
                raise ValueError(f"{key}: allowed is a time before the end of the duration")
        for index, group in enumerate(self.flows):
            end_ns = group.start_ns + (group.duration_ns or 0)
            if end_ns > self.duration_ns:
                raise ValueError(
                    f"flows.{index}.duration: ends after the experiment's duration, which is "
                    f"{format_time(self.duration_ns)}; allowed is up to it"
                )
        for key, parts in (("workloads", self.workloads), ("probes", self.probes)):
            for index, part in enumerate(parts):
                lasts_ns = getattr(part, "duration_ns", None) or 1
                if part.start_ns + lasts_ns > self.duration_ns:
                    raise ValueError(
                        f"{key}.{index}: goes on after the experiment's duration, which is "
                        f"{format_time(self.duration_ns)}; allowed is up to it"
                    )
        if self.blackout is not None and self.transport.offloads:
            raise ValueError(
                "blackout: its switch forwards frames as they are on the wire; "
                "allowed is transport.offloads: false"
            )
        if self.analysis.bin_ns > self.duration_ns:
            raise ValueError(
                "analysis.bin: is longer than the duration; allowed is up to "
                f"{format_time(self.duration_ns)}"
            )
        if self.analysis.bin_ns * MOST_BINS < self.duration_ns:
            raise ValueError(
                f"analysis.bin: the duration has more than {MOST_BINS} bins; allowed are fewer"
            )

    def _bursts_hold_a_frame(self) -> None:
        rates = {self.links.rate_bps}
        rates |= {self.links.between(name).rate_bps for name, _ in self.links.layers.given()}
        queues = {"queue": self.queue}
        queues |= {f"queues.{n}.queue": other.queue for n, other in enumerate(self.queues)}
        for where, queue in queues.items():
            for rate_bps in sorted(rates):
                try:
                    queue.check_burst(rate_bps)
                except ValueError as error:
                    raise ValueError(f"{where}.burst: {error}") from None
