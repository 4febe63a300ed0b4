import struct

import pytest

from outcast.errors import ReadBackError
from outcast.experiment.queues import KINDS
from outcast.netlink import encode as attribute
from outcast.records import queue_statistics
from outcast.records.queue_statistics import decode
from tests.fakes import Shown


def qdisc(handle: int, kind: str, drops: int, own: str | None = None) -> Shown:
    """A qdisc; the shaper, which has the handle 2, holds 5 bytes."""
    stats = Shown(
        TCA_STATS_BASIC={"bytes": 1514, "packets": 1},
        TCA_STATS_QUEUE={"drops": drops, "overlimits": 4, "backlog": 3 + handle, "qlen": 6},
        TCA_STATS_APP=own,
    )
    return Shown(event="RTM_NEWQDISC", handle=handle << 16, TCA_KIND=kind, TCA_STATS2=stats)


def words(*values: int) -> bytes:
    return struct.pack(f"={len(values)}I", *values)


def test_a_drop_below_the_shaper_counts_once():
    shown = [qdisc(2, "tbf", 9), qdisc(3, "red", 8, words(5, 3, 0, 7).hex(":"))]
    assert queue_statistics.statistics(shown) == {
        "backlog_bytes": 5,
        "backlog_packets": 6,
        "drops": 9,
        "marks": 7,
        "sent_packets": 1,
        "sent_bytes": 1514,
        "overlimits": 4,
    }


def test_a_port_without_our_qdiscs_is_named():
    for there, lacking in ((qdisc(2, "tbf", 0), "3:"), (qdisc(3, "bfifo", 0), "2:")):
        with pytest.raises(ReadBackError, match=f"requested {lacking}"):
            queue_statistics.statistics([there])


CODEL = words(1, 2, 3, 4, 5, 6, 40, 8, 2)
FQ = struct.pack("=8Q4I3Q", *range(8), *range(4), 40, 1, 2)
CAKE = attribute(8, words(40)) + attribute(4, words(7))


OWN: dict[str, tuple[bytes, dict[str, int]]] = {
    "red": (words(1, 2, 3, 40), {"early": 1, "at_limit": 2, "marked": 40}),
    "codel": (CODEL, {"at_limit": 6, "marked": 40, "marked_at_threshold": 2}),
    "fq_codel": (
        words(0, 1, 2, 40, 4, 5, 6, 2, 8, 9),
        {"at_limit": 2, "marked": 40, "new_flows": 4}
        | {"marked_at_threshold": 2, "at_memory_limit": 9},
    ),
    "pie": (words(0, 0, 1, 2, 3, 4, 5, 6, 7, 40), {"dropped": 5, "at_limit": 6, "marked": 40}),
    "fq": (FQ, {"at_flow_limit": 4, "flows": 0, "marked_at_threshold": 40}),
    "cake": (attribute(10, attribute(1, CAKE)), {"dropped": 7, "marked": 40}),
    "dualpi2": (
        words(0, 1, 2, 3, 4, 5, 40, 7, 8, 9, 10, 11),
        {"marked": 40, "marked_by_step": 7, "classic_packets": 3, "l4s_packets": 4},
    ),
}
"""Of each qdisc whose counters a kind reads: its own statistics, and what is read from them."""


@pytest.mark.parametrize("qdisc", sorted({*OWN}.union(*(kind.counters for kind in KINDS))))
def test_a_qdiscs_own_counters(qdisc):
    own, expected = OWN[qdisc]
    assert decode(qdisc, own.hex(":")) == expected
    assert decode(qdisc, None) == decode("bfifo", own.hex(":")) == {}
