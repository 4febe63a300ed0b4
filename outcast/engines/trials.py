"""Tries what this machine's kernel has, in a network namespace of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from outcast import netlink
from outcast.experiment.queues import KINDS
from outcast.experiment.queues.base import Options

QDISCS: Mapping[str, Options] = {
    **{qdisc: options for kind in KINDS for qdisc, options in kind.probe.items()},
    "netem": "delay 1ms",
}
"""From each qdisc to options that a kernel with this qdisc accepts."""


_SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Folders in root's and the guest's PATH, which an ordinary user's PATH may lack."""


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

    Args:
        kind: the qdisc's name in the kernel.
        options: the qdisc's options.
        interface: the interface's name.
        python: the interpreter for options in bytes, which tc(8) cannot pass.
        program: the file of `outcast.netlink`, which that interpreter runs.
    """
    if isinstance(options, str):
        return ["tc", "qdisc", "replace", "dev", interface, "root", kind, *options.split()]
    return [python, "-I", str(program), interface, kind, options.hex()]


_HELD_ARRIVALS = {
    "ifb": "ip link add probe type ifb && ip link set probe up",
    "sch_ingress": "tc qdisc add dev lo ingress",
    "cls_matchall with act_mirred": (
        "tc filter add dev lo ingress matchall action mirred egress redirect dev lo"
    ),
    "sch_netem with slots": "tc qdisc add dev lo root netem slot 1ms 2ms",
}
"""The means that hold a host's arrivals back, and the commands that try each part of it."""


def lacking_for_held_arrivals() -> list[str]:
    """Tries in a new namespace what the kernel lacks to hold a host's arrivals back."""
    script = "\n".join(
        f"({command}) >/dev/null 2>&1 && echo '{part}'" for part, command in _HELD_ARRIVALS.items()
    )
    try:
        done = _in_new_namespace(f"{script}\ntrue\n")
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return list(_HELD_ARRIVALS)
    return [part for part in _HELD_ARRIVALS if part not in done.stdout.splitlines()]


def _in_new_namespace(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell script in a network namespace; an ordinary user's is in a user namespace."""
    argv = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    return subprocess.run(
        [*argv, "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        env={**os.environ, "PATH": search_path()},
    )


def probe_qdiscs(kinds: Collection[str]) -> dict[str, bool]:
    """Whether the kernel accepts each of these qdiscs, tried on a new namespace's loopback.

    An ordinary user tries in a user namespace. The result is empty if no namespace can be made.
    """
    lines = [
        f"{shlex.join(set_up(kind, QDISCS[kind], 'lo'))} 2>/dev/null && echo {kind}"
        for kind in sorted(kinds)
    ]
    script = "echo namespace\n" + "\n".join(lines) + "\ntrue\n"
    try:
        done = _in_new_namespace(script)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return {}
    accepted = re.findall(r"^\S+$", done.stdout, re.MULTILINE)
    if "namespace" not in accepted:
        return {}
    return {kind: kind in accepted for kind in kinds}
