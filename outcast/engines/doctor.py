"""Diagnoses what this machine can emulate, feature by feature, with remedies for what it cannot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
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


PROGRAMS = {
    "mnexec": ("Mininet", "mininet"),
    "ovs-vswitchd": ("Open vSwitch", "openvswitch-switch"),
    "iperf": ("iperf 2", "iperf"),
    "tcpdump": ("tcpdump", "tcpdump"),
    "tc": ("iproute2", "iproute2"),
    "ethtool": ("ethtool", "ethtool"),
    "unshare": ("unshare", "util-linux"),
    "setpriv": ("setpriv", "util-linux"),
    "cc": ("a C compiler", "gcc"),
}
"""The programs that runs start, with their names and Debian's packages."""
ONLY_REALTIME = ("unshare", "setpriv", "cc")


def require_programs(besides: Collection[str] = ()) -> None:
    """Checks that all is installed here that the inner program starts and imports.

    The virtual engine needs it only with `guest.root: host`.

    Raises FeatureMissingError: names what is missing, with its remedy.
    """
    programs = [name for name in PROGRAMS if name not in ONLY_REALTIME or name in besides]
    missing = [found for found in (*map(_program, programs), *_packages()) if not found.present]
    if missing:
        remedies = dict.fromkeys(finding.remedy for finding in missing)
        names = " and ".join(finding.feature for finding in missing)
        raise FeatureMissingError(f"not installed here: {names}; {'; '.join(remedies)}")


def _program(command: str) -> Finding:
    name, package = PROGRAMS[command]
    is_there = shutil.which(command, path=search_path()) is not None
    remedy = f"install Debian's package {package} (scripts/install.sh does)"
    return Finding(name, is_there, command, remedy)


def _packages() -> list[Finding]:
    """Findings of Python packages. They are not imported, because that takes half a second."""
    mininet = find_spec("mininet")
    is_own = mininet is not None and not mininet_package.is_the_guests(mininet)
    has_framework = find_spec("eventlet") and any(map(find_spec, ("ryu", "os_ken")))
    return [
        Finding(
            "Mininet's Python package",
            is_own,
            "of this Python" if is_own else "",
            "install Debian's package mininet (scripts/install.sh does), and make the virtual "
            "environment from /usr/bin/python3 with --system-site-packages",
        ),
        Finding(
            "Ryu or os-ken",
            bool(has_framework),
            "",
            "install Python's packages os-ken, eventlet and pyopenssl (scripts/install.sh does)",
        ),
    ]


def diagnose(
    guest: Kernel | None,
    kernel_modules: modules.Modules | None = None,
    root: Root | None = None,
) -> Diagnosis:
    """Looks at every feature, and loads no module."""
    kernel_modules = kernel_modules or modules.Modules()
    instead = "use --engine virtual"
    if guest is None:
        instead += ", once its guest is there (scripts/guest/build)"

    def of_kernel(feature: str, works: Callable[[], bool], detail: str = "") -> Finding:
        lookup = kernel_modules.look_up(feature)
        # To try what is only on disk would make the kernel load its module.
        if lookup.state == "loadable":
            return Finding(feature, True, lookup.detail, state="loadable")
        if works():
            return Finding(feature, True, detail)
        too_old = feature.startswith("qdisc ") and guest_is_too_old(feature[6:], guest)
        return Finding(feature, False, lookup.detail, too_old or instead)

    states = {kind: kernel_modules.look_up(modules.qdisc(kind)).state for kind in QDISCS}
    probed = probe_qdiscs([kind for kind in QDISCS if states[kind] != "loadable"])
    # If nothing could be tried, the modules that the kernel shows have to do.
    works = probed or {kind: state == "ready" for kind, state in states.items()}
    controls = transport.congestion_controls()
    installed = [*map(_program, PROGRAMS), *_packages()]
    findings = [
        Finding(
            "root",
            os.geteuid() == 0,
            f"user id {os.geteuid()}",
            "run as root, or use --engine virtual, which needs no root",
        ),
        *installed,
        Finding(
            "network namespaces",
            any(probed.values()),
            "",
            "run as root on a kernel with CONFIG_NET_NS",
        ),
        *(of_kernel(modules.qdisc(kind), partial(works.__getitem__, kind)) for kind in QDISCS),
        *(
            of_kernel(modules.congestion_control(name), partial(controls.__contains__, name))
            for name in CONGESTION_CONTROLS
        ),
        _held_arrivals(kernel_modules, instead),
        of_kernel(modules.OPEN_VSWITCH, openvswitch.has_kernel_module, "the kernel datapath"),
        *_ip(instead),
    ]
    in_guest = [_processor(), _kernel(guest), _root(root), _planning()]
    present = {finding.feature for finding in findings if finding.present}
    needed = [modules.qdisc(kind) for kind in ("tbf", "pfifo", "bfifo")]
    needed += ["root", "network namespaces", modules.congestion_control("cubic")]
    needed += [finding.feature for finding in installed]
    return Diagnosis(
        (*findings, *in_guest),
        {
            "realtime": present.issuperset(needed),
            "virtual": all(finding.present for finding in in_guest),
        },
    )


def _ip(instead: str) -> list[Finding]:
    """Findings of IPv6 and of the kernel's tick."""
    hz = transport.kernel_hz()
    without = f"leave addressing at ipv4, or {instead}"
    effective = (hz and transport.effective_min_rto_ns(2_000_000, hz)) or 0
    jiffy = f"HZ={hz}: a minimum RTO of 2 ms becomes {effective / 1e6:g} ms" if hz else "unknown"
    return [
        Finding("IPv6", transport.has_ipv6(), "for addressing: ipv6 and both", without),
        Finding("2 ms minimum RTO", hz is not None and hz >= 500, jiffy, instead),
    ]


def _held_arrivals(kernel_modules: modules.Modules, instead: str) -> Finding:
    """Whether hosts can get their arrivals in batches; no module is loaded to find out."""
    feature = "interrupt moderation"
    parts = (modules.qdisc("netem"), *modules.HELD_ARRIVALS)
    if any(kernel_modules.look_up(part).state == "loadable" for part in parts):
        detail = "modules, loaded when a run has noise.interrupts"
        return Finding(feature, True, detail, state="loadable")
    lacking = lacking_for_held_arrivals()
    detail = f"lacks {', '.join(lacking)}" if lacking else "an ifb with slots of netem"
    return Finding(feature, not lacking, detail, f"leave noise.interrupts out, or {instead}")


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
