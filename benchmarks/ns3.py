"""Compares the time of an experiment's traffic with that of ns-3, with pcap in both.

    sudo apt-get install libns3-dev g++     # the distribution's; 3.37 on Debian 12
    .venv/bin/python benchmarks/ns3.py [CONFIG] [--repetitions 3] [--set KEY=VALUE]...

The plan of the experiment gives ns-3 the same hosts, links, delays, paths, flows, queues and
captured ports. Its switches are routers, its queues hold the same bytes, its TCP is its own. So the
packets are others, and the goodput of both is printed. Both are run in turns. Compared are seconds
of the wall clock for the traffic alone, without setting up, in which both write their captures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from outcast import experiment
from outcast.emulation.traffic.capture import SNAPLEN_BYTES
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment
from outcast.plan.make import make_plan
from outcast.units import parse_size_bytes

ROOT = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_suffix(".cc")
RECIPE = "apt-get install libns3-dev g++"
HEADER = Path("/usr/include/ns3/core-module.h")
MODULES = ("applications", "internet", "point-to-point", "traffic-control", "network", "core")
CONNECT, WHOLE, ALONE = "connect", "connecting and traffic", "traffic alone"
TCP = {"bic": "TcpBic", "cubic": "TcpCubic", "reno": "TcpLinuxReno", "dctcp": "TcpDctcp"}


@dataclass(frozen=True)
class Simulated:
    """What ns-3 took for an experiment: seconds of the wall clock, events, and bytes received."""

    wall_s: float
    events: int
    received: tuple[int, ...]


def is_installed() -> bool:
    """Whether ns-3's libraries and a compiler are here."""
    return HEADER.exists() and shutil.which("g++") is not None


def compiled(folder: Path) -> Path:
    """The program, compiled into a folder. Raises FeatureMissingError without ns-3."""
    if not is_installed():
        raise FeatureMissingError(f"ns-3 is missing; install it with: {RECIPE}")
    target = folder / "ns3"
    # What pkg-config says asks for libraries that the distribution's package does not bring.
    libraries = [f"-lns3-{module}" for module in MODULES]
    command = ["g++", "-std=c++17", "-O2", str(PROGRAM), *libraries, "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FeatureMissingError(f"ns-3: {PROGRAM.name} does not compile: {done.stderr.strip()}")
    return target


def lines_of(config: Experiment) -> list[str]:
    """The experiment in the lines that the program reads."""
    resolved = config.resolved("virtual")
    plan = make_plan(resolved)
    number = {node: place for place, node in enumerate(plan.graph.nodes)}
    queue_bytes = parse_size_bytes(str(config.queue.model_dump(mode="json")["limit"]))
    transport = config.transport
    tcp = TCP[transport.congestion_control]
    min_rto_ns = transport.min_rto_ns or 200_000_000
    lines = [
        f"run {config.duration_ns} {tcp} {min_rto_ns} {SNAPLEN_BYTES}",
        f"node {len(number)}",
    ]
    for source, target in plan.graph.edges:
        link = plan.links[source, target]
        # The preamble, the check sequence and the gap take time. A point-to-point frame of ns-3 has
        # 2 bytes of header, where Ethernet has 14.
        frame_bytes = link.framing.wire_bytes(link.frame_bytes)
        rate = round(link.rate_bps * (link.mtu_bytes + 2) / frame_bytes)
        lines.append(
            f"link {number[source]} {number[target]} {rate} {link.delay_ns or 0} {queue_bytes}"
        )
    routes = set()
    for flow in plan.flows:
        for path in (flow.path, plan.path(flow.dst, flow.src, flow.five_tuple.reversed())):
            routes |= {(node, path[-1], following) for node, following in pairwise(path)}
    lines += [f"route {number[a]} {number[b]} {number[c]}" for a, b, c in sorted(routes)]
    lines += [f"flow {number[flow.src]} {number[flow.dst]}" for flow in plan.flows]
    ports = dict.fromkeys(port for port, _ in plan.capture_ports)
    ends = [plan.ends[port] for port in ports]
    return lines + [f"capture {number[node]} {number[following]}" for node, following in ends]


def simulate(program: Path, lines: Sequence[str], folder: Path) -> Simulated:
    """Runs the program once. Its captures go to the folder."""
    done = subprocess.run(
        [str(program), str(folder)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"ns-3 ended with status {done.returncode}: {done.stderr.strip()}")
    wall_s, events, *received = done.stdout.split()
    return Simulated(float(wall_s), int(events), tuple(map(int, received)))


def seconds(run: Path) -> dict[str, float]:
    """What a run of outcast took: from the start of its flows' programs, and from the first byte.

    Older states recorded only the first, as the phase of the traffic.
    """
    phases = json.loads((run / "manifest.json").read_text())["wall_s"]
    if CONNECT not in phases:
        return {WHOLE: phases["traffic"]}
    return {WHOLE: phases[CONNECT] + phases["traffic"], ALONE: phases["traffic"]}


def main() -> int:
    """Runs both in turns and prints the quotients."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path, nargs="?", default=ROOT / "configs/fig3c.yaml")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    given = parser.parse_args()
    config = experiment.load(given.config, given.settings)
    quotients = []
    with tempfile.TemporaryDirectory(prefix="outcast-ns3-") as name:
        scratch = Path(name)
        program, lines = compiled(scratch), lines_of(config)
        options = [word for setting in given.settings for word in ("--set", setting)]
        for number in range(given.repetitions):
            there = simulate(program, lines, scratch)
            run = scratch / f"run-{number}"
            argv = [sys.executable, "-m", "outcast", "run", str(given.config), *options]
            argv += ["--engine", "virtual", "-o", str(run)]
            subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
            here_s = seconds(run)[ALONE]
            goodput = json.loads((run / "summary.json").read_text())["total_goodput_bps"] / 1e6
            theirs = sum(there.received) * 8e3 / config.duration_ns
            quotients.append(here_s / there.wall_s)
            print(
                f"outcast {here_s:.2f} s ({goodput:.0f} Mbps), ns-3 {there.wall_s:.2f} s "
                f"({theirs:.0f} Mbps, {there.events} events): {quotients[-1]:.2f}",
                flush=True,
            )
    print(f"outcast takes {median(quotients):.2f} times ns-3's time; load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
