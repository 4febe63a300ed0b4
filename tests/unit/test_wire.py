"""What a frame takes on a link: the arithmetic, what the shapers are told, and old runs."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from outcast import experiment, netlink
from outcast.emulation.queues import qdiscs
from outcast.emulation.queues.reconfigure import rate_request
from outcast.errors import ConfigError
from outcast.experiment.links import FRAMINGS
from outcast.plan import ports
from outcast.plan.make import make_plan

FIG3C = Path(__file__).parents[2] / "configs/fig3c.yaml"


@pytest.mark.parametrize(
    ("frame_bytes", "wire_bytes"),
    [
        (1514, 1538),
        (9014, 9038),
        # An acknowledgement with timestamps, one without, which is filled up, and an ARP request.
        (66, 90),
        (60, 84),
        (54, 84),
        (42, 84),
    ],
)
def test_preamble_check_sequence_and_gap_take_time(frame_bytes, wire_bytes):
    assert FRAMINGS["ethernet"].wire_bytes(frame_bytes) == wire_bytes
    assert FRAMINGS["none"].wire_bytes(frame_bytes) == frame_bytes


@pytest.mark.parametrize(("overhead", "frame_ns"), [("ethernet", 12_304), ("none", 12_112)])
def test_a_full_frames_time_at_a_gigabit(overhead, frame_ns):
    loaded = experiment.load(FIG3C, [f"links.overhead={overhead}"])
    plan = make_plan(loaded)
    assert {link.frame_ns for link in plan.links.values()} == {frame_ns}
    # 941 and 956 Mbps.
    assert round(1448 * 8e3 / frame_ns) == {"ethernet": 941, "none": 956}[overhead]
    port = ports.switch_queue(loaded, plan, "e0_0-eth1")
    assert qdiscs.record(port).framing == FRAMINGS[overhead]
    # The limit stays in bytes of frames.
    assert port.queue.tc() == (("bfifo", (16384).to_bytes(4, "little"), None),)


def test_another_overhead_is_refused():
    with pytest.raises(ConfigError, match=r"links\.overhead.*'ethernet' or 'none'"):
        experiment.load(FIG3C, ["links.overhead=atm"])


@pytest.mark.parametrize("kind", ["tbf", "htb"])
def test_a_change_of_rate_keeps_the_overhead(kind):
    loaded = experiment.load(FIG3C, [f"queue={{kind: {kind}, limit: 16KB}}", "links.rate=1gbit"])
    port = ports.switch_queue(loaded, make_plan(loaded), "e0_0-eth1")
    request = rate_request(7, replace(port, rate_bps=5 * 10**8))
    options = netlink.attribute(request[36:], 2) or b""
    parameters = netlink.attribute(options, 1) or b""
    # Struct tc_ratespec: cell_log, linklayer, overhead, mpu, rate in bytes a second; cell_align is
    # of tables of times, which the kernel does not use.
    told = struct.unpack_from("=BBH2xHI", parameters)
    assert told == (0, 1, 24, 84, 62_500_000)
