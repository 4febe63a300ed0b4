"""What takes no part in a join is service of the output that sends it.

`python -m tests.golden.more shared` tries more scenes.
"""

from dataclasses import replace

import numpy as np
import pytest

from outcast.analysis.capture.pcap import read_capture
from outcast.analysis.join.join import JoinOptions, join
from outcast.api.joins import join_captures
from outcast.errors import ConfigError, InputError
from tests.golden import shared
from tests.golden.packets import P, capture


# Of the last two outputs a little was never seen to come in.
@pytest.mark.parametrize("seed", [*range(14), 20_024, 20_138])
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
    assert "; no limit and no content of the queue is stated" in line
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


def test_of_what_may_have_come_in_or_left_nothing_is_stated(tmp_path):
    """Nobody but o has packets of a host whose port was not captured."""
    scene = shared.make(195)
    found = shared.joined(scene, tmp_path)
    assert [*shared.faults(scene, found)] == []
    (estimate,) = (one for one in found.estimates if one.port == "o")
    assert (estimate.rate_bps, estimate.limit_at_least) == (None, None)
    assert any("may have come in or left" in line for line in found.remarks)


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


def _to_one_host(folder, forged=0):
    """Captures of 50 packets by a, of which b sends all but three."""
    came = [P(1000 * n, seq=n, ip_id=100 + n) for n in range(50)]
    left = [replace(packet, at_us=packet.at_us + 5) for packet in came if packet.seq % 20 != 7]
    came += [P(10 + n, src="10.0.0.1", sport=5, seq=n, ip_id=900 + n) for n in range(forged)]
    came.sort(key=lambda packet: packet.at_us)
    return capture(folder / "a", came), capture(folder / "b", left)


@pytest.mark.parametrize("forged", [1, 30])
def test_a_packet_from_its_own_destination_hides_no_other(forged, tmp_path):
    """It came in and did not leave (a LAND attack)."""
    a, b = _to_one_host(tmp_path, forged)
    for sides in ({"inputs": {"a": a}, "outputs": {"b": b}}, {"ports": {"a": a, "b": b}}):
        counts = join_captures(**sides).joined.counts
        assert (counts.entered, counts.forwarded, counts.dropped) == (50, 47, 3)


def test_exchanged_inputs_and_outputs_are_named(tmp_path):
    scene = _with(["multicast"])
    scene.both_ways, scene.hidden = False, None
    shared.joined(scene, tmp_path)
    ports = sorted({frame.port for frame in scene.frames if frame.is_own})
    with pytest.raises(InputError, match="inputs and outputs may be exchanged"):
        join_captures({"o": tmp_path / "o.pcap"}, {p: tmp_path / f"{p}.pcap" for p in ports})


def test_one_file_of_two_ports_is_refused(tmp_path):
    a, b = _to_one_host(tmp_path)
    with pytest.raises(ConfigError, match="its packets are of one interface"):
        join_captures({"a": a, "c": a}, {"b": b})


@pytest.mark.parametrize("part", [slice(None), slice(20)])
def test_a_copy_of_an_input_is_no_other_input(part, tmp_path):
    a, b = _to_one_host(tmp_path)
    came = [P(1000 * n, seq=n, ip_id=100 + n) for n in range(50)]
    c = capture(tmp_path / "c", came[part])
    with pytest.raises(InputError, match="at the same instants, so it is a copy or a part of it"):
        join_captures({"a": a, "c": c}, {"b": b})


@pytest.mark.parametrize(("then_bps", "seen"), [(10_000_000, True), (5_000_000, False)])
def test_several_rates_in_turn_are_not_one(then_bps, seen, tmp_path):
    """500 frames of 1,000 bytes at 10 Mbps, and as many at the other rate; all of them wait."""
    came = [P(400 * n, seq=n, ip_id=n, payload=934) for n in range(1000)]
    left = [
        replace(one, at_us=800 * min(n, 500) + 8_000_000_000 // then_bps * max(n - 500, 0) + 1)
        for n, one in enumerate(came)
    ]
    found = join_captures(
        {"a": capture(tmp_path / "a", came)}, {"o": capture(tmp_path / "o", left)}
    )
    (estimate,) = found.estimates
    told = [line for line in found.remarks if "so it has no single rate" in line]
    assert (estimate.rate_bps is not None, bool(told)) == (seen, not seen), found.remarks
    assert seen or told == [
        "o: it sent at 5.000 to 10.000 Mbps while packets waited (means of 20 parts of the "
        "capture), so it has no single rate"
    ]
