"""The settings in effect during a run, as the kernel and the programs showed them.

The inner program collects them when the run has ended. manifest.json holds them as one flat object
that maps a setting to its value. Only this module knows the names of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_SAMPLES, _MIN_RTO = "samples.", "min_rto_ns"
OTHER_CODE_POINTS = "all others"
"""The code points of the class of service that takes what no other class does."""


def _named(settings: Mapping[str, Mapping[str, Any]], end: str = "") -> dict[str, Any]:
    """Settings with their host's name before theirs; the empty name stands for all hosts."""
    return {
        f"{host}.{name}{end}" if host else f"{name}{end}": value
        for host, values in settings.items()
        for name, value in values.items()
    }


@dataclass(frozen=True, slots=True)
class HostSettings:
    """TCP's settings at the hosts.

    Attributes:
        route_min_rto_ms: the minimum RTO of routes, by host; the empty name stands for all others.
        route_metrics: further metrics of these routes, by ip-route(8)'s names.
        sysctls: values that were set at every host, by their names with dots.
        own_sysctls: by host, the values that differ there for a group of flows.
        recorded_sysctls: values that influence TCP and that the run did not change.
    """

    route_min_rto_ms: Mapping[str, int]
    sysctls: Mapping[str, str]
    own_sysctls: Mapping[str, Mapping[str, str]]
    recorded_sysctls: Mapping[str, str]
    offloads: bool
    route_metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        return {
            **_named(
                {host: {"rto_min": ms} for host, ms in self.route_min_rto_ms.items()}, "_route_ms"
            ),
            **_named(self.route_metrics, "_route"),
            **self.sysctls,
            **_named(self.own_sysctls),
            **self.recorded_sysctls,
            "offloads": self.offloads,
        }


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The qdiscs of every port.

    Attributes:
        bottleneck: the settings of the studied port. Their names depend on the kind of queue.
        ports: each item names the ports that share settings, and holds these settings.
        interrupts_ns: the least and the most delay of arrivals at hosts; None without delay.
        interrupts_per_second: hosts by the most interrupts of their cards in a second.
    """

    bottleneck: Mapping[str, Any]
    ports: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]
    interrupts_ns: tuple[int, int] | None = None
    interrupts_per_second: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        flat = {f"bottleneck.{name}": value for name, value in self.bottleneck.items()}
        for number, (names, settings) in enumerate(self.ports):
            flat[f"ports.{number}"] = " ".join(names)
            flat.update({f"ports.{number}.{name}": value for name, value in settings.items()})
        if self.interrupts_ns is not None:
            least_ns, most_ns = self.interrupts_ns
            flat |= {"noise.interrupts_ns": [least_ns, most_ns]}
        for per_second, hosts in self.interrupts_per_second.items():
            flat[f"noise.interrupts_per_second.{per_second}"] = " ".join(hosts)
        return flat


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The loss of one direction of a link.

    Attributes:
        node, neighbour: the sending and the receiving end.
        loss: the share of packets that are lost.
        seed: of the kernel's generator for it; None before Linux 6.6, which takes none.
        policer: the rate and the burst that the kernel shows, in bit/s and bytes.
        burst_loss, late, duplicate, random_delay: as the configuration has them, once the kernel
            shows them. It does not show the table of a random delay's distribution.
    """

    node: str
    neighbour: str
    loss: float
    seed: int | None
    burst_loss: dict[str, Any] | None = None
    late: dict[str, Any] | None = None
    duplicate: float = 0.0
    policer: dict[str, int] | None = None
    random_delay: dict[str, Any] | None = None

    def flat(self) -> dict[str, Any]:
        seeded = "the kernel's own generator" if self.seed is None else self.seed
        direction = f"links.{self.node} to {self.neighbour}"
        faults = {
            name: getattr(self, name)
            for name in ("burst_loss", "late", "duplicate", "policer", "random_delay")
        }
        settings = {
            "loss": self.loss,
            "loss_seed": seeded,
            **{k: v for k, v in faults.items() if v},
        }
        return {f"{direction}.{name}": value for name, value in settings.items()}


