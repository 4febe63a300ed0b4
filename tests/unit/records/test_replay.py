from pathlib import Path

import pytest

from outcast.errors import InputError, ReplayError
from outcast.records import replay
from outcast.records.counters import Counters
from outcast.records.run_directory import RunDirectory
from outcast.sweep.store import reduce
from tests import records
from tests.unit.records.test_explain import pcap

NAME = "captures/s1-eth1.out.pcap"


def run_directory(path: Path, packets: list[tuple[int, bytes]], **changes: object) -> RunDirectory:
    """A run directory with one capture, and what else a comparison reads."""
    (path / "captures").mkdir(parents=True)
    (path / NAME).write_bytes(pcap(packets))
    (path / "config.yaml").write_text("name: x\n")
    directory = RunDirectory(path)
    usual = {"kernel": {"release": "7.3.4"}, "versions": {"iperf": "2.1.8"}}
    usual |= {"captures": [records.capture(NAME, len(packets))]}
    directory.write_manifest(records.manifest(**usual).model_copy(update=changes))
    directory.seal()
    return directory


PACKETS = [(10**9, b"one"), (2 * 10**9 + 5, b"two"), (3 * 10**9, b"three")]


@pytest.mark.parametrize(
    ("packets", "at"),
    [
        ([PACKETS[0], (2 * 10**9 + 5, b"owt"), PACKETS[2]], "1.000000005"),
        ([PACKETS[0], (2 * 10**9 + 4, b"two"), PACKETS[2]], "1.000000004"),
        (PACKETS[:2], "2.000000000"),
        ([*PACKETS, (4 * 10**9, b"four")], "3.000000000"),
    ],
)
def test_the_first_difference_is_named(packets, at, tmp_path):
    one = run_directory(tmp_path / "one", PACKETS)
    with pytest.raises(ReplayError, match=rf"they part .*, {at} s after .* in .*s1-eth1.out.pcap"):
        replay.require_equal(one, run_directory(tmp_path / "two", packets))


@pytest.mark.parametrize("kept", ["compress", "drop"])
def test_captures_that_a_sweep_reduced_are_compared_as_they_were(kept, tmp_path):
    one = run_directory(tmp_path / "one", PACKETS)
    reduced = run_directory(tmp_path / "two", PACKETS)
    other = run_directory(tmp_path / "other", PACKETS[:2])
    for directory in (reduced, other):
        directory.write_counters(Counters(ports={}, hosts={}, captures=[]))
        reduce(directory, kept)
    assert replay.require_equal(one, reduced) == replay.require_equal(reduced, reduced) == 1
    where = "they part .*, 2.0" if kept == "compress" else ".*which packet is unknown"
    for pair in ((one, other), (other, one), (reduced, other)):
        with pytest.raises(ReplayError, match=where):
            replay.require_equal(*pair)


def test_runs_without_hashes_are_not_called_equal(tmp_path):
    one = run_directory(tmp_path / "one", PACKETS)
    one.write_manifest(one.read_manifest().model_copy(update={"files": {}}))
    with pytest.raises(InputError, match=r"has no hash of captures/s1-eth1\.out\.pcap"):
        replay.require_equal(one, one)
