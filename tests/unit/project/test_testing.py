"""What tests of network programs keep, and how they find the packet that decides."""

import polars as pl

from outcast.testing import evidence
from outcast.testing.networks import Flaky


def packets(dropped: int | None, first_seq: int) -> pl.DataFrame:
    """Five packets of a flow; the second is sent again if it was dropped."""
    seqs = [0, 100, 200, 300, 400]
    rows = [(first_seq + seq, "dropped" if seq == dropped else "forwarded") for seq in seqs]
    rows += [] if dropped is None else [(first_seq + dropped, "forwarded")]
    return pl.DataFrame(
        {
            "flow": [0] * len(rows),
            "egress": ["s1-eth1"] * len(rows),
            "seq": [seq % (1 << 32) for seq, _ in rows],
            "payload": [100] * len(rows),
            "verdict": [verdict for _, verdict in rows],
        }
    )


def test_the_packet_that_tells_failing_from_passing_seeds_comes_first():
    found = Flaky()
    for seed in range(20):
        fails = seed % 4 == 0
        found.add(seed, not fails, packets(300 if fails else (100 if seed % 2 else None), 5000))
    assert found.failing == [0, 4, 8, 12, 16]
    first = found.telling[0]
    assert (first.flow, first.seq, first.payload, first.nth) == (0, 300, 100, 0)
    assert (first.dropped_of_failing, first.dropped_of_passing) == (5, 0)
    assert first.p < 0.001
    assert "dropped in 5 of 5 that fail and 0 of 15 that pass" in str(found)


def test_a_packet_is_the_same_where_sequence_numbers_restart():
    found = Flaky()
    for seed in range(8):
        fails = seed % 2 == 0
        first = (1 << 32) - 250 if seed % 4 == 0 else 5000
        found.add(seed, not fails, packets(300 if fails else None, first))
    told = [(one.seq, one.dropped_of_failing, one.dropped_of_passing) for one in found.telling]
    assert told == [(300, 4, 0)]


def test_evidence_replaces_that_of_the_same_test_and_nothing_else(tmp_path):
    (tmp_path / "test_a.py-test_x").mkdir()
    (tmp_path / "test_a.py-test_x" / "of somebody").touch()
    shared = evidence.fresh_folder(tmp_path, "test_a.py-test_x")
    assert shared.name == "test_a.py-test_x-2"
    first = evidence.fresh_folder(tmp_path, "test_a.py::test_x")
    assert first.name == "test_a.py-test_x-3"
    (first / "old").touch()
    again = evidence.fresh_folder(tmp_path, "test_a.py::test_x")
    assert again == first
    assert not (again / "old").exists()
    assert (tmp_path / "test_a.py-test_x" / "of somebody").exists()
    assert shared.is_dir()
    assert not (tmp_path / ".gitignore").exists()
    evidence.fresh_folder(tmp_path / "new" / "home", "test_a.py::test_x")
    assert (tmp_path / "new" / "home" / ".gitignore").read_text() == "*\n"
