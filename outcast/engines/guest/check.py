"""Run in the guest: does its kernel have what experiments use? Prints its release.

Stands alone like init.py. Every feature is used, not looked up.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

QDISCS = {
    "choke": "limit 100 bandwidth 1gbit avpkt 1000",
    "drr": "",
    "fq_pie": "",
    "hfsc": "",
    "prio": "",
    "sfb": "",
}
"""What no kind of queue is made of, and its kernel has besides."""
COMMANDS = "qdiscs.json"
"""Beside this file: the qdiscs that queues are made of, each with the first Linux that has it and
the command that makes it `DEVICE`'s root."""
DEVICE = "dummy0"
CONGESTION_CONTROLS = ("bbr", "bic", "cubic", "dctcp", "htcp", "reno", "vegas")
LINKS = ("bridge", "dummy", "ifb", "veth")
JIFFY_S = 0.001
_CLOCK_MONOTONIC_COARSE = 6
"""Its resolution is a jiffy; the time module does not name it (linux/time.h)."""


def lacking() -> list[str]:
    """What could not be set up."""
    found = [f"link {kind}" for kind in LINKS if not _ran("ip", "link", "add", "type", kind)]
    for kind, options in QDISCS.items():
        if not _ran("tc", "qdisc", "replace", "dev", DEVICE, "root", kind, *options.split()):
            found.append(f"qdisc {kind}")
    with open(os.path.join(os.path.dirname(__file__), COMMANDS), encoding="utf-8") as stream:
        for kind, since, words in json.load(stream):
            if at_least(os.uname().release, since) and not _ran(*words):
                found.append(f"qdisc {kind}")
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as stream:
        available = stream.read().split()
    found += [f"congestion control {name}" for name in CONGESTION_CONTROLS if name not in available]
    if not os.path.exists("/proc/sys/net/mptcp/enabled"):
        found.append("MPTCP")
    if time.clock_getres(time.CLOCK_MONOTONIC) > 1e-9:
        found.append("a clock of nanoseconds")
    if time.clock_getres(_CLOCK_MONOTONIC_COARSE) > JIFFY_S:
        found.append("HZ=1000")
    return found


def at_least(release: str, since: str) -> bool:
    """Whether a kernel's release, as `7.3.4`, is `since`, as `6.17`, or a later one."""
    mine, first = ([int(n) for n in re.findall("[0-9]+", text)[:2]] for text in (release, since))
    return mine >= first


def _ran(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def main() -> int:
    """Exit status 1 and a line for each thing that is missing; otherwise the kernel's release."""
    missing = lacking()
    for what in missing:
        print(what)
    if missing:
        return 1
    print(os.uname().release)
    return 0


if __name__ == "__main__":
    sys.exit(main())
