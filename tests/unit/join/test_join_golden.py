"""A million packets from the reference switch, with every case at once; every verdict is right."""

from dataclasses import dataclass, fields

import numpy as np
import pytest

from outcast.analysis.capture.pcap import read_captures
from outcast.analysis.join.join import Joined, Note, Stray, Verdict, join
from outcast.analysis.measure.queue import replay
from tests.golden import model

MS = 1_000_000


@dataclass
class Golden:
    """The join of captures with every case, and the known answers.

    Attributes:
        rows: for each record of the inputs, in order of time, the packet; -1 for foreign ones.
        early: packets that came in before the inputs' captures began, and left.
        doubled: packets that were sent twice by the output.
        ends_ns: when the output's capture ends.
    """

    traffic: model.Traffic
    joined: Joined
    rows: np.ndarray
    early: int
    doubled: int
    ends_ns: int


def with_equal_packets(traffic: model.Traffic, seed: int) -> model.Traffic:
    """Adds a host per port that repeats a keep-alive, identical to the last bit."""
    rng = np.random.default_rng(seed)
    parts = {f.name: [getattr(traffic, f.name)] for f in fields(traffic)}
    span = int(traffic.t_in[-1] - traffic.t_in[0])
    for port in range(int(traffic.port.max()) + 1):
        at = np.cumsum(rng.integers(1 * MS, 9 * MS, span // (5 * MS)))
        at = traffic.t_in[0] + at[at < span]
        same = {"port": port, "src": (10 << 24) + 200 + port, "sport": 30_000, "ip_id": 0}
        same |= {"seq": 77, "payload": 1448 if port else 1, "tsval": 5, "flags": 0x10}
        parts["t_in"].append(at)
        for name, value in same.items():
            parts[name].append(np.full(at.size, value))
    order = np.argsort(np.concatenate(parts["t_in"]), kind="stable")
    known = parts.keys() - {"t_out", "found"}
    return model.Traffic(**{name: np.concatenate(parts[name])[order] for name in known})


@pytest.fixture(scope="module", params=[(1, (1, 12), 1_000_000), (2, (2, 3, 9), 200_000)])
def golden(request, tmp_path_factory) -> Golden:
    seed, flows, packets = request.param
    rng = np.random.default_rng(seed)
    traffic = with_equal_packets(model.make_traffic(seed, packets, flows), seed)
    traffic = model.drop_tail(traffic, 16_384, 10**9)
    made = {}
    # The inputs' captures begin 10 ms late, the output's ends 10 ms early.
    begins = int(traffic.t_in[0]) + 10 * MS
    ends = int(traffic.t_in[-1]) - 10 * MS
    rows = []
    for port in range(len(flows)):
        mine = np.flatnonzero((traffic.port == port) & (traffic.t_in >= begins))
        records = model.records(traffic, mine, traffic.t_in[mine])
        # Packets that go elsewhere are among them.
        foreign = rng.random(mine.size) < 0.01
        elsewhere = records[foreign]
        elsewhere["dst"] = (10 << 24) + 99
        where = np.flatnonzero(foreign)
        made[f"in{port}"] = np.insert(records, where, elsewhere)
        rows.append(mine)
    left = np.flatnonzero((traffic.t_out >= 0) & (traffic.t_out < ends))
    left = left[np.argsort(traffic.t_out[left], kind="stable")]
    # The output sends some packets twice, but none that has equals, because these look the same.
    twice = (rng.random(left.size) < 0.005) & (traffic.sport[left] != 30_000)
    twice &= traffic.t_in[left] >= begins
    records = model.records(traffic, left, traffic.t_out[left])
    made["out"] = np.repeat(records, 1 + twice.astype(int))
    folder = tmp_path_factory.mktemp("golden")
    captures = read_captures(list(model.write_captures(folder, made).items()))
    merged = np.concatenate(rows)
    order = np.lexsort((traffic.port[merged], traffic.t_in[merged]))
    early = int((traffic.t_in[left] < begins).sum())
    got = join(captures[:-1], captures[-1:])
    return Golden(traffic, got, merged[order], early, int(twice.sum()), ends)


def test_every_verdict(golden):
    traffic, got, rows = golden.traffic, golden.joined, golden.rows
    assert len(got.arrivals) == rows.size
    assert got.arrivals.stamp_ns.tolist() == traffic.t_in[rows].tolist()
    t_out = traffic.t_out[rows]
    forwarded = (t_out >= 0) & (t_out < golden.ends_ns)
    wrong = np.flatnonzero((got.verdict == Verdict.FORWARDED) != forwarded)
    assert wrong.size == 0
    assert got.t_out_ns[forwarded].tolist() == t_out[forwarded].tolist()
    # Every drop is recognised, unless it came in shortly before the output's end.
    dropped = t_out < 0
    unknown = got.verdict == Verdict.UNKNOWN
    assert (got.verdict[dropped & ~unknown] == Verdict.DROPPED).all()
    last_out = int(got.departures.stamp_ns[-1])
    assert (traffic.t_in[rows][unknown] > last_out - 2 * MS).all()
    # What left after the output's end is not called dropped.
    assert unknown[(t_out >= golden.ends_ns)].all()
    assert (got.note[unknown] == Note.IN_FLIGHT).all()
    assert unknown.sum() > 100
    assert int((got.verdict == Verdict.DROPPED).sum()) > rows.size // 10


def test_every_departure(golden):
    got = golden.joined
    assert got.counts.early == golden.early > 100
    assert got.counts.duplicates == golden.doubled > 100
    assert got.counts.unexplained == 0
    assert (got.stray == Stray.DUPLICATE).sum() == golden.doubled
    assert got.counts.reordered == 0
    assert all(got.fifo)
    assert got.clocks == ()


def test_every_content_of_the_queue(golden):
    """Up to the end of the output's capture. Packets of the same nanosecond have no order."""
    traffic, rows = golden.traffic, golden.rows
    t_in = traffic.t_in[rows]
    sure = t_in < golden.ends_ns - 2 * MS
    tied = np.flatnonzero(t_in[1:] == t_in[:-1])
    sure[tied] = sure[tied + 1] = False
    found = replay(golden.joined).found_bytes
    assert (found[sure] == traffic.found[rows][sure]).all()
