"""The manifest: what was asked for, what is in effect, the programs' versions, and the flows."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from typing import Any

import mininet.net

from controllers.entries import HASH_FIELDS
from outcast import __version__
from outcast.emulation import link_counters as links
from outcast.emulation import queues, transport
from outcast.emulation.commands import SystemCommands
from outcast.emulation.multipath import Subflows
from outcast.emulation.part import Context, Record
from outcast.experiment import Experiment
from outcast.plan import ports
from outcast.plan.model import Plan
from outcast.records.effective import Effective, Routing
from outcast.records.flows import BottleneckRecord, FlowRecord, SubflowRecord
from outcast.records.run_directory import Manifest


def manifest(run: Context, record: Record) -> Manifest:
    """The manifest of a run whose parts told this record. Raises ReadBackError as `_modules`."""
    experiment, plan, hz = run.experiment, run.plan, transport.kernel_hz()
    effective = Effective(
        **record.effective,
        min_rto_ns=transport.effective_min_rto_ns(experiment.transport.min_rto_ns, hz),
        modules=_modules(experiment),
    )
    return Manifest(
        **record.manifest,
        outcast=__version__,
        name=experiment.name,
        engine=run.engine,
        seed=experiment.seed,
        kernel={
            "release": platform.release(),
            "version": platform.version(),
            "machine": platform.machine(),
            "hz": hz,
        },
        versions=versions(run.commands),
        requested=requested(experiment),
        effective=effective.flat(),
        generated_hosts=sorted({flow.src for flow in plan.generated}),
        bottlenecks=bottlenecks(experiment, plan),
        warnings=record.warnings,
    )


def routing(plan: Plan) -> Routing:
    """Says how paths are chosen, and how a hash splits the flows."""
    if not plan.routes.choices:
        return Routing(plan.routing, plan.openflow)
    hashed = f"Open vSwitch's over {', '.join(HASH_FIELDS)}"
    return Routing(plan.routing, plan.openflow, hashed, plan.hash_seed, links.split(plan))


def _modules(experiment: Experiment) -> Mapping[str, Mapping[str, str]]:
    """The user's modules with their parameters as the kernel shows them. Raises ReadBackError.

    The kernel is asked at the end, because to ask takes time, even if only nanoseconds, and a run
    with a module has to go on as one without it.
    """
    if experiment.kernel is None or not experiment.kernel.modules:
        return {}
    from outcast.emulation import own_modules

    return own_modules.read_back(experiment.kernel)


def requested(experiment: Experiment) -> dict[str, Any]:
    """The settings that the configuration asks for, as one flat object."""
    tree = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    flat: dict[str, Any] = {}
    for section in ("topology", "links", "noise", "queue", "routing", "transport", "samples"):
        flat.update({f"{section}.{key}": value for key, value in tree[section].items()})
    flat.update({f"bottleneck.{key}": value for key, value in tree.get("bottleneck", {}).items()})
    for section in ("queues", "flows", "workloads", "programs"):
        flat.update({f"{section}.{n}": value for n, value in enumerate(tree[section])})
    for section in ("blackout", "kernel"):
        flat.update({f"{section}.{key}": value for key, value in tree.get(section, {}).items()})
    return flat


def flows(plan: Plan, subflows: Subflows) -> list[FlowRecord]:
    """The plan's flows for the manifest."""
    return [
        FlowRecord(
            flow=flow.flow,
            group=flow.group,
            src=flow.src,
            src_ip=flow.src_ip,
            sport=flow.sport,
            dst=flow.dst,
            dst_ip=flow.dst_ip,
            dport=flow.dport,
            hops=flow.hops,
            path=list(flow.path),
            return_path=list(flow.return_path),
            ingress=plan.ingress(flow),
            start_ns=flow.start_ns,
            duration_ns=flow.duration_ns,
            size_bytes=flow.size_bytes,
            congestion_control=flow.transport.congestion_control,
            subflows=[
                SubflowRecord(sport=sport, dport=dport, src_ip=None if ip == flow.src_ip else ip)
                for sport, dport, ip in subflows.get(flow.flow, ())
            ],
            name=flow.name,
        )
        for flow in plan.flows
    ]


def bottlenecks(experiment: Experiment, plan: Plan) -> list[BottleneckRecord]:
    """The studied ports, with what the configuration says of their queues."""
    return [
        BottleneckRecord(
            switch=bottleneck.switch,
            egress=bottleneck.egress,
            ingress=list(bottleneck.ingress),
            destinations=list(bottleneck.destinations),
            queue=queues.record(ports.switch_queue(experiment, plan, bottleneck.egress)),
            routed=bottleneck.switch in plan.routers,
        )
        for bottleneck in (plan.bottleneck, *plan.others)
    ]


def versions(commands: SystemCommands) -> dict[str, str]:
    """The versions of the programs that took part, as they print them."""
    versions = {
        "python": platform.python_version(),
        "mininet": mininet.net.VERSION,
        "libc": "-".join(platform.libc_ver()),
    }
    for name, argv, pattern in (
        ("openvswitch", ["ovs-vswitchd", "--version"], r"\) ([0-9.]+)"),
        ("iperf", ["sh", "-c", "iperf --version 2>&1 || true"], r"iperf version ([0-9.]+)"),
        ("tcpdump", ["sh", "-c", "tcpdump --version 2>&1"], r"tcpdump version ([0-9.]+)"),
        ("iproute2", ["tc", "-V"], r"iproute2-([0-9.]+)"),
    ):
        match = re.search(pattern, commands.run(argv))
        versions[name] = match[1] if match else "unknown"
    return versions
