"""The unit of stamps, also where it is no power of ten or the file rounds it."""

import numpy as np
import pytest

from outcast.analysis.capture.pcap import grid_ns

BEGIN_NS = 1_700_000_000_123_456_789


@pytest.mark.parametrize("file_ns", [1, 1_000])
@pytest.mark.parametrize(
    "unit_ns",
    [64_000, 250_000, 976_562.5, 10**9 / 300, 3_906_250, 4 * 10**6, 8_192_000, 15_625_000, 10**7],
)
def test_the_unit_is_found(unit_ns, file_ns):
    """Ticks as a file of nanoseconds or microseconds has them, some with several packets."""
    rng = np.random.default_rng(1)
    ticks = np.cumsum(rng.poisson(1.5, 5_000))
    stamps = BEGIN_NS // file_ns * file_ns + (ticks * unit_ns).astype(np.int64) // file_ns * file_ns
    assert grid_ns(stamps) == pytest.approx(unit_ns, rel=1e-3)


@pytest.mark.parametrize("file_ns", [1, 1_000])
def test_fine_stamps_have_the_files_unit(file_ns):
    rng = np.random.default_rng(2)
    times = BEGIN_NS + np.cumsum(rng.exponential(50_000, 5_000)).astype(np.int64)
    assert grid_ns(times // file_ns * file_ns) == file_ns


def test_packets_sent_evenly_make_no_unit_but_that_of_their_stamps():
    """As by an ideal queue that never runs empty."""
    assert grid_ns(10**18 + np.arange(1_000) * 1_200_000) == 100_000
    assert grid_ns(np.array([5], np.int64)) == 1
    # As of an ideal queue, whose packets come 2 us before or after multiples of 50 us.
    near = np.cumsum(np.tile([52_000, 2_748_000, 148_000, 452_000, 1_148_000, 2_852_000], 30))
    assert grid_ns(near) <= 4_000
