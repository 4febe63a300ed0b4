"""Whether each part of `noise` acts in real time, seen in the captures at the switches' ports.

    python -m tests.vm.noise FOLDER [--engine virtual]

All runs have one network and one traffic: a TCP flow within s2, and datagrams that cross s1. The
first run has no noise, and each other one has one part of it or a profile. All are measured in one
way. A part counts only if its run shows it and the run without noise does not. Its times are
milliseconds, because an emulated processor is late itself. A busy machine is late by tens of them,
but the kernel sends nothing too early. So a part is told by how early things happen.

The engine alone makes the runs, because an emulated processor needs many minutes to compile the
analysis. The last run is `outcast run`, and is interrupted in its traffic.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
import numpy.typing as npt

import configs
from outcast import experiment
from outcast.engines import Engine
from outcast.engines.realtime import RealtimeEngine
from outcast.engines.virtual import VirtualEngine
from tests import engine_only

CONFIG = "linear-12"
WITHOUT = "none"
Ns = npt.NDArray[np.int64]

RATE_BPS, DELAY_NS = 5 * 10**6, 2_000_000
DURATION_S = 4
SETTINGS = (
    # With this seed the oscillators of the flow's ports are off by -761 and -950 of 1000 ppm.
    *("topology.rivals=2", "links={rate: 5mbit, delay: 2ms}", "seed=5"),
    # A burst of 50 ms, so that a shaper that wakes up late catches up with its rate.
    "queue={kind: tbf, limit: 64KB, burst: 32KB}",
    *("transport.min_rto=200ms", "flows=[{from: [h3], to: [h4]}]"),
    "workloads=[{kind: constant_rate, from: [h2], to: h1, rate: 1mbit}]",
    *(f"duration={DURATION_S}s", "analysis.windows=[1s]"),
    "capture.ports=[s1-eth1, s1-eth2, s2-eth3]",
)
SINK_PORT, CROSSED = "s2-eth3", ("s1-eth2", "s1-eth1")
"""The port towards h4, and the ports by which datagrams come to s1 and leave it."""
BEGINNING_NS = 10**9
"""Slow start is over by then."""
APART_NS = 2_000_000
"""Acknowledgements that are further apart than this belong to different batches."""
FULL_FRAME_BYTES = 1514
ON_LINK_BYTES = FULL_FRAME_BYTES + 24

Effective = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run's captures show. Times are milliseconds, as 5th, 50th and 95th percentile.

    Attributes:
        held: from the first segment that comes to h4 since it last answered to its next answer.
        answered: from the segment that an answer acknowledges to the first answer of its batch.
        crossing: how long a datagram takes to cross s1; the least in place of the 5th percentile.
        off_ppm: by how much the rate of the flow is off.
    """

    held: tuple[float, float, float]
    answered: tuple[float, float, float]
    crossing: tuple[float, float, float]
    off_ppm: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the noise.

    Attributes:
        noise: the configuration's `noise`.
        in_effect: whether the settings that were read back have it.
        shows: whether the captures show it, told by what was measured and the settings.
    """

    noise: str
    in_effect: Callable[[Effective], bool] = lambda _: True
    shows: Callable[[Seen, Effective], bool] | None = None


def of_ports(effective: Effective, setting: str) -> dict[str, Any]:
    """A setting of every port that has it, by the port's name."""
    return {
        port: effective[f"{name}.{setting}"]
        for name, ports in effective.items()
        if name.startswith("ports.") and name.count(".") == 1 and f"{name}.{setting}" in effective
        for port in str(ports).split()
    }


def hardly_before(seen: tuple[float, float, float], least: float) -> bool:
    """Whether times are this long at least, but for some that belong to another batch."""
    return seen[0] >= 0.9 * least


def off_ppm(effective: Effective) -> dict[str, float]:
    """By how much the rate of every port is off."""
    rates = of_ports(effective, "rate_bps")
    return {port: (rate / RATE_BPS - 1) * 1e6 for port, rate in rates.items()}


