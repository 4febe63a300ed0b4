"""All kinds of queues at once: how long packets wait at limits as times and products, and that
changes lose none."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

import outcast
from outcast.experiment import MTU_FRAME_BYTES
from outcast.experiment.links import FRAMINGS
from outcast.experiment.queues import WITH_CLASSES
from tests import guest_runs, queue_kinds

KINDS = queue_kinds.LIMITED
AT_LIMIT = [name for name in KINDS if queue_kinds.BY_NAME[name].drops == "at_limit"] + [
    "red",
    "sfq",
]
"""In slow start these fill their queue. RED does too, because its average comes late, and sfq,
because a flow has its port alone."""
OWN = {"red": {"idle": "stock"}}
"""A kernel has one way for all its red queues, and ecn_threshold needs this one."""
RATE_BPS, DELAY_MS = 10**7, 5.0
FRAME_MS = FRAMINGS["ethernet"].wire_bytes(MTU_FRAME_BYTES) * 8e3 / RATE_BPS


def run_of_all(target: Path, limit: str, **more: Any) -> outcast.Run:
    """A run in which each kind has a port and a flow of its own."""
    ends = [(f"h{2 * n + 1}", f"h{2 * n + 2}") for n in range(len(KINDS))]
    overrides = [
        {
            **{"from": "s1", "to": receiver, "rate": f"{RATE_BPS}bit"},
            "queue": queue_kinds.keys(kind, limit=limit, **OWN.get(kind, {})),
        }
        for kind, (_, receiver) in zip(KINDS, ends, strict=True)
    ]
    asked = {
        "name": "kinds",
        "topology": {"kind": "star", "hosts": 2 * len(KINDS)},
        "queue": {"kind": "tbf", "limit": "1MB"},
        "transport": {"congestion_control": "cubic"},
        "duration": "2s",
        "noise": {"profile": "exact"},
        "flows": [{"from": [sender], "to": receiver} for sender, receiver in ends],
        "links": {"rate": "100mbit", "delay": f"{DELAY_MS:g}ms", "overrides": overrides},
    }
    config = target.parent / f"{target.name}.yaml"
    config.write_text(json.dumps(asked | more))
    guest_runs.run(config, target)
    return outcast.open_run(target)


def longest_waits_ms(target: Path, limit: str) -> dict[str, float]:
    """By kind, the longest wait in the queue."""
    packets = run_of_all(target, limit).table("packets").drop_nulls("t_out")
    waited = packets.with_columns(wait=(packets["t_out"] - packets["t_in"]) / 1e6 - DELAY_MS)
    ports = dict(waited.group_by("egress").agg(pl.col("wait").max()).rows())
    return {kind: ports[f"s1-eth{2 * n + 2}"] for n, kind in enumerate(KINDS)}


def test_no_kind_loses_its_packets_when_rate_and_delay_change(tmp_path):
    """A queue that was emptied would have lost packets that its counter does not have."""
    changes = (("600ms", "4mbit", "2ms"), ("1200ms", "8mbit", "6ms"))
    events = [
        {"at": at, "from": "s1", "to": f"h{2 * n + 2}", "rate": rate, "delay": delay}
        for at, rate, delay in changes
        for n in range(len(KINDS))
    ]
    run = run_of_all(tmp_path / "run", "60 packets", events=events)
    made = [(change.what, change.requested) for change in run.manifest.changes]
    assert [(change.what, change.shown) for change in run.manifest.changes] == made
    assert Counter(made) == dict.fromkeys(
        (("rate_bps", 4 * 10**6), ("delay_ns", 2 * 10**6), ("rate_bps", 8 * 10**6),
         ("delay_ns", 6 * 10**6)),
        len(KINDS),
    )  # fmt: skip


def test_a_queue_of_one_product_lasts_a_base_rtt(tmp_path):
    waits = longest_waits_ms(tmp_path / "run", "1 bdp")
    # Both links' delays there and back, a full frame on each, and its acknowledgement.
    base_rtt_ms = 4 * DELAY_MS + 1.1 * FRAME_MS + 2 * 0.0072
    for kind in AT_LIMIT:
        assert base_rtt_ms - FRAME_MS < waits[kind] <= base_rtt_ms, kind
    assert max(waits.values()) < base_rtt_ms + FRAME_MS


def test_a_queue_of_5_ms_lasts_no_longer(tmp_path):
    waits = longest_waits_ms(tmp_path / "run", "5ms")
    for kind, wait in waits.items():
        # fq lets 8 packets of a lone flow pass whatever its limit is (docs/queues.md). The shaper
        # takes a packet out of a class before its turn, so there is room for another one.
        more_ms = {"fq": 8 * FRAME_MS}.get(kind, FRAME_MS if kind in WITH_CLASSES else 0)
        assert wait <= 5.0 + more_ms, kind
    for kind in AT_LIMIT:
        assert waits[kind] > 5.0 - FRAME_MS, kind
