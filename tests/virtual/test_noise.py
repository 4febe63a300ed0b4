"""Each part of `noise` does what it says, seen in the captures at the switches' ports."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from outcast.analysis.capture.pcap import read_capture
from outcast.plan.noise import interval_ns as interval_of
from tests import guest_runs

NETWORK = (
    *("topology.rivals=2", "links={rate: 1gbit, delay: 5us}", "duration=40ms"),
    *("analysis={windows: [], bin: 10ms}", "capture.ports=all"),
)
DELAY_NS = 5000
FRAME_NS = 12_304
STEADY_NS = 38_000_000
HOSTS = frozenset(f"10.0.0.{number}" for number in range(1, 5))
UNLIKELY = 1e-6
"""Below this share of chances a draw is not from the distribution. The seed is fixed."""


def captured(target: Path, port: str, way: str) -> Any:
    """The columns of a capture."""
    return read_capture(port, target / f"captures/{port}.{way}.pcap", HOSTS).columns


def traffic(target: Path) -> tuple[np.ndarray, np.ndarray]:
    """When data reaches the receiver h1, and when its acknowledgements leave it, in nanoseconds.

    The handshakes before the start are left out, and how the connection ends.
    """
    data = captured(target, "s1-eth1", "out")
    start_ns = data.stamp_ns[data.payload_bytes > 1000][0]
    times = (arrived_ns(data), left_ns(captured(target, "s1-eth1", "in"), DELAY_NS))
    arrivals, left = (ns[(ns >= start_ns) & (ns < start_ns + STEADY_NS)] for ns in times)
    return arrivals, left


def own_ns(packets: Any) -> np.ndarray:
    """How long each frame takes on its link."""
    return 8 * np.maximum(packets.frame_bytes.astype(np.int64) + 24, 84)


def arrived_ns(packets: Any) -> np.ndarray:
    """When the last bit of what a switch sent is at the host. The delay comes before the port."""
    return packets.stamp_ns + own_ns(packets)


def left_ns(packets: Any, delay_ns: int) -> np.ndarray:
    """When a host sent what came in at a switch.

    Frames that follow one another at once were sent together, with the first of them.
    """
    ends_ns = packets.stamp_ns - delay_ns
    starts_ns = ends_ns - own_ns(packets)
    follows = np.concatenate([[False], starts_ns[1:] == ends_ns[:-1]])
    first = np.maximum.accumulate(np.where(follows, 0, np.arange(len(starts_ns))))
    return starts_ns[first]


def is_uniform(drawn: np.ndarray, least: float, most: float) -> bool:
    assert drawn.min() >= least - 1
    assert drawn.max() <= most + 1
    return stats.kstest(drawn, stats.uniform(least, most - least).cdf).pvalue > UNLIKELY


def first_since(arrivals: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """For each batch but the first, when the first packet came after the batch before it."""
    return arrivals[np.searchsorted(arrivals, ends[:-1], side="right")]


def test_a_host_gets_its_arrivals_in_batches(tmp_path):
    target = tmp_path / "run"
    noise = "noise={profile: exact, interrupts: {least: 50us, most: 250us}}"
    guest_runs.run("linear-12", target, *NETWORK, noise, "flows=[{from: 2-hop, hosts: 1}]")
    assert guest_runs.manifest_of(target)["effective"]["noise.interrupts_ns"] == [50_000, 250_000]
    arrivals, acks = traffic(target)
    # The host answers a batch at one instant, and no two batches are nearer than the least time.
    batches = np.unique(acks)
    assert np.diff(batches).min() >= 50_000
    waits = batches[1:] - first_since(arrivals, batches)
    assert len(waits) > 150
    assert is_uniform(waits, 50_000, 250_000)
    # At full rate, which slow start reaches after a few batches, a batch has as many packets as go
    # into its time.
    counts = np.diff(np.searchsorted(arrivals, batches, side="right"))
    assert np.all(np.abs(counts - waits / FRAME_NS)[10:] <= 2)
    # The port that is studied goes on without a gap.
    gaps = np.diff(arrivals)
    assert np.mean(gaps == FRAME_NS) > 0.95


def interrupts_of(arrivals: np.ndarray, interval_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """When a card interrupts that counts from its last interrupt, and how many packets it brings.

    This is what the drivers' manuals say. A packet that comes to a quiet card interrupts alone.
    """
    interrupts: list[tuple[int, int]] = []
    at = 0
    while at < len(arrivals):
        now = int(arrivals[at])
        earliest = interrupts[-1][0] + interval_ns if interrupts else now
        end = at + 1 if now >= earliest else int(np.searchsorted(arrivals, earliest, side="right"))
        interrupts.append((max(now, earliest), end - at))
        at = end
    times, packets = zip(*interrupts, strict=True)
    return np.array(times), np.array(packets)


def test_a_card_counts_from_its_last_interrupt(tmp_path):
    target = tmp_path / "run"
    noise = "noise={profile: exact, interrupts: {per_second: 20000}}"
    # With this delay slow start has quiet times between its rounds, and none after them.
    summary = guest_runs.run(
        *("linear-12", target, *NETWORK, f"links={{rate: 1gbit, delay: {DELAY_NS * 20}ns}}"),
        *(noise, "flows=[{from: 2-hop, hosts: 1}]"),
    )
    effective = guest_runs.manifest_of(target)["effective"]
    # The nearest number that the kernel can do, and the interval to which a card rounds 50 us.
    interval_ns = interval_of(20032)
    assert interval_ns == 49_920 == 195 * 256
    assert effective["noise.interrupts_per_second.20032"] == "h1 h2 h3 h4"
    data = arrived_ns(captured(target, "s1-eth1", "out"))
    answered = np.unique(left_ns(captured(target, "s1-eth1", "in"), DELAY_NS * 20))
    interrupts, packets = interrupts_of(data, interval_ns)
    # The host answers at interrupts alone, but for the end of the connection, and at each that
    # brings two segments or more.
    assert np.all(np.isin(answered[answered < data[-2]][:-1], interrupts))
    assert np.sum(packets > 1) > 300
    assert np.mean(np.isin(interrupts[packets > 1], answered)) > 0.99
    # Both happen often: an interrupt with the first packet after a quiet time, and one that waited.
    at_once = np.isin(interrupts, data)
    assert min(at_once.sum(), (~at_once).sum()) > 10
    assert np.all(np.diff(interrupts)[~at_once[1:]] == interval_ns)
    # No packet overtakes another on its way through the card, or TCP would send some again.
    assert summary["classes"]["2"]["retransmits"] == 0


def test_what_a_host_sends_leaves_some_time_after_it_was_woken(tmp_path):
    target = tmp_path / "run"
    noise = "noise={profile: exact, sender: {least: 5us, most: 40us}}"
    guest_runs.run("linear-12", target, *NETWORK, noise, "flows=[{from: 2-hop, hosts: 1}]")
    effective = guest_runs.manifest_of(target)["effective"]
    senders = [name for name in effective if name.endswith("sender_least_ns")]
    assert [effective[name] for name in senders] == [5000]
    arrivals, acks = traffic(target)
    batches = np.unique(acks)
    # h1 is woken by a segment that it acknowledges at once, so by the arrival that an
    # acknowledgement's number ends at. Its answer leaves later, with all others of that time.
    data = captured(target, "s1-eth1", "out")
    columns = captured(target, "s1-eth1", "in")
    ended = {
        int(s) + int(p): int(t)
        for s, p, t in zip(data.seq, data.payload_bytes, arrived_ns(data), strict=True)
    }
    woken = np.array([ended.get(int(ack), -1) for ack in columns.ack])
    left = left_ns(columns, DELAY_NS)
    waits = left - woken
    known = (woken >= arrivals[0]) & (woken <= arrivals[-1])
    first = np.flatnonzero(np.diff(left, prepend=-1) > 0)
    drawn = waits[first][known[first]]
    assert len(batches) > 500
    assert is_uniform(drawn, 5000, 40_000)
    assert np.diff(batches).min() >= 5000


def test_a_switch_and_its_oscillators_vary_as_the_profile_says(tmp_path):
    target = tmp_path / "run"
    guest_runs.run(
        *("linear-12", target, *NETWORK, "duration=60ms"),
        "noise={profile: exact, oscillators: 1000, switch_latency: 760ns}",
        "flows=[{from: [h3], to: [h4]}]",
        "workloads=[{kind: constant_rate, from: [h2], to: h1, rate: 100mbit}]",
    )
    # Datagrams find no queue, so they cross a switch in the delay of its port.
    came = captured(target, "s1-eth2", "in")
    left = captured(target, "s1-eth1", "out")
    at = {int(i): int(t) for i, t in zip(came.ip_id, came.stamp_ns, strict=True)}
    crossed = np.array([t - at[int(i)] for i, t in zip(left.ip_id, left.stamp_ns, strict=True)])
    assert len(crossed) > 400
    assert is_uniform(crossed, DELAY_NS, DELAY_NS + 2 * 760)
    # The shaper takes the frame's time at its own rate, cut to nanoseconds.
    effective = guest_runs.manifest_of(target)["effective"]
    rates = {
        port: effective[f"{name}.rate_bps"]
        for name, ports in effective.items()
        if name.count(".") == 1 and name.startswith("ports.")
        for port in str(ports).split()
    }
    assert 999_000_000 <= min(rates.values()) < max(rates.values()) <= 1_001_000_000
    port = "s2-eth3"
    gaps = np.diff(captured(target, port, "out").stamp_ns)
    assert np.median(gaps) == 1538 * 8 * 10**9 // rates[port] != FRAME_NS
