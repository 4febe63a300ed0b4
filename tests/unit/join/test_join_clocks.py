"""Clocks that differ are corrected, those that stepped refused, right ones left alone."""

from pathlib import Path

import numpy as np
import pytest

from outcast.analysis.capture.pcap import read_captures
from outcast.analysis.join import clocks
from outcast.analysis.join.join import Joined, JoinOptions, join
from outcast.errors import UntrustedError
from tests.golden import model

MS = 1_000_000


@pytest.fixture(scope="module")
def traffic() -> model.Traffic:
    return model.drop_tail(model.make_traffic(21, 40_000), 16_384, 10**9)


def shift(records: np.ndarray, add_ns: int, first: int = 0) -> np.ndarray:
    """The records with their stamps moved from one record on."""
    moved = records.copy()
    stamps = moved["seconds"].astype(np.int64) * 10**9 + moved["nanoseconds"]
    stamps[first:] += add_ns
    moved["seconds"], moved["nanoseconds"] = stamps // 10**9, stamps % 10**9
    return moved


def joined(folder: Path, made: dict[str, np.ndarray], options: JoinOptions | None = None) -> Joined:
    captures = read_captures(list(model.write_captures(folder, made).items()))
    return join(captures[:-1], captures[-1:], options)


def unknown(got: Joined, traffic: model.Traffic, port: int) -> int:
    """Checks that a port's verdicts are right, and returns how many packets have none."""
    verdict = got.verdict[got.arrivals.port == port]
    known = verdict != 2
    dropped = traffic.t_out[traffic.port == port] < 0
    assert ((verdict == 1) == dropped)[known].all()
    return int((~known).sum())


def check(got: Joined, traffic: model.Traffic, slack_ns: int, undecided: int = 200) -> None:
    """Checks that verdicts are right, except in flight, and stamps right within `slack_ns`."""
    for port in (0, 1):
        right_ns = traffic.t_in[traffic.port == port]
        assert unknown(got, traffic, port) <= undecided
        error = got.arrivals.stamp_ns[got.arrivals.port == port] - right_ns
        assert np.abs(error).max() <= slack_ns
    assert got.counts.unexplained == got.counts.duplicates == 0


@pytest.mark.parametrize("offset", [3 * MS, 50_000, 3600 * 1000 * MS])
def test_one_input_differs(tmp_path, traffic, offset):
    made = model.captures(traffic)
    made["in1"] = shift(made["in1"], offset)
    got = joined(tmp_path, made)
    assert len(got.clocks) == 1
    assert got.clocks[0].startswith("in1: its clock is ")
    assert "ahead of" in got.clocks[0]
    # Nothing else bounds it, so the shortest sojourn time is taken to be zero.
    assert got.sources.clocks.error_ns is None
    for port in (0, 1):
        assert unknown(got, traffic, port) <= 200
    error = got.arrivals.stamp_ns[got.arrivals.port == 1] - traffic.t_in[traffic.port == 1]
    assert np.abs(error).max() <= 20_000


@pytest.mark.parametrize("is_a_step", [False, True])
def test_one_direction_that_was_noted_late_is_no_step(tmp_path, traffic, is_a_step):
    """A busy kernel hands over what one direction sent in 3 ms after what the other sent in it."""
    records = model.captures(traffic)["in0"]
    at = records["seconds"].astype(np.int64) * 10**9 + records["nanoseconds"]
    half_ns = int(at[at.size // 2])
    one_way = np.arange(at.size) % 2 == 0
    held = (half_ns < at) & (at <= half_ns + 3 * MS) & (one_way | is_a_step)
    noted = np.where(held, half_ns + 3 * MS + at.size, at)
    if is_a_step:
        noted, records = at, shift(records, -3 * MS, at.size // 2)
    path = model.write_captures(tmp_path, {"a": records[np.argsort(noted, kind="stable")]})["a"]
    (capture,) = read_captures([("a", path)])
    assert clocks.steps_back(capture) == 1
    left_rows = np.flatnonzero(one_way[np.argsort(noted, kind="stable")])
    if is_a_step:
        with pytest.raises(UntrustedError, match="its time stamps go back"):
            clocks.require_no_step_back(capture, left_rows)
    else:
        clocks.require_no_step_back(capture, left_rows)


def test_one_clock_is_not_touched(tmp_path, traffic):
    made = model.captures(traffic)
    made["in1"] = shift(made["in1"], 3 * MS)
    got = joined(tmp_path, made, JoinOptions(one_clock=True))
    assert got.clocks == ()
    assert got.counts.unexplained + got.counts.early > 1000
