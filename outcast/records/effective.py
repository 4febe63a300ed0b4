"""The settings in effect during a run, as the kernel and the programs showed them.

The inner program collects them when the run has ended. manifest.json holds them as one flat object
that maps a setting to its value. Only this module knows the names of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
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


def host_settings(
    *,
    route_min_rto_ms: Mapping[str, int],
    route_metrics: Mapping[str, Mapping[str, int]],
    sysctls: Mapping[str, str],
    own_sysctls: Mapping[str, Mapping[str, str]],
    recorded_sysctls: Mapping[str, str],
    offloads: bool,
) -> dict[str, Any]:
    """TCP's settings at the hosts.

    Args:
        route_min_rto_ms: the minimum RTO of routes, by host; the empty name stands for all others.
        route_metrics: further metrics of these routes, by ip-route(8)'s names.
        sysctls: values that were set at every host, by their names with dots.
        own_sysctls: by host, the values that differ there for a group of flows.
        recorded_sysctls: values that influence TCP and that the run did not change.
        offloads: whether interfaces have them.
    """
    min_rtos = {host: {"rto_min": ms} for host, ms in route_min_rto_ms.items()}
    return {
        **_named(min_rtos, "_route_ms"),
        **_named(route_metrics, "_route"),
        **sysctls,
        **_named(own_sysctls),
        **recorded_sysctls,
        "offloads": offloads,
    }


def queue_settings(
    bottleneck: Mapping[str, Any], ports: Iterable[tuple[Iterable[str], Mapping[str, Any]]]
) -> dict[str, Any]:
    """The qdiscs of the studied port, and of all ports; those that share settings are together."""
    flat = {f"bottleneck.{name}": value for name, value in bottleneck.items()}
    for number, (names, settings) in enumerate(ports):
        flat[f"ports.{number}"] = " ".join(names)
        flat.update({f"ports.{number}.{name}": value for name, value in settings.items()})
    return flat


def loss_settings(
    direction: tuple[str, str], loss: float, seed: int | None, **faults: Any
) -> dict[str, Any]:
    """What one direction of a link does to packets.

    `loss` is the share that is lost, `seed` that of its generator (None before Linux 6.6, which
    takes none). `faults` are as the configuration has them; of a policer the rate and the burst
    that the kernel shows.
    """
    seeded = "the kernel's own generator" if seed is None else seed
    settings = {"loss": loss, "loss_seed": seeded, **{k: v for k, v in faults.items() if v}}
    return {f"links.{' to '.join(direction)}.{name}": value for name, value in settings.items()}


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


def flattened(
    *,
    hosts: Mapping[str, Any],
    arrivals_core: int | None,
    queues: Mapping[str, Any],
    forwarding: str,
    routing: Mapping[str, Any],
    mptcp_subflows: Mapping[str, int],
    start: Mapping[str, Any],
    workloads: Mapping[str, Any],
    sampling: Sampling,
    load: Mapping[str, Any],
    min_rto_ns: int | None,
    controller_framework: str,
    mtus: Mapping[int, Sequence[str]] | None = None,
    losses: Mapping[str, Any] | None = None,
    instants_ns: Mapping[str, int] | None = None,
    modules: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """All settings in effect, in the manifest's order.

    `arrivals_core` is the core that processes all arrivals; None if the machine has one core.
    `mtus` has interfaces by the largest packet that they take, where links differ from the usual.
    `mptcp_subflows` has by host the most subflows of a connection there. `min_rto_ns` is the
    smallest minimum RTO, rounded up to the kernel's tick; None if the kernel does not show it.
    """
    return {
        **hosts,
        **({} if arrivals_core is None else {"arrivals_core": arrivals_core}),
        **queues,
        **{f"mtu.{size}": " ".join(names) for size, names in (mtus or {}).items()},
        **(losses or {}),
        "forwarding": forwarding,
        **_given("routing.", routing),
        **({"mptcp.subflows": dict(mptcp_subflows)} if mptcp_subflows else {}),
        **_given("traffic.", start),
        **{f"instants.{of}_ns": at_ns for of, at_ns in (instants_ns or {}).items()},
        **workloads,
        **_given(_SAMPLES, asdict(sampling)),
        **load,
        _MIN_RTO: min_rto_ns,
        "controller_framework": controller_framework,
        **{f"module.{name}": value for name, value in _named(modules or {}).items()},
    }


def _given(prefix: str, part: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in part.items() if value is not None}


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
