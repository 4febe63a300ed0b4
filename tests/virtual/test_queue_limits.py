"""Limits as times and bandwidth-delay products, of all kinds at once: how long packets wait."""

from pathlib import Path

import polars as pl

import outcast
from outcast.experiment import MTU_FRAME_BYTES
from outcast.experiment.wire import FRAMINGS
from tests import guest_runs

KINDS = (
    *("tbf", "htb", "pfifo", "bfifo", "red", "sfq", "codel", "fq_codel", "pie", "dualpi2"),
    *("fq", "cake"),
)
AT_LIMIT = KINDS[:6]
"""In slow start these fill their queue. RED does too, because its average comes late."""
RATE_BPS, DELAY_MS = 10**7, 5.0
FRAME_MS = FRAMINGS["ethernet"].wire_bytes(MTU_FRAME_BYTES) * 8e3 / RATE_BPS


def longest_waits_ms(target: Path, limit: str) -> dict[str, float]:
    """By kind, the longest wait in the queue. Each kind has a port and a flow of its own."""
    config = target.parent / f"{target.name}.yaml"
    lines = [
        "name: kinds",
        f"topology: {{kind: star, hosts: {2 * len(KINDS)}}}",
        "queue: {kind: tbf, limit: 1MB}",
        "transport: {congestion_control: cubic}",
        "duration: 2s",
        "noise: {profile: exact}",
        "flows:",
        *(f"  - {{from: [h{2 * n + 1}], to: h{2 * n + 2}}}" for n in range(len(KINDS))),
        f"links:\n  rate: 100mbit\n  delay: {DELAY_MS:g}ms\n  overrides:",
        *(
            f"    - {{from: s1, to: h{2 * n + 2}, rate: {RATE_BPS}bit, "
            f"queue: {{kind: {kind}, limit: {limit}}}}}"
            for n, kind in enumerate(KINDS)
        ),
    ]
    config.write_text("\n".join(lines) + "\n")
    guest_runs.run(config, target)
    packets = outcast.open_run(target).table("packets").drop_nulls("t_out")
    waited = packets.with_columns(wait=(packets["t_out"] - packets["t_in"]) / 1e6 - DELAY_MS)
    ports = dict(waited.group_by("egress").agg(pl.col("wait").max()).rows())
    return {kind: ports[f"s1-eth{2 * n + 2}"] for n, kind in enumerate(KINDS)}


def test_a_queue_of_one_product_lasts_a_base_rtt(tmp_path):
    waits = longest_waits_ms(tmp_path / "run", "1 bdp")
    # Both links' delays there and back, a full frame on each, and its acknowledgement.
    base_rtt_ms = 4 * DELAY_MS + 1.1 * FRAME_MS + 2 * 0.0072
    for kind in AT_LIMIT:
        assert base_rtt_ms - FRAME_MS < waits[kind] <= base_rtt_ms, kind
    assert max(waits.values()) < base_rtt_ms + FRAME_MS


def test_a_queue_of_5_ms_lasts_no_longer(tmp_path):
    waits = longest_waits_ms(tmp_path / "run", "5ms")
    # fq lets 8 packets of a lone flow pass whatever its limit is (docs/queues.md).
    assert max(wait for kind, wait in waits.items() if kind != "fq") <= 5.0
    for kind in AT_LIMIT:
        assert waits[kind] > 5.0 - FRAME_MS, kind
