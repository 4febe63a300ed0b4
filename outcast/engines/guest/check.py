"""Checks in the guest whether its kernel has what experiments use, and prints what it is.

It stands alone like init.py. It uses every feature, because a feature that is listed may not work.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import TypedDict


class Said(TypedDict):
    """A kernel's facts about itself.

    Attributes:
        congestion_controls: all that it has. It loads no module by itself.
    """

    release: str
    congestion_controls: list[str]


QDISCS = {
    "choke": "limit 100 bandwidth 1gbit avpkt 1000",
    "fq_pie": "",
    "hfsc": "",
    "sfb": "",
}
"""Qdiscs that the guest's kernel has besides those that queue kinds use, with their options."""
COMMANDS = "qdiscs.json"
"""A file beside this one: the qdiscs that queue kinds use. Each has the first Linux that knows it
and the command that makes it the root of `DEVICE`."""
DEVICE = "dummy0"
CONGESTION_CONTROLS = ("bbr", "bic", "cubic", "dctcp", "htcp", "reno", "vegas")
SEAL = "/sys/module/hostfs/parameters/sealed"
LINKS = ("bridge", "dummy", "ifb", "veth")
JIFFY_S = 0.001
_CLOCK_MONOTONIC_COARSE = 6
"""A clock with the resolution of a jiffy (linux/time.h); the time module does not name it."""


def lacking() -> list[str]:
    """The features that could not be used."""
    missing = [f"link {kind}" for kind in LINKS if not _ran("ip", "link", "add", "type", kind)]
    for kind, options in QDISCS.items():
        if not _ran("tc", "qdisc", "replace", "dev", DEVICE, "root", kind, *options.split()):
            missing.append(f"qdisc {kind}")
    with open(os.path.join(os.path.dirname(__file__), COMMANDS), encoding="utf-8") as stream:
        for kind, since, words in json.load(stream):
            if at_least(os.uname().release, since) and not _ran(*words):
                missing.append(f"qdisc {kind}")
    available = congestion_controls()
    missing += [
        f"congestion control {name}" for name in CONGESTION_CONTROLS if name not in available
    ]
    if not os.path.exists("/proc/sys/net/mptcp/enabled"):
        missing.append("MPTCP")
    if time.clock_getres(time.CLOCK_MONOTONIC) > 1e-9:
        missing.append("a clock of nanoseconds")
    if time.clock_getres(_CLOCK_MONOTONIC_COARSE) > JIFFY_S:
        missing.append("HZ=1000")
    if not _is_sealed():
        missing.append("a hostfs that can be sealed")
    return missing


def _is_sealed() -> bool:
    """Whether nothing more of the host can be mounted, as init.py made sure of."""
    try:
        with open(SEAL, encoding="ascii") as stream:
            return stream.read() == "Y\n"
    except OSError:
        return False


def congestion_controls() -> list[str]:
    """The congestion controls that the kernel has."""
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as stream:
        return sorted(stream.read().split())


def at_least(release: str, since: str) -> bool:
    """Whether a kernel's release, such as `7.3.4`, is `since`, such as `6.17`, or a later one."""
    mine, first = ([int(n) for n in re.findall("[0-9]+", text)[:2]] for text in (release, since))
    return mine >= first


def _ran(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def main() -> int:
    """Prints a line of JSON (`Said`); or a line for each missing feature, with exit status 1."""
    missing = lacking()
    for what in missing:
        print(what)
    if missing:
        return 1
    said = Said(release=os.uname().release, congestion_controls=congestion_controls())
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
