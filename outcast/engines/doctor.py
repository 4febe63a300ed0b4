"""Diagnoses what this machine can emulate, feature by feature, with remedies for what it cannot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from outcast.emulation import openvswitch, transport
from outcast.engines import modules, pinned, processor, shipped
from outcast.engines.guest.check import at_least
from outcast.engines.kernel import cache as kernels
from outcast.engines.kernel.cache import Kernel
from outcast.engines.modules import State
from outcast.engines.root import cache as roots
from outcast.engines.root import mininet_package
from outcast.engines.root.cache import Root
from outcast.engines.trials import QDISCS, lacking_for_held_arrivals, probe_qdiscs, search_path
from outcast.errors import FeatureMissingError, KernelError, RootError
from outcast.experiment.engine import EngineName
from outcast.experiment.queues import KINDS
from outcast.experiment.queues.base import QueueKind

SINCE = {qdisc: kind.since for kind in KINDS for qdisc in kind.probe}
"""The first Linux that has each qdisc of a queue kind, as the kind says."""

CONGESTION_CONTROLS = ("bic", "cubic", "reno", "dctcp", "bbr")


@dataclass(frozen=True, slots=True)
class Finding:
    """One feature.

    Attributes:
        present: whether a run can use it.
        state: `loadable` means a module of the kernel that a run loads when it needs it.
    """

    feature: str
    present: bool
    detail: str = ""
    remedy: str = ""
    state: State = "ready"
    engine: EngineName = "realtime"

    def __post_init__(self) -> None:
        if not self.present:
            object.__setattr__(self, "state", "absent")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, and for each engine whether it can run the default experiment."""

    findings: tuple[Finding, ...]
    engines: dict[str, bool]


