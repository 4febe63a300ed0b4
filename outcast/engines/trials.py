"""Tries what this machine's kernel has, in a network namespace of its own."""

from __future__ import annotations

import os
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

    Options in bytes, which tc(8) cannot pass, go by this `python`. It runs `program`, the file of
    `outcast.netlink`.
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
    works = _working(_HELD_ARRIVALS) or ()
    return [part for part in _HELD_ARRIVALS if part not in works]


def probe_qdiscs(kinds: Collection[str]) -> dict[str, bool]:
    """Whether the kernel accepts each of these qdiscs, tried on a new namespace's loopback.

    The result is empty if no namespace can be made.
    """
    works = _working({kind: shlex.join(set_up(kind, QDISCS[kind], "lo")) for kind in sorted(kinds)})
    return {} if works is None else {kind: kind in works for kind in kinds}


def _working(commands: Mapping[str, str]) -> list[str] | None:
    """The names of those commands of a shell that work in a new network namespace.

    An ordinary user's is in a user namespace. None if none can be made.
    """
    tried = [f"({run}) >/dev/null 2>&1 && echo '{name}'" for name, run in commands.items()]
    argv = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
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
        return None
    said = done.stdout.splitlines()
    return said[1:] if said else None
