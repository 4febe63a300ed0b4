import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcast import experiment
from outcast.experiment import Experiment, workloads
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.plan.schedule import FIRST_SOURCE_PORT, Generated

FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"


def load(workload: str, *overrides: str) -> Experiment:
    return experiment.load(
        FIG3C, [f"workloads=[{workload}]", "flows=[]", "duration=20s", *overrides]
    )


def plan(workload: str, *overrides: str) -> Plan:
    return make_plan(load(workload, *overrides))


def flows(workload: str, *overrides: str) -> tuple[Generated, ...]:
    return plan(workload, *overrides).generated


@pytest.mark.parametrize("kind", ["poisson", "background"])
def test_the_load_is_what_was_asked_for(kind):
    found = flows(
        f"{{kind: {kind}, load: 0.3, sizes: data-mining, largest: 100KB}}", "links.rate=40mbit"
    )
    offered_bps = sum(flow.size_bytes or 0 for flow in found) * 8 / 20
    # With some 100 000 flows the sum's deviation is about 1 %.
    assert offered_bps == pytest.approx(0.3 * 40e6 * 16, rel=0.05)
    assert all(flow.src != flow.dst for flow in found)
    received = Counter(flow.dst for flow in found)
    assert len(received) == 16
    assert max(received.values()) < 1.1 * min(received.values())


def test_gaps_are_exponential():
    found = flows("{kind: poisson, load: 0.2, sizes: [[10000, 1]]}", "links.rate=10mbit")
    start = np.array([flow.start_ns for flow in found])
    gaps = np.sort(np.diff(start))
    mean = 10_000 * 8e9 / (0.2 * 10e6 * 16)
    seen = np.arange(1, gaps.size + 1) / gaps.size
    # Kolmogorov-Smirnov at 0.1 %.
    assert np.abs(seen - (1 - np.exp(-gaps / mean))).max() < 1.95 / np.sqrt(gaps.size)


def test_to_one_host_the_load_is_that_of_its_link():
    found = flows("{kind: poisson, from: 6-hop, to: h0_0_2, load: 0.5, sizes: [[125000, 1]]}")
    assert {flow.dst for flow in found} == {"h0_0_2"}
    assert len({flow.src for flow in found}) == 12
    assert len(found) == pytest.approx(0.5 * 1e9 / 1e6 * 20, rel=0.05)


def test_a_seed_decides_everything():
    workload = "{kind: background, load: 0.1, sizes: web-search}"
    assert flows(workload) == flows(workload)
    assert flows(workload) != flows(workload, "seed=2")


def test_a_shuffle_has_every_pair_once_and_starts_so_many_of_each_host():
    found = flows("{kind: shuffle, hosts: 6, bytes: 10KB, concurrent: 2}")
    assert Counter((flow.src, flow.dst) for flow in found).most_common(1)[0][1] == 1
    assert len(found) == 30
    assert Counter(flow.src for flow in found if flow.start_ns is not None) == dict.fromkeys(
        {flow.src for flow in found}, 2
    )


def test_a_stream_lasts_as_long_as_its_workload():
    (stream,) = flows("{kind: constant_rate, from: h0_0_3, rate: 1mbit, start: 1s, duration: 2s}")
    assert stream.end_ns == 3 * 10**9


def test_an_incast_has_a_block_of_every_sender_in_each_round():
    found = plan(
        "{kind: incast, senders: 5, block: 128KB, rounds: 3}", "topology={kind: star, hosts: 9}"
    )
    assert len(found.generated) == 15
    assert {flow.size_bytes for flow in found.generated} == {131072}
    assert {flow.sport for flow in found.generated} == {FIRST_SOURCE_PORT}
    assert len(found.bottleneck.ingress) == 5
    assert [flow.start_ns for flow in found.generated] == [0] * 5 + [None] * 10


def test_datagrams_are_spaced_by_the_rate_and_senders_out_of_step():
    found = flows("{kind: constant_rate, from: 6-hop, rate: 10mbit, datagram: 1250B}")
    assert {flow.gap_ns for flow in found} == {10**6}
    assert len({flow.start_ns for flow in found}) == 12
    assert all(0 <= (flow.start_ns or 0) < 10**6 for flow in found)


def test_ports_tell_the_flows_of_a_host_apart():
    found = flows(
        "{kind: poisson, load: 0.3, sizes: web-search}, {kind: shuffle, bytes: 1MB}",
        "duration=1s",
        "analysis.windows=[]",
    )
    assert len({(flow.src, flow.sport) for flow in found}) == len(found)


