"""What each class of service sent, lost and waited, from the captures and by the kernel."""

import numpy as np
import pytest

from outcast.analysis import analyze
from outcast.errors import InputError
from outcast.records.counters import Counters, PortCounters
from outcast.records.effective import service_classes_of
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view import listings, report, summary_words
from tests.golden import model
from tests.golden.run_directory import analysed_run, write_run

EFFECTIVE = {
    "ports.0": "s1-eth2",
    "ports.0.other dscp": "all others",
    "ports.1": "s1-eth1 s1-eth3",
    "ports.1.rest dscp": "all others",
    "ports.1.fast dscp": "8 46",
}
DURATION_NS = 80_000_000


def mark(directory: RunDirectory, address: int, dscp: int) -> None:
    """Gives all packets of a source a code point, and marks some as ECN does (RFC 3168)."""
    for path in directory.captures.glob("*.pcap"):
        raw = path.read_bytes()
        records = np.frombuffer(raw[24:], model.RECORD).copy()
        records["tos"][records["src"] == address] = dscp << 2 | 2
        path.write_bytes(raw[:24] + records.tobytes())


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    """A run whose flow 0 is of the class `fast`, which is the second one in the kernel."""
    traffic = model.drop_tail(model.make_traffic(9, 3_000), 16_384, 10**9)
    made = write_run(tmp_path / "run", traffic, DURATION_NS)
    manifest = made.read_manifest()
    # Packets also come in after the interval.
    text = made.config.read_text("utf-8")
    made.config.write_text(text.replace("bin: 1ms", "bin: 1ms, to: 15ms"), encoding="utf-8")
    first = traffic.src == min(traffic.src)
    mark(made, int(min(traffic.src)), 46)
    (port,) = manifest.bottlenecks
    queue = port.queue.model_copy(update={"kind": "prio", "drops": "on_arrival"})
    ports = [port.model_copy(update={"queue": queue})]
    made.write_manifest(manifest.model_copy(update={"effective": EFFECTIVE, "bottlenecks": ports}))
    lost = traffic.t_out < 0
    own = {
        "class_1_packets": 3 + int((~first & ~lost).sum()),
        "class_1_drops": int((~first & lost).sum()),
        "class_2_packets": int((first & ~lost).sum()),
        "class_2_drops": int((first & lost).sum()),
    }
    before = dict.fromkeys(own, 0) | {"class_1_packets": 3}
    with_own(made, before, own)
    return made


def with_own(directory: RunDirectory, before: dict[str, int], after: dict[str, int]) -> None:
    counters = directory.read_counters()
    of_port = counters.ports["s1-eth1"]
    ports = {
        "s1-eth1": PortCounters(
            before={**of_port.before, "own": before}, after={**of_port.after, "own": after}
        )
    }
    directory.write_counters(
        Counters(ports=ports, hosts=counters.hosts, captures=counters.captures)
    )


def test_classes_are_known_by_what_the_kernel_showed():
    assert service_classes_of(EFFECTIVE, "s1-eth1") == {"rest": None, "fast": (8, 46)}
    assert service_classes_of(EFFECTIVE, "s1-eth9") == {}
    assert service_classes_of({"ports.0": "s1-eth1", "ports.0.limit_bytes": 1}, "s1-eth1") == {}


def test_each_class_has_its_packets_drops_rate_and_queueing(directory):
    analyze(directory)
    run = Run(directory)
    classes = run.summary.queue["s1-eth1"].classes
    rest, fast = classes["rest"], classes["fast"]
    assert [*classes] == ["rest", "fast"]
    assert (rest.dscp, fast.dscp) == (None, [8, 46])
    packets = run.table("packets")
    start_ns = run.manifest.traffic.t_start_ns
    from_ns, to_ns = (start_ns + round(s * 1e9) for s in (run.summary.start_s, run.summary.end_s))
    of_fast = packets.filter(flow=0)
    within = of_fast.filter(of_fast["t_in"].is_between(from_ns, to_ns, closed="left"))
    assert fast.packets == within.height
    assert fast.dropped == (within["verdict"] == "dropped").sum()
    left = of_fast.filter(of_fast["t_out"].is_between(from_ns, to_ns, closed="left"))
    assert fast.rate_bps == pytest.approx(8e9 * left["frame"].sum() / (to_ns - from_ns))
    waited_ms = (within["t_out"] - within["t_in"]).drop_nulls().to_numpy() / 1e6
    assert fast.queueing_ms.p50 == np.quantile(waited_ms, 0.5, method="inverted_cdf")
    assert fast.queueing_ms.p99 == np.quantile(waited_ms, 0.99, method="inverted_cdf")
    assert rest.packets + fast.packets == sum(part.packets for part in run.summary.drops.values())
    for part in (rest, fast):
        assert part.counted == part.captured


def test_other_counts_of_the_kernel_are_told(directory):
    own = directory.read_counters().ports["s1-eth1"].after["own"]
    with_own(directory, dict.fromkeys(own, 0), {**own, "class_2_drops": 1})
    analyze(directory)
    summary = Run(directory).summary
    told = summary_words.counted_by_class(summary)
    assert "fast of s1-eth1: " in told
    assert "and 1 by the kernel" in told
    with_own(directory, {}, own)
    with pytest.raises(InputError, match=r"own: class_1_packets: None before the flows"):
        analyze(directory)


def test_a_queue_without_classes_has_no_table(tmp_path):
    made = analysed_run(tmp_path / "run", DURATION_NS, 9, 1_000)
    run = Run(made)
    assert run.summary.queue["s1-eth1"].classes is None
    assert listings.service_classes(run, "show") is None
    assert "Classes of service" not in report.make(run)
