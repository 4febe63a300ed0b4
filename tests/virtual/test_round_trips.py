"""Round trips of single segments, against what the switch's own captures and its links give."""

from pathlib import Path

import polars as pl
import pytest

from outcast.analysis import Measure
from outcast.analysis.run_measures import sender_measures
from outcast.records.run import Run
from tests import guest_runs

DELAY_NS = 100_000
FRAME_NS = 12_304
"""1,538 bytes on the wire at 1 Gbps."""
ACKNOWLEDGEMENT_NS = 720
"""The same for 90 bytes, with timestamps."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A flow over two hops and one over three, so slow that no queue builds up."""
    target = tmp_path_factory.mktemp("trips") / "run"
    guest_runs.run(
        *("linear-12", target, "duration=300ms", "capture.ports=[s1-eth2, s2-eth2]"),
        *(
            "topology.rivals=1",
            "flows.1.hosts=1",
            "noise.profile=exact",
            "links.rate=1gbit",
            f"links.delay={DELAY_NS}ns",
        ),
        *("transport.pacing=internal", "transport.pacing_rate=50mbit", "analysis.windows=[300ms]"),
    )
    return Run(Path(target))


@pytest.mark.parametrize(("hops", "links"), [(2, 1), (3, 2)])
def test_a_round_trip_without_queues_is_that_of_the_links(run, hops, links):
    """From the sender's switch on: each link once there, once back, and the delay to the sender.

    A port is captured behind its delay. A frame of the other flow may be ahead at the receiver's.
    """
    expected_ns = links * (2 * DELAY_NS + FRAME_NS + ACKNOWLEDGEMENT_NS) + DELAY_NS
    found_ms = sender_measures.segment_rtt_ms(run, Measure(kind="segment_rtt_ms", hops=hops))
    assert expected_ns <= round(found_ms * 1e6) <= expected_ns + FRAME_NS


def test_flows_without_a_capture_are_left_out(run):
    flows = set(sender_measures.segments(run)["flow"])
    assert flows == {0, 1}
    part = Measure(kind="segment_rtt_ms", hops=4)
    assert pl.Series([sender_measures.segment_rtt_ms(run, part)]).is_nan().all()
