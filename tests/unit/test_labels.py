"""Swept keys and values in words, on axes, in legends and tables."""

import pytest

import configs
from outcast.errors import ConfigError
from outcast.experiment import load
from outcast.sweep.labels import Axis, Labels


def labels(more: str = "") -> Labels:
    swept = f"sweep={{queue.limit: [16KB, 64KB]{more}}}"
    return Labels(load(configs.find("linear-12"), ["flows.0.name=near", swept]))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("queue.limit", "queue limit"),
        ("links.rate", "link rate"),
        ("transport.congestion_control", "congestion control"),
        ("transport.min_rto", "minimum RTO"),
        ("topology.rivals", "rivals"),
        ("flows.0.hosts", "hosts of near"),
        ("flows.1.per_host", "per host of flows 1"),
        ("flows.7.hosts", "hosts of flows 7"),
        ("workloads.0.load", "load of workload 0"),
        ("flows.1", "flows 1"),
        ("links.layers.host-edge.rate", "links layers host-edge rate"),
        ("seed", "seed"),
    ],
)
def test_a_key_in_words(key, words):
    assert labels().key(key) == words


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("queue.limit", "16KB", "16 KB"),
        ("queue.limit", "11 packets", "11 packets"),
        ("links.rate", "1gbit", "1 Gbps"),
        ("links.delay", "5us", "5 µs"),
        ("transport.congestion_control", "cubic", "cubic"),
        ("queue.kind", "fq_codel", "fq_codel"),
        ("routing.kind", "spanning_tree", "spanning_tree"),
        ("transport.sack", True, "on"),
        ("transport.sack", "false", "off"),
        ("queue", "tbf limit=64KB", "tbf, 64 KB"),
        ("queue", {"kind": "tbf", "limit": "64KB"}, "tbf, 64 KB"),
        ("queue", "htb limit=11 packets", "htb, 11 packets"),
        ("queue", "red limit=64KB min=5KB", "red, 64 KB, min 5 KB"),
        ("flows.1.hosts", 12, "12"),
        ("queue.limit", None, "as configured"),
        ("queue.limit", "<b>", "<b>"),
    ],
)
def test_a_value_in_words(key, value, words):
    assert labels().value(key, value) == words


@pytest.mark.parametrize(
    ("key", "values", "axis"),
    [
        ("queue.limit", ["16KB", "1MB"], ("queue limit (KB)", ["16", "1024"], (16384, 1 << 20))),
        ("links.rate", ["100mbit", "1gbit"], ("link rate (Mbps)", ["100", "1000"], (1e8, 1e9))),
        ("links.delay", ["0ns", "5us"], ("link delay (µs)", ["0", "5"], (0, 5e3))),
        ("queue.limit", ["11 packets"], ("queue limit (packets)", ["11"], (11,))),
        ("flows.1.hosts", [2, 12], ("hosts of flows 1", ["2", "12"], (2, 12))),
        ("queue.limit", ["16KB", "11 packets"], ("queue limit", ["16 KB", "11 packets"], None)),
        ("queue", ["tbf limit=1MB", None], ("queue", ["tbf, 1 MB", "as configured"], None)),
        ("links.rate", [], ("link rate", [], None)),
        ("links.loss", [0, 2.5], ("links loss", ["0", "2.5"], (0, 2.5))),
        ("transport.congestion_control", ["bic"], ("congestion control", ["bic"], None)),
        ("transport.sack", [True], ("SACK", ["on"], None)),
    ],
)
def test_an_axis_has_the_unit_and_the_ticks_the_numbers(key, values, axis):
    label, ticks, amounts = axis
    assert labels().axis(key, values) == Axis(label, tuple(ticks), amounts)


def test_a_users_own_label_is_everywhere():
    own = labels(", labels: {queue.limit: buffer}")
    assert own.key("queue.limit") == "buffer"
    assert own.axis("queue.limit", ["16KB"]).label == "buffer (KB)"


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("{queue.size: buffer}", "labels: queue.size is not swept; swept are queue.limit"),
        ('{queue.limit: ""}', "at least 1 character"),
        ('{queue.limit: "a\\nb"}', "labels: queue.limit: allowed are printable characters"),
        ("[buffer]", "labels"),
    ],
)
def test_labels_that_fit_no_key_are_refused(label, problem):
    with pytest.raises(ConfigError, match=problem):
        labels(f", labels: {label}")