_MININET = "Mininet's Python package"
_MININET_REMEDY = (
    "install Debian's package mininet (scripts/install.sh does), and make the virtual environment "
    "from /usr/bin/python3 with --system-site-packages"
)
_FRAMEWORK = "Ryu or os-ken"
_FRAMEWORK_REMEDY = (
    "install Python's packages os-ken, eventlet and pyopenssl (scripts/install.sh does)"
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program that runs need.

    `virtual` says whether each run of the virtual engine needs it, too.
    """

    name: str
    package: str
    virtual: bool = True


PROGRAMS = {
    "mnexec": Program("Mininet", "mininet"),
    "ovs-vswitchd": Program("Open vSwitch", "openvswitch-switch"),
    "iperf": Program("iperf 2", "iperf"),
    "tcpdump": Program("tcpdump", "tcpdump"),
    "tc": Program("iproute2", "iproute2"),
    "ethtool": Program("ethtool", "ethtool"),
    "unshare": Program("unshare", "util-linux", virtual=False),
    "setpriv": Program("setpriv", "util-linux", virtual=False),
    "cc": Program("a C compiler", "gcc", virtual=False),
}


def require_programs(besides: Collection[str] = ()) -> None:
    """Checks that all is installed here that the inner program starts and imports.

    The virtual engine needs it only with `guest.root: host`.

    Python packages are looked up and not imported, because an import takes half a second.

    Raises FeatureMissingError: names what is missing, with its remedy.
    """
    missing = [
        finding for finding in _programs(virtual=True, besides=besides) if not finding.present
    ]
    mininet = find_spec("mininet")
    if mininet is None or mininet_package.is_the_guests(mininet):
        missing.append(Finding(_MININET, False, "", _MININET_REMEDY))
    if find_spec("eventlet") is None or not any(map(find_spec, ("ryu", "os_ken"))):
        missing.append(Finding(_FRAMEWORK, False, "", _FRAMEWORK_REMEDY))
    if missing:
        remedies = dict.fromkeys(finding.remedy for finding in missing)
        names = " and ".join(finding.feature for finding in missing)
        raise FeatureMissingError(f"not installed here: {names}; {'; '.join(remedies)}")


def _programs(*, virtual: bool = False, besides: Collection[str] = ()) -> list[Finding]:
    """Findings of the programs; of those that the virtual engine needs, and more, if `virtual`."""
    return [
        Finding(
            program.name,
            shutil.which(command, path=search_path()) is not None,
            command,
            f"install Debian's package {program.package} (scripts/install.sh does)",
        )
        for command, program in PROGRAMS.items()
        if program.virtual or not virtual or command in besides
    ]


def _packages() -> list[Finding]:
    mininet = find_spec("mininet")
    if mininet is not None and mininet_package.is_the_guests(mininet):
        found = Finding(_MININET, False, "only the guest's root has it", _MININET_REMEDY)
    else:
        found = _importable("mininet.net", _MININET, _MININET_REMEDY)
    return [found, _controller_framework()]


def diagnose(
    guest: Kernel | None,
    kernel_modules: modules.Modules | None = None,
    root: Root | None = None,
) -> Diagnosis:
    """Looks at every feature, and loads no module."""
    kernel_modules = kernel_modules or modules.Modules()
    instead = (
        "use --engine virtual"
        if guest
        else "use --engine virtual, once its guest is there (scripts/guest/build)"
    )
    user = os.geteuid()
    without_root = "run as root, or use --engine virtual, which needs no root"
    programs, packages = _programs(), _packages()
    looked_up = {kind: kernel_modules.look_up(modules.qdisc(kind)) for kind in QDISCS}
    # To try a qdisc that is only on disk would make the kernel load its module.
    probed = probe_qdiscs([kind for kind in QDISCS if looked_up[kind].state != "loadable"])
    namespaces = any(probed.values())
    qdiscs = [
        _qdisc(kind, looked_up[kind], probed, guest_is_too_old(kind, guest) or instead)
        for kind in QDISCS
    ]
    findings = [
        Finding("root", user == 0, f"user id {user}", without_root),
        *programs,
        *packages,
        Finding(
            "network namespaces",
            namespaces,
            "made one and set up a qdisc in it" if namespaces else "none could be made and used",
            "run as root on a kernel with CONFIG_NET_NS",
        ),
        *qdiscs,
        *_tcp(kernel_modules, instead),
        _held_arrivals(kernel_modules, looked_up["netem"], instead),
        _open_vswitch(kernel_modules, instead),
        *_ip(instead),
    ]
    in_guest = [_processor(), _kernel(guest), _root(root), _planning()]
    present = {finding.feature for finding in findings if finding.present}
    needed = [modules.qdisc(kind) for kind in ("tbf", "pfifo", "bfifo")]
    needed += ["root", "network namespaces", modules.congestion_control("cubic")]
    needed += [finding.feature for finding in (*programs, *packages)]
    return Diagnosis(
        (*findings, *in_guest),
        {
            "realtime": present.issuperset(needed),
            "virtual": all(finding.present for finding in in_guest),
        },
    )


def _tcp(kernel_modules: modules.Modules, instead: str) -> list[Finding]:
    """Findings of the congestion controls."""
    available = transport.congestion_controls()
    return [
        _in_kernel(feature, name in available, kernel_modules.look_up(feature), instead)
        for name in CONGESTION_CONTROLS
        for feature in [modules.congestion_control(name)]
    ]


def _ip(instead: str) -> list[Finding]:
    """Findings of IPv6 and of the kernel's tick."""
    hz = transport.kernel_hz()
    without = f"leave addressing at ipv4, or {instead}"
    jiffy = f"HZ={hz}: a minimum RTO of 2 ms becomes {_effective_ms(hz)}" if hz else "unknown"
    return [
        Finding("IPv6", transport.has_ipv6(), "for addressing: ipv6 and both", without),
        Finding("2 ms minimum RTO", hz is not None and hz >= 500, jiffy, instead),
    ]


def _held_arrivals(kernel_modules: modules.Modules, netem: modules.Lookup, instead: str) -> Finding:
    """Whether hosts can get their arrivals in batches; no module is loaded to find out."""
    feature = "interrupt moderation"
    lookups = [netem, *map(kernel_modules.look_up, modules.HELD_ARRIVALS)]
    if any(lookup.state == "loadable" for lookup in lookups):
        detail = "modules, loaded when a run has noise.interrupts"
        return Finding(feature, True, detail, state="loadable")
    lacking = lacking_for_held_arrivals()
    if not lacking:
        return Finding(feature, True, "an ifb with slots of netem")
    return Finding(
        feature, False, f"lacks {', '.join(lacking)}", f"leave noise.interrupts out, or {instead}"
    )


def guest_is_too_old(qdisc: str, guest: Kernel | None) -> str:
    """The remedy where the virtual engine's kernel is older than a qdisc; empty where it is not."""
    since = SINCE.get(qdisc, QueueKind.since)
    if guest is None or at_least(guest.release, since):
        return ""
    return (
        f"build the virtual engine's kernel from Linux {since} or later (scripts/guest/build "
        f"--tarball FILE); it is {guest.release}"
    )


def _processor() -> Finding:
    unfit = processor.misfit()
    return _of_guest("virtual engine's processor", not unfit, processor.NEEDED, unfit)


def _kernel(kernel: Kernel | None) -> Finding:
    feature = "virtual engine's kernel"
    if kernel is None:
        return _of_guest(feature, False, "", _provide("kernels", pinned.OURS.kernel))
    what = f"Linux {kernel.release}, {kernel.key}, {_origin('kernels', kernel.key)}"
    try:
        kernels.verify(kernel)
    except KernelError:
        return _of_guest(feature, False, f"{what}: damaged", "run: scripts/guest/build --again")
    return _of_guest(feature, True, f"{what} ({kernel.source} {kernel.version}), verified")


def _root(root: Root | None) -> Finding:
    feature = "virtual engine's root"
    if root is None:
        return _of_guest(feature, False, "", _provide("roots", pinned.OURS.runtime))
    what = f"{len(root.packages)} packages, {root.key}, {_origin('roots', root.key)}"
    try:
        roots.verify(root, every_byte=True)
    except RootError as error:
        return _of_guest(feature, False, str(error), "run: scripts/guest/build --again")
    return _of_guest(feature, True, f"{what}, verified")


def _planning() -> Finding:
    feature = "Mininet's Topo, which plans"
    spec = find_spec("mininet")
    if spec is None:
        return _of_guest(feature, False, "", mininet_package.REMEDY)
    guests = mininet_package.is_the_guests(spec)
    return _of_guest(feature, True, "of the guest's root" if guests else "of this Python")


def _of_guest(feature: str, present: bool, detail: str, remedy: str = "") -> Finding:
    return Finding(feature, present, detail, remedy, engine="virtual")


def _origin(kind: str, key: str) -> str:
    """Says where a part of the guest comes from."""
    guest = shipped.installed()
    if guest is not None and shipped.part_of(kind, key) is not None:
        return f"from {shipped.PROJECT} {guest.version}"
    return "made here"


def _provide(kind: str, key: str) -> str:
    """The remedy where a part of the guest is missing."""
    misfit = shipped.misfit(kind, key)
    return misfit or pinned.REMEDY


def _in_kernel(feature: str, ready: bool, lookup: modules.Lookup, remedy: str) -> Finding:
    """A feature that the kernel shows to be ready, or that one of its modules may have."""
    if ready:
        return Finding(feature, True)
    return Finding(feature, lookup.state == "loadable", lookup.detail, remedy, lookup.state)


def _qdisc(kind: str, lookup: modules.Lookup, probed: Mapping[str, bool], remedy: str) -> Finding:
    feature = modules.qdisc(kind)
    # If nothing could be tried, the modules that the kernel shows have to do.
    untried = not any(probed.values())
    ready = lookup.state == "ready" if untried else probed.get(kind, False)
    if untried and lookup.state == "absent":
        return Finding(feature, False, "not tried, without a network namespace", "run as root")
    return _in_kernel(feature, ready, lookup, remedy)


def _open_vswitch(kernel_modules: modules.Modules, remedy: str) -> Finding:
    lookup = kernel_modules.look_up(modules.OPEN_VSWITCH)
    # To ask the kernel for a module that is only on disk would load it.
    if lookup.state == "loadable":
        return Finding(modules.OPEN_VSWITCH, True, lookup.detail, "", "loadable")
    if openvswitch.has_kernel_module():
        return Finding(modules.OPEN_VSWITCH, True, "the kernel datapath")
    return Finding(
        modules.OPEN_VSWITCH,
        False,
        "the kernel's bridge forwards by its flow tables",
        f"install the distribution's kernel with its modules, or {remedy}",
    )


def _effective_ms(hz: int) -> str:
    effective = transport.effective_min_rto_ns(2_000_000, hz) or 0
    return f"{effective / 1e6:g} ms"


def _importable(module: str, name: str, remedy: str) -> Finding:
    try:
        __import__(module)
    except ImportError as error:
        return Finding(name, False, str(error), remedy)
    return Finding(name, True, module)


def _controller_framework() -> Finding:
    try:
        from controllers import openflow
    except ImportError as error:
        return Finding(_FRAMEWORK, False, str(error), _FRAMEWORK_REMEDY)
    return Finding(_FRAMEWORK, True, openflow.framework)
