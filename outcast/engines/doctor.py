"""Diagnoses what this machine can emulate, feature by feature, with remedies for what it cannot."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TypeVar

from outcast import netlink
from outcast.emulation.network import openvswitch, transport
from outcast.engines import modules
from outcast.engines.guest import boot, check, kernels, parts, roots, world
from outcast.engines.guest.check import at_least
from outcast.engines.guest.kernels import Kernel
from outcast.engines.guest.roots import Root
from outcast.engines.guest.world import World
from outcast.engines.modules import State
from outcast.errors import FeatureMissingError, KernelError, RootError
from outcast.experiment.engine import EngineName
from outcast.experiment.queues import KINDS
from outcast.experiment.queues.base import Options, QueueKind

Kept = TypeVar("Kept", Kernel, Root)

SINCE = {qdisc: kind.since for kind in KINDS for qdisc in kind.probe}
"""The first Linux that has each qdisc of a queue kind, as the kind says."""

QDISCS: Mapping[str, Options] = {
    **{qdisc: options for kind in KINDS for qdisc, options in kind.probe.items()},
    "netem": "delay 1ms",
}
"""From each qdisc to options that a kernel with this qdisc accepts."""

CONGESTION_CONTROLS = ("bic", "cubic", "reno", "dctcp", "bbr")

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
_SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Folders in root's and the guest's PATH, which an ordinary user's PATH may lack."""

HELD_ARRIVALS = "interrupt moderation"
_HELD_ARRIVALS = (
    "ip link add probe type ifb",
    "tc qdisc add dev lo ingress",
    "tc filter add dev lo ingress matchall action mirred egress redirect dev lo",
    "tc qdisc add dev lo root netem slot 1ms 2ms",
)
"""The commands that try what holds a host's arrivals back (network/interrupt_moderation.py)."""


class Finding(NamedTuple):
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


class Diagnosis(NamedTuple):
    """All findings, and for each engine whether it can run the default experiment."""

    findings: tuple[Finding, ...]
    engines: dict[str, bool]


def _finding(
    feature: str,
    present: bool,
    detail: str = "",
    remedy: str = "",
    engine: EngineName = "realtime",
) -> Finding:
    state: State = "ready" if present else "absent"
    return Finding(feature, present, detail, "" if present else remedy, state, engine)


def search_path() -> str:
    """The search path for programs, because an ordinary user's PATH leaves out system folders."""
    own = os.environ.get("PATH", os.defpath)
    return own if os.geteuid() == 0 else f"{own}:{_SYSTEM_PROGRAMS}"


def set_up(
    kind: str,
    options: Options,
    interface: str,
    *,
    python: str = sys.executable,
    program: Path = Path(netlink.__file__),
) -> list[str]:
    """The command that makes a qdisc an interface's root. It fails if the kernel refuses.

    Options in bytes, which tc(8) cannot pass, go by this `python`. It runs `program`, the file of
    `outcast.netlink`.
    """
    if isinstance(options, str):
        return ["tc", "qdisc", "replace", "dev", interface, "root", kind, *options.split()]
    return [python, "-I", str(program), interface, kind, options.hex()]


