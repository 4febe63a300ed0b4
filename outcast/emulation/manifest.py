"""The manifest: what was requested, what is in effect, the programs' versions, and the flows."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import mininet.net

from controllers.entries import HASH_FIELDS
from outcast import __version__
from outcast.emulation.commands import SystemCommands
from outcast.emulation.kernel import counters as links
from outcast.emulation.network import transport
from outcast.emulation.network.multipath import Subflows
from outcast.emulation.part import Context, Record, as_record
from outcast.emulation.queues import qdiscs
from outcast.errors import ReadBackError
from outcast.experiment import Experiment
from outcast.experiment.engine import Kernel, argument
from outcast.plan import ports
from outcast.plan.model import Plan
from outcast.records.effective import flattened
from outcast.records.flows import BottleneckRecord, FlowRecord, SubflowRecord
from outcast.records.run_directory import Manifest

_LOADED = Path("/sys/module")
_BOOLS = {"1": "Y", "0": "N"}
"""How the kernel shows a parameter of the type bool (param_get_bool in kernel/params.c)."""


def manifest(run: Context, record: Record) -> Manifest:
    experiment, plan, hz = run.experiment, run.plan, transport.kernel_hz()
    effective = flattened(
        **record.effective,
        min_rto_ns=transport.effective_min_rto_ns(experiment.transport.min_rto_ns, hz),
        modules=read_modules(experiment.kernel),
    )
    return Manifest(
        **record.manifest,
        outcast=__version__,
        name=experiment.name,
        engine=run.engine,
        seed=experiment.seed,
        kernel={
            **{name: getattr(platform, name)() for name in ("release", "version", "machine")},
            "hz": hz,
        },
        versions=versions(run.commands),
        requested=requested(experiment),
        effective=effective,
        generated_hosts=sorted({flow.src for flow in plan.generated}),
        bottlenecks=bottlenecks(experiment, plan),
        warnings=record.warnings,
    )


def routing(plan: Plan) -> dict[str, Any]:
    """Says how paths are chosen, and how a hash splits the flows over ports that share them.

    Where switches draw a port for each packet, `split` has the flows that may take each port.
    """
    kind: dict[str, Any] = {"kind": plan.routing, "openflow": plan.openflow}
    if not plan.routes.choices:
        return kind
    if not plan.per_packet:
        kind["hash"] = f"Open vSwitch's over {', '.join(HASH_FIELDS)}"
        kind["hash_seed"] = plan.hash_seed
    return {**kind, "split": links.split(plan)}


def read_modules(kernel: Kernel | None, folder: Path = _LOADED) -> dict[str, dict[str, str]]:
    """The parameters of each of the user's kernel modules, as the kernel shows them.

    They are read at the end, because that takes time, even if only nanoseconds, and a run with a
    module has to go on as one without it.

    Raises ReadBackError: a module is not loaded, or a parameter has another value or is not shown.
    """
    read: dict[str, dict[str, str]] = {}
    for module in kernel.modules if kernel is not None else ():
        where = f"module {module.name}"
        if not (folder / module.name / "initstate").exists():
            raise ReadBackError(where, "state", "loaded", "no such module")
        read[module.name] = {}
        for name, value in module.parameters.items():
            try:
                actual = (folder / module.name / "parameters" / name).read_text().strip()
            except OSError:
                remedy = f"none; {module.path.name} needs module_param({name}, ..., 0444)"
                raise ReadBackError(where, f"parameter {name}", argument(value), remedy) from None
            if not _equal(argument(value), actual):
                raise ReadBackError(where, f"parameter {name}", argument(value), actual)
            read[module.name][name] = actual
    return read


def _equal(requested: str, read_back: str) -> bool:
    if read_back in (requested, _BOOLS.get(requested)):
        return True
    try:
        return int(requested, 0) == int(read_back, 0)
    except ValueError:
        return False


def requested(experiment: Experiment) -> dict[str, Any]:
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
    return [
        as_record(
            FlowRecord,
            flow,
            path=list(flow.path),
            return_path=list(flow.return_path),
            ingress=plan.ingress(flow),
            congestion_control=flow.transport.congestion_control,
            subflows=[
                SubflowRecord(sport=sport, dport=dport, src_ip=None if ip == flow.src_ip else ip)
                for sport, dport, ip in subflows.get(flow.flow, ())
            ],
        )
        for flow in plan.flows
    ]


def bottlenecks(experiment: Experiment, plan: Plan) -> list[BottleneckRecord]:
    return [
        BottleneckRecord(
            switch=bottleneck.switch,
            egress=bottleneck.egress,
            ingress=list(bottleneck.ingress),
            destinations=list(bottleneck.destinations),
            queue=qdiscs.record(ports.switch_queue(experiment, plan, bottleneck.egress)),
            routed=bottleneck.switch in plan.routers,
        )
        for bottleneck in (plan.bottleneck, *plan.others)
    ]


def versions(commands: SystemCommands) -> dict[str, str]:
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
