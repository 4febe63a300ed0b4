"""Ports with two files and equal paths to a host; `tests.golden.more ports` tries more."""

import pytest

from outcast.analysis.join.join import Verdict
from outcast.api.joins import join_captures
from tests.golden import ports
from tests.golden.packets import P, capture


@pytest.mark.parametrize("seed", range(36))
def test_a_random_switch_is_joined_as_it_was(seed, tmp_path):
    words, wrong = ports.tried(seed, tmp_path)
    assert wrong == [], words


def _router(folder):
    """A router with two ports; 10.0.1.1 is behind p1, 10.0.2.2 behind p2. 20 of 200 are lost."""
    seen = {name: [] for name in ("p1.in", "p1.out", "p2.in", "p2.out")}
    ends = {"p1": ("10.0.1.1", "10.0.2.2"), "p2": ("10.0.2.2", "10.0.1.1")}
    for number in range(200):
        for port, other in (("p1", "p2"), ("p2", "p1")):
            src, dst = ends[port]
            at_us = 1_000 * number + (300 if port == "p2" else 0)
            packet = P(at_us, number, src, ip_id=number, payload=0, dst=dst)
            seen[f"{port}.in"].append(packet)
            if port == "p2" or number % 10 != 4:
                left = P(at_us + 150, number, src, ip_id=number, payload=0, dst=dst, ttl=63)
                seen[f"{other}.out"].append(left)
    return {name: capture(folder / f"{name}.pcap", packets) for name, packets in seen.items()}


def test_a_file_of_what_came_in_and_one_of_what_left_are_one_port(tmp_path):
    files = _router(tmp_path)
    inputs = {port: files[f"{port}.in"] for port in ("p1", "p2")}
    outputs = {port: files[f"{port}.out"] for port in ("p1", "p2")}
    result = join_captures(inputs, outputs, routed=True)
    counts = result.joined.counts
    assert (counts.entered, counts.forwarded, counts.dropped) == (400, 380, 20)


def _bond(folder, outputs):
    """10.0.0.9 is behind l1 and l2; `outputs` has the path of each of 200 packets, or None."""
    seen = {name: [] for name in ("a", "l1", "l2")}
    for number, output in enumerate(outputs):
        at_us = 1_000 * number
        packet = P(at_us, number, "10.0.0.1", ip_id=number, payload=0, dst="10.0.0.9")
        seen["a"].append(packet)
        if output is not None:
            seen[output].append(
                P(at_us + 50, number, "10.0.0.1", ip_id=number, payload=0, dst="10.0.0.9")
            )
        back = P(at_us + 400, number, "10.0.0.9", ip_id=number, payload=0, dst="10.0.0.1")
        seen["l2" if number % 4 > 1 else "l1"].append(back)
        seen["a"].append(
            P(at_us + 420, number, "10.0.0.9", ip_id=number, payload=0, dst="10.0.0.1")
        )
    return {name: capture(folder / f"{name}.pcap", packets) for name, packets in seen.items()}


@pytest.mark.parametrize("said", [False, True])
def test_drops_on_the_way_to_one_of_equal_paths_have_no_output(said, tmp_path):
    paths = [None if number % 20 == 7 else "l2" if number % 2 else "l1" for number in range(200)]
    files = _bond(tmp_path, paths)
    if said:
        result = join_captures({"a": files["a"]}, {"l1": files["l1"], "l2": files["l2"]})
    else:
        result = join_captures(ports=files)
    got = result.joined
    lost = got.verdict == Verdict.DROPPED
    assert int(lost.sum()) == 10
    assert got.counts.forwarded == 190 + (0 if said else 200)
    assert set(got.egress[lost].tolist()) == {-1}
    line = "10 packets to 10.0.0.9 were dropped on the way to one of l1 and l2"
    assert any(remark.startswith(line) for remark in result.remarks)


def test_drops_of_a_flow_that_moves_once_are_those_of_its_path(tmp_path):
    lost = (30, 31, 150)
    paths = [None if number in lost else "l1" if number < 100 else "l2" for number in range(200)]
    got = join_captures(ports=_bond(tmp_path, paths)).joined
    dropped = got.verdict == Verdict.DROPPED
    assert [got.outputs[output] for output in got.egress[dropped]] == ["l1", "l1", "l2"]