def is_off(seen: Seen, effective: Effective) -> bool:
    """Whether the flow has the rate of one of its ports; which one depends on where it queues."""
    off = off_ppm(effective)
    least, most = sorted((off["h3-eth0"], off[SINK_PORT]))
    return most < -500 and least - 300 < seen.off_ppm < most + 300


def rates_differ(effective: Effective, most_ppm: float) -> bool:
    off = off_ppm(effective).values()
    return len(set(off)) > 5 and max(map(abs, off)) <= most_ppm + 1


PARTS = {
    WITHOUT: Part("{profile: exact}", shows=lambda *_: False),
    "interrupts": Part(
        "{profile: exact, interrupts: {least: 6ms, most: 10ms}}",
        lambda found: found.get("noise.interrupts_ns") == [6_000_000, 10_000_000],
        lambda seen, _: hardly_before(seen.held, 6),
    ),
    "sender": Part(
        "{profile: exact, sender: {least: 5ms, most: 10ms}}",
        lambda found: (
            set(of_ports(found, "sender_least_ns").items())
            == {(f"h{number}-eth0", 5_000_000) for number in range(1, 5)}
        ),
        lambda seen, _: hardly_before(seen.answered, 5),
    ),
    "switch_latency": Part(
        "{profile: exact, switch_latency: 1ms}",
        lambda found: (
            {p for p, ns in of_ports(found, "jitter_ns").items() if ns == 1_000_000}
            == {f"s{switch}-eth{port}" for switch in (1, 2) for port in (1, 2, 3)}
        ),
        lambda seen, _: 1 <= seen.crossing[0] < 1.9,
    ),
    "oscillators": Part(
        "{profile: exact, oscillators: 1000}", lambda found: rates_differ(found, 1000), is_off
    ),
    "hosts-modern": Part(
        "{profile: hosts-modern}",
        lambda found: (
            found.get("noise.interrupts_ns") == [2_000, 64_000]
            and found["offloads"] is True
            and rates_differ(found, 100)
        ),
    ),
}


def packets(target: Path, port: str, way: str) -> list[tuple[int, dpkt.ip.IP, int]]:
    """The packets of a capture: when, and the frame's length on the wire."""
    found = []
    with (target / f"captures/{port}.{way}.pcap").open("rb") as file:
        for stamp, frame in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(frame).data
            if isinstance(ip, dpkt.ip.IP):
                found.append((round(stamp * 10**9), ip, ip.len + 14))
    return found


def segment_end(ip: dpkt.ip.IP) -> int:
    """The number that acknowledges a segment, of which the capture has only the headers."""
    return int(ip.data.seq + ip.len - 4 * (ip.hl + ip.data.off))


def percentiles(times_ns: Ns, low: int = 5) -> tuple[float, float, float]:
    shares = (low, 50, 95)
    lower, middle, upper = (round(float(ns) / 1e6, 3) for ns in np.percentile(times_ns, shares))
    return lower, middle, upper


