import pytest

from outcast.emulation.traffic.load import LoadMeter, Reading, parse

MACHINE = """cpu  100 10 50 700 20 5 15 100 40 0
cpu0 50 5 25 565 15 2 8 50 20 0
cpu1 20 5 5 140 10 2 8 10 20 0
"""
THREAD = "42 (ovs (odd) name) S 1 42 42 0 -1 4194560 9 0 0 0 30 12 0 0 20 0 1 0 99 0 0"


def test_times_are_read_from_the_kernels_texts():
    reading = parse(MACHINE, THREAD, 1, 3.0, 0.01)
    # Idle and iowait count as idle, steal does not. Guest time is part of user time.
    assert reading.machine == pytest.approx((2.8, 10.0))
    # On the forwarding core, only what precedes forwarding or is forwarding counts.
    assert reading.arrivals_core == pytest.approx((0.2, 2.0))
    assert reading.openvswitch == pytest.approx((0.42, 3.0))


def test_a_busy_second_is_named_and_the_others_are_in_the_mean():
    readings = [
        Reading((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
        Reading((0.4, 2.0), (0.5, 1.0), (0.1, 1.0)),
        Reading((2.36, 4.0), (0.9, 2.0), (0.4, 2.0)),
    ]
    meter = LoadMeter(iter(readings).__next__)
    meter.tick()
    assert (meter.warnings(), meter.effective()) == ([], {})
    meter.tick()
    assert meter.warnings() == []
    meter.finish()
    (warning,) = meter.warnings()
    assert "the machine's cores were more than 95% busy in 1 of 2 seconds (worst: 98%)" in warning
    assert meter.effective() == {
        "cpu.machine_share": 0.59,
        "cpu.machine_share_worst_second": 0.98,
        "cpu.arrivals_core_share": 0.45,
        "cpu.arrivals_core_share_worst_second": 0.5,
        "cpu.openvswitch_share": 0.2,
        "cpu.openvswitch_share_worst_second": 0.3,
    }