def test_the_bottleneck_of_flows_takes_in_what_the_background_sends_through_it():
    both = make_plan(
        experiment.load(
            FIG3C, ["workloads=[{kind: background, load: 0.5, sizes: data-mining, largest: 1MB}]"]
        )
    )
    alone = make_plan(experiment.load(FIG3C))
    assert both.bottleneck.egress == alone.bottleneck.egress
    assert set(both.bottleneck.ingress) >= set(alone.bottleneck.ingress)
    for src, dst in both.pairs:
        path = both.path(src, dst)
        hops = [both.port(one, two) for one, two in pairwise(path)]
        if both.bottleneck.egress in hops:
            place = hops.index(both.bottleneck.egress)
            assert both.port(path[place], path[place - 1]) in both.bottleneck.ingress
            assert both.ip(dst) in both.bottleneck.destinations


def test_a_file_of_sizes_goes_into_the_run(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("# measured by us\nbytes,cumulative\n1000,0.5\n2000,1\n")
    wanted = load(f"{{kind: poisson, load: 0.1, sizes: {file}}}")
    file.unlink()
    again = experiment.validate(
        wanted.model_dump(mode="json", by_alias=True, exclude_none=True), "config.yaml"
    )
    assert again == wanted
    assert "mine.csv" not in experiment.dump(wanted)


@settings(max_examples=20)
@given(st.integers(0, 2**63 - 1), st.floats(0.01, 1))
def test_every_arrival_is_within_its_time(seed, load):
    found = flows(
        f"{{kind: background, load: {load}, sizes: web-search, start: 2s, duration: 3s}}",
        f"seed={seed}",
    )
    assert all(2 * 10**9 <= (flow.start_ns or 0) < 5 * 10**9 for flow in found)
    assert [flow.flow for flow in found] == list(range(len(found)))


# --- sizes


@pytest.mark.parametrize(
    ("name", "mean_packets"),
    # The means that pFabric's ns-2 scripts state for these files, in packets of 1460 B.
    [("web-search", 1138), ("data-mining", 5117)],
)
def test_published_distributions_have_their_published_mean(name, mean_packets):
    assert workloads.published(name).mean_bytes() / 1460 == pytest.approx(mean_packets, rel=0.003)


@pytest.mark.parametrize("name", workloads.PUBLISHED)
def test_samples_follow_the_distribution(name):
    found = workloads.published(name)
    draw = random.Random("test")
    sample = np.sort([found.sample(draw) for _ in range(20_000)])
    # Kolmogorov-Smirnov at 0.1 %: 1.95 / sqrt(n).
    values, counts = np.unique(sample, return_counts=True)
    seen = np.cumsum(counts) / sample.size
    wanted = np.array([found.share_up_to(value + 0.5) for value in values])
    assert np.abs(seen - wanted).max() < 1.95 / np.sqrt(sample.size)


def test_a_largest_size_cuts_the_distribution():
    whole = workloads.published("data-mining")
    cut = whole.up_to(3_076_220)
    assert cut.points[-1] == (3_076_220, 1.0)
    assert cut.share_up_to(1460) == pytest.approx(0.5 / 0.95)
    draw = random.Random(1)
    assert max(cut.sample(draw) for _ in range(5000)) <= 3_076_220
    with pytest.raises(ValueError, match="the smallest has 1460 B"):
        whole.up_to(1000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at least one point"),
        ("100,0.5\n", "allowed is 1"),
        ("100,0.5\n200,0.4\n300,1\n", "never falling"),
        ("100,0.5\n50,1\n", "allowed is 100 B and more"),
        ("100,1.5\n", "allowed is from 0 to 1"),
        ("0,1\n", "allowed is 1 B and more"),
        ("100;1\n", "allowed is a size in bytes and a cumulative share"),
        ("nan,1\n", "allowed is 1 B and more"),
    ],
)
def test_what_is_no_distribution_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        workloads.parse(text, "sizes.csv")


def test_the_mean_counts_the_flows_of_the_smallest_size():
    assert workloads.Sizes([(100, 0.5), (200, 1)]).mean_bytes() == 0.5 * 100 + 0.5 * 150
    assert workloads.Sizes([(100, 1)]).mean_bytes() == 100