def rate_bps(left_ns: Ns) -> float:
    """The rate at which full frames left, between two that were hardly late."""
    late = left_ns - np.arange(left_ns.size) * (ON_LINK_BYTES * 8 * 10**9 // RATE_BPS)
    quarter = left_ns.size // 4
    first = int(late[:quarter].argmin())
    last = int(late[-quarter:].argmin()) + left_ns.size - quarter
    return ON_LINK_BYTES * 8e9 * (last - first) / float(left_ns[last] - left_ns[first])


def measure(target: Path) -> Seen:
    """What the captures of a run show."""
    data = [
        (at, int(ip.data.seq), segment_end(ip), length)
        for at, ip, length in packets(target, SINK_PORT, "out")
        if isinstance(ip.data, dpkt.tcp.TCP) and length == FULL_FRAME_BYTES
    ]
    start_ns, end_ns = data[0][0] + BEGINNING_NS, data[0][0] + (DURATION_S * 10**9 - 10**8)
    steady = [each for each in data if start_ns <= each[0] < end_ns]
    came = np.array([at for at, *_ in steady], np.int64)
    came_until = {last: at for at, _, last, _ in steady}
    answers = [
        (at - DELAY_NS, int(ip.data.ack))
        for at, ip, _ in packets(target, SINK_PORT, "in")
        if isinstance(ip.data, dpkt.tcp.TCP) and start_ns <= at - DELAY_NS < end_ns
    ]
    left = np.array([at for at, _ in answers], np.int64)
    first = np.flatnonzero(np.diff(left, prepend=0) > APART_NS)
    begins = left[first]  # of batches
    since = np.searchsorted(came, begins[:-1], side="right")
    held = begins[1:] - came[np.minimum(since, came.size - 1)]
    answered = [
        answers[row][0] - came_until[answers[row][1]]
        for row in first
        if answers[row][1] in came_until
    ]
    crossed = {ip.id: at for at, ip, _ in packets(target, CROSSED[0], "in") if ip.p == 17}
    crossing = [
        at - crossed[ip.id]
        for at, ip, _ in packets(target, CROSSED[1], "out")
        if ip.p == 17 and ip.id in crossed
    ]
    return Seen(
        percentiles(held[held > 0]),
        percentiles(np.array(answered, np.int64)),
        percentiles(np.array(crossing, np.int64), 0),
        round((rate_bps(came) / RATE_BPS - 1) * 1e6, 1),
    )


def ends_when_interrupted(folder: Path) -> None:
    """Presses Ctrl-C in the traffic of `outcast run` with interrupts. Raises if it ends badly."""
    argv = [sys.executable, "-c", "from outcast.cli import main; main()", "run"]
    argv += [str(configs.find(CONFIG)), "--engine", "realtime", "-o", str(folder / "run")]
    for setting in (*SETTINGS, f"noise={PARTS['interrupts'].noise}", "duration=60s"):
        argv += ["--set", setting]
    folder.mkdir()
    run = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    said = []
    for line in run.stderr:
        said.append(line)
        if "flows are running" in line:
            time.sleep(2)
            run.send_signal(signal.SIGINT)
            break
    said += run.communicate()[1].splitlines()
    assert (run.returncode, said[-1]) == (1, "outcast: interrupted"), said
    assert not list(folder.iterdir())
    folder.rmdir()


def make(name: str, engine: Engine, folder: Path) -> Effective:
    """Makes the run of a part; returns the settings that were read back."""
    settings = (*SETTINGS, f"noise={PARTS[name].noise}", f"engine={engine.name}")
    engine_only.make(experiment.read(configs.find(CONFIG), settings), engine, folder / name)
    manifest = json.loads((folder / name / "manifest.json").read_text())
    effective: Effective = manifest["effective"]
    return effective


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engine", choices=("realtime", "virtual"), default="realtime")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    wrong = []
    measured: dict[str, Seen] = {}
    for name, part in PARTS.items():
        engine = RealtimeEngine() if given.engine == "realtime" else VirtualEngine()
        effective = make(name, engine, given.folder)
        if not part.in_effect(effective):
            wrong.append(f"{name}: not in effect: {effective}")
        if part.shows is None:
            print(f"{name}: in effect", flush=True)
            continue
        measured[name] = measure(given.folder / name)
        print(f"{name}: {asdict(measured[name])}", flush=True)
        if part.shows(measured[WITHOUT], effective):
            wrong.append(f"{name}: shows in the run without it, too")
        if name != WITHOUT and not part.shows(measured[name], effective):
            wrong.append(f"{name}: does not show")
    if given.engine == "realtime":
        ends_when_interrupted(given.folder / "interrupted")
    print("\n".join(wrong) or "each part shows")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
