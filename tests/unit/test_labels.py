"""What swept keys and values are called on axes, in legends and tables."""

import pytest

import configs
from outcast.experiment import load
from outcast.sweep.render import Axis, Labels


def labels(more: str = "") -> Labels:
    swept = f"sweep={{queue.limit: [16KB, 64KB]{more}}}"
    return Labels(load(configs.find("linear-12"), ["flows.0.name=near", swept]))


@pytest.mark.parametrize(
    ("key", "values", "axis"),
    [
        ("queue.limit", ["16KB", "1MB"], ("queue.limit (KB)", ["16", "1024"], (16384, 1 << 20))),
        ("links.rate", ["100mbit", "1gbit"], ("links.rate (Mbps)", ["100", "1000"], (1e8, 1e9))),
        ("links.delay", ["0ns", "5us"], ("links.delay (µs)", ["0", "5"], (0, 5e3))),
        ("queue.limit", ["11 packets"], ("queue.limit (packets)", ["11"], (11,))),
        ("flows.1.hosts", [2, 12], ("flows.1.hosts", ["2", "12"], (2, 12))),
        ("queue.limit", ["16KB", "11 packets"], ("queue.limit", ["16KB", "11 packets"], None)),
        ("queue", ["tbf limit=1MB", None], ("queue", ["tbf limit=1MB", "as configured"], None)),
        ("links.rate", [], ("links.rate", [], None)),
        ("links.loss", [0, 2.5], ("links.loss", ["0", "2.5"], (0, 2.5))),
        ("transport.congestion_control", ["bic"], ("transport.congestion_control", ["bic"], None)),
        ("transport.sack", [True], ("transport.sack", ["true"], None)),
    ],
)
def test_an_axis_has_the_unit_and_the_ticks_the_numbers(key, values, axis):
    label, ticks, amounts = axis
    assert labels().axis(key, values) == Axis(label, tuple(ticks), amounts)