@dataclass(frozen=True, slots=True)
class Routing:
    """How paths were chosen.

    `hash` (the fields that are hashed), its seed, and `split` (how many flows each port got, for
    ports that share the traffic) are None unless switches choose paths by a hash. Where they draw a
    port for each packet, only `split` is there, with the flows that may take each port. `kind` is
    one of controllers.routes.KINDS, `openflow` the version that the switches speak.
    """

    kind: str
    openflow: str
    hash: str | None = None
    hash_seed: int | None = None
    split: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """How the flows' common start came about.

    Attributes:
        notice_s: how long before the start the flows got it; None if it was set beforehand.
        lead_s: the time from the first client's start to the first flow's start.
    """

    connect_s: float
    start_set: str
    notice_s: float | None
    lead_s: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """How sockets and queues were sampled.

    Attributes:
        every_ns: the time from one sample to the next; 0 if none was taken.
        missed: how many samples were skipped, because the one before was not done in time.
        longest_ns: the longest time that one sample took, on the run's clock.
    """

    every_ns: int
    taken: int
    missed: int
    longest_ns: int


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """One change of a link or queue during the run.

    Attributes:
        event: the event's place in the configuration's `events`.
        at_ns: when it was planned, after the traffic's start.
        applied_ns: when the kernel had made it; None if all flows had ended before.
        node, neighbour: the direction of the link: the node that sends, and the one that receives.
        what: `rate_bps`, `delay_ns`, `limit_bytes`, `limit_packets`; `loss_ppm`, `burst_loss_ppm`,
            `late_ppm`, `duplicate_ppm`, the share of the packets; `policer_bps`; or `up`, 0 or 1.
        shown: the value that was read back; None where it was not made.
    """

    event: int
    at_ns: int
    applied_ns: int | None
    node: str
    neighbour: str
    port: str
    what: str
    requested: int
    shown: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """All settings in effect.

    Attributes:
        arrivals_core: the core that processes all arrivals; None if the machine has one core.
        mtus: interfaces by the largest packet that they take, where links differ from the usual.
        mptcp_subflows: by host, the most subflows of a connection there.
        workloads, load: facts on the generated flows, and shares of the CPU (none under virtual
            time); keys are whole setting names.
        min_rto_ns: the smallest minimum RTO, rounded up to the kernel's tick; None if the kernel
            does not show its tick.
        instants_ns: fixed instants of virtual time since boot, by what began then.
        modules: the parameters of the user's kernel modules, as the kernel showed them.
    """

    hosts: HostSettings
    arrivals_core: int | None
    queues: QueueSettings
    forwarding: str
    routing: Routing
    mptcp_subflows: Mapping[str, int]
    start: Start
    workloads: Mapping[str, Any]
    sampling: Sampling
    load: Mapping[str, Any]
    min_rto_ns: int | None
    controller_framework: str
    mtus: Mapping[int, Sequence[str]] = field(default_factory=dict)
    losses: Sequence[LossSettings] = ()
    instants_ns: Mapping[str, int] = field(default_factory=dict)
    modules: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        return {
            **self.hosts.flat(),
            **({} if self.arrivals_core is None else {"arrivals_core": self.arrivals_core}),
            **self.queues.flat(),
            **{f"mtu.{size}": " ".join(names) for size, names in self.mtus.items()},
            **{name: value for loss in self.losses for name, value in loss.flat().items()},
            "forwarding": self.forwarding,
            **_given("routing.", self.routing),
            **({"mptcp.subflows": dict(self.mptcp_subflows)} if self.mptcp_subflows else {}),
            **_given("traffic.", self.start),
            **{f"instants.{of}_ns": at_ns for of, at_ns in self.instants_ns.items()},
            **self.workloads,
            **_given(_SAMPLES, self.sampling),
            **self.load,
            _MIN_RTO: self.min_rto_ns,
            "controller_framework": self.controller_framework,
            **{f"module.{name}": value for name, value in _named(self.modules).items()},
        }


def _given(prefix: str, part: Routing | Start | Sampling) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in asdict(part).items() if value is not None}


def sampling_of(flat: Mapping[str, Any]) -> Sampling | None:
    """The sampling of a run, from its manifest's settings; None without samples."""
    if not flat.get(f"{_SAMPLES}every_ns"):
        return None
    return Sampling(**{name: flat[f"{_SAMPLES}{name}"] for name in Sampling.__dataclass_fields__})


def min_rto_ns_of(flat: Mapping[str, Any]) -> int | None:
    return flat.get(_MIN_RTO) or None


def port_setting(flat: Mapping[str, Any], port: str, name: str) -> Any:
    group = _group_of(flat, port)
    return None if group is None else flat.get(f"{group}.{name}")


def service_classes_of(flat: Mapping[str, Any], port: str) -> dict[str, tuple[int, ...] | None]:
    """The code points of a port's classes of service by name, in the kernel's order.

    None stands for all other code points.
    """
    start, end = f"{_group_of(flat, port)}.", " dscp"
    return {
        key[len(start) : -len(end)]: None
        if value == OTHER_CODE_POINTS
        else tuple(map(int, value.split()))
        for key, value in flat.items()
        if key.startswith(start) and key.endswith(end)
    }


def _group_of(flat: Mapping[str, Any], port: str) -> str | None:
    """The key of the ports that share this port's settings."""
    groups = (key for key, value in flat.items() if re.fullmatch(r"ports\.\d+", key) and value)
    return next((group for group in groups if port in flat[group].split()), None)
