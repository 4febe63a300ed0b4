"""What takes no part in a join is service of the output that sends it.

`python -m tests.golden.shared 500` tries more scenes.
"""

import numpy as np
import pytest

from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join.join import JoinOptions, join
from tests.golden import shared


@pytest.mark.parametrize("seed", range(24))
def test_a_shared_output_is_that_of_its_queue(seed, tmp_path):
    scene = shared.make(seed)
    assert [*shared.faults(scene, shared.joined(scene, tmp_path))] == [], scene.words


def _with(kinds, hidden=None):
    """A scene of which at least a tenth takes no part."""
    for seed in range(1000, 2000):
        scene = shared.make(seed)
        others = sum(len(frame.data) for frame in scene.frames if not frame.is_own)
        total = sum(len(frame.data) for frame in scene.frames)
        if (
            scene.kinds
            and set(scene.kinds) <= set(kinds)
            and scene.hidden == hidden
            and others > 0.1 * total
        ):
            return scene
    raise AssertionError(kinds)


@pytest.mark.parametrize("kind", sorted({*shared.KINDS} - {"router"}))
def test_a_share_that_takes_no_part_is_told_and_counts(kind, tmp_path):
    scene = _with([kind])
    scene.hidden = None
    found = shared.joined(scene, tmp_path)
    (line,) = (line for line in found.remarks if line.startswith("o: ") and "no part" in line)
    assert "its rate, its queue and blackouts count it" in line
    (estimate,) = (one for one in found.estimates if one.port == "o")
    assert estimate.rate_bps == pytest.approx(scene.rate_bps, rel=1e-3)


def test_of_what_no_capture_saw_come_in_no_level_is_stated(tmp_path):
    scene = _with(["arp", "unknown", "multicast"], hidden="h")
    found = shared.joined(scene, tmp_path)
    (line,) = (line for line in found.remarks if line.startswith("o: ") and "no part" in line)
    assert "So no limit, no content of the queue and no cause of drops is stated" in line
    output = found.joined.outputs.index("o")
    assert not found.joined.shows_content(output)
    assert (found.queue.found_bytes == -1).all()
    assert not (found.queue.egress == output).any()
    assert found.estimates[output].limit_at_least is None
    assert found.estimates[output].rate_bps == pytest.approx(scene.rate_bps, rel=1e-3)
    # Known is only that packets of other ports that take part got through.
    assert not (found.chains.others_through == 0).any()
    assert found.table("blackouts")["others_through"].min() is None or (
        found.table("blackouts")["others_through"].min() > 0
    )
    assert found.table("packets")["queue_bytes"].null_count() == len(found.joined.arrivals)


def test_a_run_counts_what_its_captures_leave_out(tmp_path):
    """The captures of a run are read for its destinations alone."""
    scene = _with(["elsewhere"])
    scene.hidden, scene.both_ways = None, False
    shared.joined(scene, tmp_path)
    ports = sorted({frame.port for frame in scene.frames} - {None})
    captures = [
        read_capture(port, tmp_path / f"{port}.pcap", {"10.0.0.9"}, False, keeps_others=True)
        for port in [*ports, "o"]
    ]
    joined = join(captures[:-1], captures[-1:], JoinOptions(one_clock=True))
    left = sum(frame.left_ns is not None for frame in scene.frames)
    assert joined.whole is not None
    assert joined.whole.joined.counts.left == left
    assert joined.whole.joined.counts.forwarded == left
    assert np.array_equal(joined.whole.joined.left_as[joined.whole.own] >= 0, joined.left_as >= 0)
