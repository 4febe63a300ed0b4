import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.experiment import workloads


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


@given(st.floats(0, 1))
def test_quantile_and_share_are_inverse(share):
    found = workloads.published("web-search")
    size = found.quantile(share)
    assert found.share_up_to(size + 0.5) >= share - 1e-9
    assert size <= 8760 or found.share_up_to(size - 0.5) <= share + 1e-9


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


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"none\.csv: cannot be read"):
        workloads.read(tmp_path / "none.csv")


def test_the_mean_counts_the_flows_of_the_smallest_size():
    assert workloads.Sizes([(100, 0.5), (200, 1)]).mean_bytes() == 0.5 * 100 + 0.5 * 150
    assert workloads.Sizes([(100, 1)]).mean_bytes() == 100