def works(commands: Mapping[str, str]) -> dict[str, bool]:
    """Whether each of a shell's commands works in new network and mount namespaces, by its name.

    An ordinary user's is in a user namespace. The result is empty if none can be made.
    """
    tried = [f"({run}) >/dev/null 2>&1 && echo '{name}'" for name, run in commands.items()]
    argv = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    try:
        done = subprocess.run(
            [*argv, "sh", "-c", "\n".join(["echo namespace", *tried, "true"])],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
            env={**os.environ, "PATH": search_path()},
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return {}
    said = done.stdout.splitlines()
    return {name: name in said for name in commands} if said else {}


def probe_qdiscs(kinds: Collection[str]) -> dict[str, bool]:
    """Whether the kernel accepts each of these qdiscs; empty if no namespace can be made."""
    return works({kind: shlex.join(set_up(kind, QDISCS[kind], "lo")) for kind in sorted(kinds)})


def holds_arrivals() -> bool:
    """Whether hosts can get their arrivals in batches."""
    return works({HELD_ARRIVALS: " && ".join(_HELD_ARRIVALS)}).get(HELD_ARRIVALS, False)


def require_programs(besides: Collection[str] = ()) -> None:
    """Checks that all is installed here that the inner program starts and imports.

    The virtual engine needs it only with `guest.root: host`. `besides` names programs that only
    real time needs.

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
    return _finding(name, is_there, command, remedy)


def _packages() -> list[Finding]:
    """Findings of Python packages. They are not imported, because that takes half a second."""
    mininet = find_spec("mininet")
    is_own = mininet is not None and not roots.is_the_guests(mininet)
    has_framework = find_spec("eventlet") and any(map(find_spec, ("ryu", "os_ken")))
    return [
        _finding(
            "Mininet's Python package",
            is_own,
            "of this Python" if is_own else "",
            "install Debian's package mininet (scripts/install.sh does), and make the virtual "
            "environment from /usr/bin/python3 with --system-site-packages",
        ),
        _finding(
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
    installed = [*map(_program, PROGRAMS), *_packages()]
    findings = [
        _finding("root", os.geteuid() == 0, "", "run as root, or use --engine virtual"),
        *installed,
        *_of_kernel(guest, kernel_modules or modules.Modules()),
    ]
    in_guest = _of_guest(guest, root)
    present = {finding.feature for finding in findings if finding.present}
    needed = [modules.qdisc(kind) for kind in ("tbf", "pfifo", "bfifo")]
    needed += ["root", _NAMESPACES, modules.congestion_control("cubic")]
    needed += [finding.feature for finding in installed]
    return Diagnosis(
        (*findings, *in_guest),
        {
            "realtime": present.issuperset(needed),
            "virtual": all(finding.present for finding in in_guest),
        },
    )


_NAMESPACES = "network namespaces"
MAKES_NAMESPACES = (
    "run as root, with CONFIG_NET_NS; a chroot's root has to be a mount point (mount --bind)"
)


def _of_kernel(guest: Kernel | None, kernel_modules: modules.Modules) -> Iterator[Finding]:
    """Findings of this machine's kernel. A module on disk is not tried, because that loads it."""
    qdiscs = {modules.qdisc(kind): kind for kind in QDISCS}
    controls = {modules.congestion_control(name): name for name in CONGESTION_CONTROLS}
    features = [*qdiscs, *controls, modules.OPEN_VSWITCH]
    known = {name: kernel_modules.look_up(name) for name in (*features, *modules.HELD_ARRIVALS)}
    on_disk = {name for name, lookup in known.items() if lookup.state == "loadable"}
    probed = probe_qdiscs([kind for name, kind in qdiscs.items() if name not in on_disk])
    registered = transport.congestion_controls()
    instead = "use --engine virtual"
    if guest is None:
        instead += ", once its guest is there (scripts/guest/build)"
    yield _finding(_NAMESPACES, any(probed.values()), "", MAKES_NAMESPACES)
    for name in features:
        state, detail = known[name]
        if state == "loadable":
            yield Finding(name, True, detail, state=state)
            continue
        if name == modules.OPEN_VSWITCH:
            is_there = openvswitch.has_kernel_module()
        elif name in controls:
            is_there = controls[name] in registered
        else:
            # If nothing could be tried, the modules that the kernel shows have to do.
            is_there = probed.get(qdiscs[name], False) if probed else state == "ready"
        remedy = guest_is_too_old(qdiscs.get(name, ""), guest) or instead
        yield _finding(name, is_there, "" if is_there else detail, remedy)
    remedy = f"leave noise.interrupts out, or {instead}"
    if on_disk & {modules.qdisc("netem"), *modules.HELD_ARRIVALS}:
        detail = "modules, loaded when a run has noise.interrupts"
        yield Finding(HELD_ARRIVALS, True, detail, state="loadable")
    else:
        yield _finding(HELD_ARRIVALS, holds_arrivals(), "", remedy)
    yield _finding("IPv6", transport.has_ipv6(), "", f"leave addressing at ipv4, or {instead}")
    hz = transport.kernel_hz()
    effective = (hz and transport.effective_min_rto_ns(2_000_000, hz)) or 0
    jiffy = f"HZ={hz}: a minimum RTO of 2 ms becomes {effective / 1e6:g} ms" if hz else "unknown"
    yield _finding("2 ms minimum RTO", hz is not None and hz >= 500, jiffy, instead)


def guest_is_too_old(qdisc: str, guest: Kernel | None) -> str:
    """The remedy where the virtual engine's kernel is older than a qdisc; empty where it is not."""
    since = SINCE.get(qdisc, QueueKind.since)
    if not qdisc or guest is None or at_least(guest.release, since):
        return ""
    return (
        f"build the virtual engine's kernel from Linux {since} or later (scripts/guest/build "
        f"--tarball FILE); it is {guest.release}"
    )


def _of_guest(kernel: Kernel | None, root: Root | None) -> list[Finding]:
    """What the virtual engine needs: parts of the guest are there, and as they were kept."""
    unfit = parts.processor_misfit()
    spec = find_spec("mininet")
    whose = "the guest's root" if spec and roots.is_the_guests(spec) else "this Python"
    topo, of = "Mininet's Topo, which plans", f"of {whose}" if spec else ""
    return [
        _finding("virtual engine's processor", not unfit, parts.PROCESSOR, unfit, "virtual"),
        _part("kernel", kernel, parts.PINNED.kernel, kernels.verify),
        _part("root", root, parts.PINNED.runtime, partial(roots.verify, every_byte=True)),
        _finding(topo, spec is not None, of, roots.MININET_REMEDY, "virtual"),
    ]


def _part(name: str, part: Kept | None, key: str, verify: Callable[[Kept], None]) -> Finding:
    feature = f"virtual engine's {name}"
    if part is None:
        remedy = parts.misfit(f"{name}s", key) or parts.REMEDY
        return _finding(feature, False, "", remedy, "virtual")
    try:
        verify(part)
    except (KernelError, RootError) as error:
        return _finding(feature, False, str(error), "run: scripts/guest/build --again", "virtual")
    is_shipped = parts.part_of(f"{name}s", part.key) is not None
    origin = f"from {parts.PROJECT}" if is_shipped else "made here"
    return _finding(feature, True, f"{part.key}, {origin}, verified", "", "virtual")


def boot_and_try(program: Path, sees: World) -> check.Said:
    """Boots a kernel and tries in its guest what experiments use. Returns what the kernel says.

    Raises:
        GuestError: it does not boot.
        KernelError: it lacks something.
    """
    # The check has a folder of its own, because the guest may write to it.
    with tempfile.TemporaryDirectory(prefix="outcast-check-") as name:
        argv = prepare_check(Path(name))
        lines: list[str] = []
        guest = boot.Boot(program, Path(name), argv, seed=1, sees=sees)
        result = boot.boot(guest, lines.append)
    if result.status != 0 or not lines:
        raise KernelError(
            f"the kernel boots, but lacks something: {' | '.join([*lines, *result.console][-5:])}"
        )
    said: check.Said = json.loads(lines[-1])
    return said


def prepare_check(folder: Path) -> list[str]:
    """Puts the program that tries the guest's features into a folder; the command that runs it."""
    for module in (check, netlink):
        source = Path(str(module.__file__))
        shutil.copyfile(source, folder / source.name)
    program = boot.RUN_DIRECTORY / Path(netlink.__file__).name
    qdiscs = [
        (
            qdisc,
            SINCE.get(qdisc, QueueKind.since),
            set_up(qdisc, options, check.DEVICE, python=world.PYTHON, program=program),
        )
        for qdisc, options in QDISCS.items()
    ]
    (folder / check.COMMANDS).write_text(json.dumps(qdiscs), encoding="utf-8")
    return [world.PYTHON, "-I", str(boot.RUN_DIRECTORY / Path(check.__file__).name)]
