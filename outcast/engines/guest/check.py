"""Run in the guest: does its kernel have what experiments use? Prints its release.

Stands alone like init.py. Every feature is used, not looked up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

QDISCS = {
    "bfifo": "limit 16384",
    "cake": "",
    "choke": "limit 100 bandwidth 1gbit avpkt 1000",
    "codel": "",
    "drr": "",
    "fq": "",
    "fq_codel": "",
    "fq_pie": "",
    "hfsc": "",
    "htb": "default 1",
    "netem": "delay 50us",
    "pfifo": "limit 100",
    "pie": "",
    "prio": "",
    "red": "limit 65536 min 4542 max 13626 avpkt 1000 burst 8 probability 1.0",
    "sfb": "",
    "sfq": "",
    "tbf": "rate 1gbit burst 1600 limit 16384",
}
CONGESTION_CONTROLS = ("bbr", "bic", "cubic", "dctcp", "htcp", "reno", "vegas")
LINKS = ("bridge", "dummy", "ifb", "veth")
JIFFY_S = 0.001
_CLOCK_MONOTONIC_COARSE = 6
"""Its resolution is a jiffy; the time module does not name it (linux/time.h)."""


def lacking() -> list[str]:
    """What could not be set up."""
    found = [f"link {kind}" for kind in LINKS if not _ran("ip", "link", "add", "type", kind)]
    for kind, options in QDISCS.items():
        words = ["tc", "qdisc", "replace", "dev", "dummy0", "root", kind, *options.split()]
        if not _ran(*words):
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
