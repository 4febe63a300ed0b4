"""What this machine can emulate, feature by feature, and what to do about what it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass

from outcast import openvswitch, transport

QDISCS = {
    "tbf": "tbf rate 1mbit burst 5kb limit 10kb",
    "htb": "htb default 1",
    "pfifo": "pfifo limit 10",
    "bfifo": "bfifo limit 10000",
    "red": "red limit 60000 avpkt 1000 burst 20",
    "sfq": "sfq",
    "fq": "fq",
    "codel": "codel",
    "fq_codel": "fq_codel",
    "pie": "pie",
    "cake": "cake",
    "netem": "netem delay 1ms",
}
"""Each qdisc with parameters that it accepts."""

CONGESTION_CONTROLS = ("bic", "cubic", "reno", "dctcp", "bbr")

INSTALL = "run scripts/install.sh"
VIRTUAL = "use --engine virtual; its kernel has it (outcast kernel build)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One feature.

    Attributes:
        feature: its name.
        present: whether it is there.
        detail: what was found.
        remedy: what to do where it is not there.
    """

    feature: str
    present: bool
    detail: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, and for each engine whether it can run the default experiment."""

    findings: tuple[Finding, ...]
    engines: dict[str, bool]


PROGRAMS = {
    "mnexec": "Mininet",
    "ovs-vswitchd": "Open vSwitch",
    "iperf": "iperf 2",
    "tcpdump": "tcpdump",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "unshare": "unshare",
    "setpriv": "setpriv",
    "cc": "a C compiler",
}


def diagnose(virtual: Callable[[], Finding]) -> Diagnosis:
    """Looks at everything. `virtual` tells about the virtual engine's kernel."""
    findings = [
        Finding(
            "root",
            os.geteuid() == 0,
            f"user id {os.geteuid()}",
            "run as root, or use --engine virtual, which needs no root",
        )
    ]
    programs = [
        Finding(name, shutil.which(program) is not None, program, INSTALL)
        for program, name in PROGRAMS.items()
    ]
    findings += programs
    modules = [_importable("mininet.net", "Mininet's Python package"), _controller_framework()]
    findings += modules
    probed = probe_qdiscs(QDISCS)
    namespaces = bool(probed)
    findings.append(
        Finding(
            "network namespaces",
            namespaces,
            "made one and set up a qdisc in it" if namespaces else "none could be made",
            "run as root on a kernel with CONFIG_NET_NS",
        )
    )
    findings += [Finding(f"qdisc {kind}", probed.get(kind, False), "", VIRTUAL) for kind in QDISCS]
    available = congestion_controls()
    findings += [
        Finding(f"congestion control {name}", name in available, "", VIRTUAL)
        for name in CONGESTION_CONTROLS
    ]
    module = openvswitch.has_kernel_module()
    findings.append(
        Finding(
            "Open vSwitch kernel module",
            module,
            "the kernel datapath" if module else "the kernel's bridge forwards by its flow tables",
            "install the distribution's kernel with its modules, or " + VIRTUAL,
        )
    )
    hz = transport.kernel_hz()
    jiffy = f"HZ={hz}: a minimum RTO of 2 ms becomes {_effective_ms(hz)}" if hz else "unknown"
    findings.append(Finding("2 ms minimum RTO", hz is not None and hz >= 500, jiffy, VIRTUAL))
    kernel = virtual()
    findings.append(kernel)
    needed = ("tbf", "pfifo", "bfifo")
    realtime = (
        os.geteuid() == 0
        and namespaces
        and all(each.present for each in (*programs, *modules))
        and all(probed.get(kind, False) for kind in needed)
        and "cubic" in available
    )
    return Diagnosis(tuple(findings), {"realtime": realtime, "virtual": kernel.present})


def _effective_ms(hz: int) -> str:
    effective = transport.effective_min_rto_ns(2_000_000, hz) or 0
    return f"{effective / 1e6:g} ms"


def _importable(module: str, name: str) -> Finding:
    try:
        __import__(module)
    except ImportError as error:
        return Finding(name, False, str(error), INSTALL)
    return Finding(name, True, module)


def _controller_framework() -> Finding:
    try:
        from controllers import openflow
    except ImportError as error:
        return Finding("Ryu or os-ken", False, str(error), INSTALL)
    return Finding("Ryu or os-ken", True, openflow.framework)


def congestion_controls() -> list[str]:
    """Those that this kernel has, built in or loaded."""
    try:
        return transport.AVAILABLE_CONGESTION_CONTROLS.read_text().split()
    except OSError:
        return []


def probe_qdiscs(kinds: Collection[str]) -> dict[str, bool]:
    """Which of these qdiscs the kernel accepts, tried on a namespace's own loopback.

    An ordinary user tries in a user namespace. Empty where no namespace can be made.
    """
    lines = [
        f"tc qdisc replace dev lo root {QDISCS[kind]} 2>/dev/null && echo {kind}"
        for kind in sorted(kinds)
    ]
    script = "echo namespace\n" + "\n".join(lines) + "\ntrue\n"
    argv = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    try:
        done = subprocess.run(
            [*argv, "sh", "-c", script], capture_output=True, text=True, check=False, timeout=20
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return {}
    accepted = re.findall(r"^\S+$", done.stdout, re.MULTILINE)
    if "namespace" not in accepted:
        return {}
    return {kind: kind in accepted for kind in kinds}
