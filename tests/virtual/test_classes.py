"""Classes of service with TCP and UDP: the packets' code points, and what each class gets."""

from collections import Counter
from pathlib import Path

import dpkt
import polars as pl
import pytest

import outcast
from outcast.records.run import Run
from tests import guest_runs

RATE_MBPS = 100.0
PAYLOAD_SHARE = 1448 / (1514 + 24)
CONFIG = """
name: classes
duration: {duration}
addressing: {addressing}
topology: {{kind: star, hosts: 4}}
links: {{rate: 100mbit, delay: 100us}}
noise: {{profile: exact}}
transport: {{congestion_control: cubic}}
queue: {queue}
"""
PRIO = """{kind: prio, limit: 60 packets, classes: [
  {name: first, dscp: ef}, {name: second, dscp: af11}, {name: rest}]}
flows:
  - {name: urgent, from: h1, to: h4, start: 300ms, duration: 400ms, dscp: ef}
  - {name: bulk, from: h2, to: h4}
workloads:
  - {kind: constant_rate, from: h3, to: h4, rate: 10mbit, datagram: 1400B, dscp: af11}
  - {kind: incast, to: h4, senders: 1, block: 20KB, rounds: 2, dscp: 11}
"""


def run(folder: Path, queue: str, duration: str, addressing: str = "ipv4") -> Run:
    config = folder / "classes.yaml"
    config.write_text(CONFIG.format(queue=queue, duration=duration, addressing=addressing))
    guest_runs.run(config, folder / "run")
    return outcast.open_run(folder / "run")


def goodput_mbps(run: Run, flow: int, since_s: float, until_s: float) -> float:
    bins = run.table("throughput").filter(
        pl.col("flow") == flow, pl.col("t").is_between(since_s * 1e9, until_s * 1e9, closed="left")
    )
    return float(bins["goodput_bps"].mean() or 0) / 1e6


def code_points(capture: Path) -> dict[tuple[str, int], set[int]]:
    """The code points of all packets, by source address and port."""
    seen: dict[tuple[str, int], Counter[int]] = {}
    with capture.open("rb") as file:
        for _, frame in dpkt.pcap.Reader(file):
            packet = dpkt.ethernet.Ethernet(frame).data
            is_ipv6 = isinstance(packet, dpkt.ip6.IP6)
            tos = packet.fc if is_ipv6 else packet.tos
            key = (dpkt.utils.inet_to_str(packet.src), packet.data.sport)
            seen.setdefault(key, Counter())[tos >> 2] += 1
    return {key: set(points) for key, points in seen.items()}


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6"])
def test_an_urgent_class_has_the_link_and_the_rest_what_it_leaves(tmp_path, addressing):
    found = run(tmp_path, PRIO, "1s", addressing)
    assert goodput_mbps(found, 0, 0.4, 0.7) == pytest.approx(RATE_MBPS * PAYLOAD_SHARE, rel=0.03)
    assert goodput_mbps(found, 1, 0.4, 0.7) < 1
    assert goodput_mbps(found, 1, 0.8, 1) > 50
    # The join's drops are those of each class, though the starved ones waited for 0.4 s.
    assert found.trusted
    own = found.counters.ports["s1-eth4"].after["own"]
    assert own["class_1_drops"] == 0 < own["class_2_drops"] + own["class_3_drops"]
    classes = found.summary.queue["s1-eth4"].classes
    assert [*classes] == ["first", "second", "rest"]
    assert all(part.counted == part.captured for part in classes.values())
    assert classes["rest"].captured.dropped == own["class_3_drops"]
    within = sum(part.dropped for part in found.summary.drops.values())
    assert sum(part.dropped for part in classes.values()) == within
    points = [
        one for _, one in sorted(code_points(found.path / "captures/s1-eth4.out.pcap").items())
    ]
    assert sorted(map(sorted, points)) == [[0], [10], [11], [46]]


VOICE = """{kind: prio, limit: 60 packets, classes: [{name: voice, dscp: ef}, {name: rest}]}
flows:
  - {name: bulk, from: [h2, h3], to: h4}
workloads:
  - {kind: constant_rate, from: h1, to: h4, rate: 640kbit, datagram: 160B, dscp: ef}
"""


def test_an_urgent_packet_waits_for_the_frame_that_is_on_the_link(tmp_path):
    found = run(tmp_path, VOICE, "1s")
    frame_ms, link_ms = 1538 * 8 / (RATE_MBPS * 1e3), 0.1
    (workload,) = found.summary.completions.values()
    waits = workload.streams.delay_ms
    assert waits.max - link_ms == pytest.approx(frame_ms, rel=0.1)
    # The rest of a frame in whose midst a packet comes is half of it on average.
    assert waits.mean - link_ms == pytest.approx(frame_ms / 2, rel=0.2)
    assert found.table("bins")["utilisation"].max() <= 1.001


PROBED = """{kind: prio, limit: 60 packets, classes: [{name: voice, dscp: ef}, {name: rest}]}
flows:
  - {name: bulk, from: [h2, h3], to: h4}
probes:
  - {from: h1, to: h4, dscp: ef}
  - {from: h1, to: h4, dscp: ef, kind: udp}
  - {from: h1, to: h4}
"""


def test_probes_measure_the_class_of_their_code_point(tmp_path):
    found = run(tmp_path, PROBED, "1s")
    frame_ms = 1538 * 8 / (RATE_MBPS * 1e3)
    rtts = [part.rtt_ms for part in found.summary.probes.values()]
    bases = [part.base_rtt_ms for part in found.summary.probes.values()]
    # Each way an urgent packet waits for the frame on the link, and for another probe.
    assert all(
        rtt is not None and rtt.max - base < 2.5 * frame_ms
        for rtt, base in zip(rtts[:2], bases[:2], strict=True)
    )
    assert rtts[2].p50 - bases[2] > 20 * frame_ms
    # The answers of the marked ones are marked too.
    classes = found.summary.queue["s1-eth4"].classes
    assert classes["voice"].captured.sent == 200
    back = found.counters.ports["s1-eth1"].after["own"]
    assert back["class_1_packets"] == 200
