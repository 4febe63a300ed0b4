from collections.abc import Callable

import pytest

from outcast.emulation.traffic.load import LoadMeter, Reading, parse

MACHINE = """cpu  100 10 50 700 20 5 15 100 40 0
cpu0 50 5 25 565 15 2 8 50 20 0
cpu1 20 5 5 140 10 2 8 10 20 0
"""
THREAD = "42 (ovs (odd) name) S 1 42 42 0 -1 4194560 9 0 0 0 30 12 0 0 20 0 1 0 99 0 0"


def test_times_are_read_from_the_kernels_texts():
    reading = parse(MACHINE, THREAD, 1, 3.0, 0.01)
    assert reading.machine_s == pytest.approx(10.0)
    # Idle and iowait count as idle, steal does not. Guest time is part of user time.
    assert reading.machine_busy_s == pytest.approx(2.8)
    assert reading.core_s == pytest.approx(2.0)
    # On the forwarding core, only what precedes forwarding or is forwarding counts.
    assert reading.core_busy_s == pytest.approx(0.2)
    assert reading.switch_s == pytest.approx(0.42)


def meter(shares: list[tuple[float, ...]], step_s: float = 1.0) -> LoadMeter:
    """A meter that ticked once before and once after every (machine, switch, core) share."""
    readings = [Reading(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)]
    for machine, switch, *rest in shares:
        core = rest[0] if rest else 0.0
        last = readings[-1]
        readings.append(
            Reading(
                t_s=last.t_s + step_s,
                machine_busy_s=last.machine_busy_s + 2 * machine * step_s,
                machine_s=last.machine_s + 2 * step_s,
                core_busy_s=last.core_busy_s + core * step_s,
                core_s=last.core_s + step_s,
                switch_s=last.switch_s + switch * step_s,
            )
        )
    read_now: Callable[[], Reading] = iter(readings).__next__
    measured = LoadMeter(read_now)
    for _ in readings[:-1]:
        measured.tick()
    measured.finish()
    return measured


def test_an_idle_machine_gives_numbers_and_no_warning():
    measured = meter([(0.2, 0.1, 0.5), (0.6, 0.3, 0.4)])
    assert measured.warnings() == []
    assert measured.effective() == {
        "cpu.machine_share": 0.4,
        "cpu.machine_share_worst_second": 0.6,
        "cpu.arrivals_core_share": 0.45,
        "cpu.arrivals_core_share_worst_second": 0.5,
        "cpu.openvswitch_share": 0.2,
        "cpu.openvswitch_share_worst_second": 0.3,
    }
