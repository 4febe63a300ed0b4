import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from controllers.hashing import TCP, UDP, FiveTuple, choose
from controllers.routes import hash_parameter
from outcast.emulation.commands import SystemCommands
from outcast.emulation.network import multipath
from outcast.errors import FeatureMissingError, ReadBackError, RunError
from outcast.experiment import Transport
from tests.flows import SAMPLE, wants
from tests.unit.plan.test_routes import fat_tree

FLOW = wants(mptcp={"subflows": 3})
PLAIN = replace(FLOW, flow=1, src="h3", transport=Transport())

OWN = replace(SAMPLE, mptcp_token=0x3AFDBAEF)
SAMPLES = [
    OWN,
    replace(OWN, local_port=40933, peer_port=6102),
    replace(OWN, local_port=53127, peer_port=6101),
    replace(OWN, local_port=53129, peer_port=6101, mptcp_token=0x11111111),
    replace(OWN, local_port=53131, peer_port=6101, is_established=False),
    replace(OWN, local_port=20002, mptcp_token=None),
]
"""A connection's own socket, two that joined, another's, one that is closing, and a plain one."""


@dataclass
class FakeIp(SystemCommands):
    """ip-mptcp(8) of every namespace, by its descriptor."""

    limits: dict[int | None, str] = field(default_factory=dict)
    endpoints: dict[int | None, list[str]] = field(default_factory=dict)
    deaf: bool = False
    full: bool = False

    def run(self, argv: Sequence[str], *, netns: int | None = None, **_options: Any) -> str:
        words = " ".join(argv)
        if words.startswith("ip mptcp limits set ") and not self.deaf:
            self.limits[netns] = words.removeprefix("ip mptcp limits set ")
        elif words == "ip mptcp limits":
            return self.limits.get(netns, "add_addr_accepted 0 subflows 2") + " \n"
        elif words.startswith("ip mptcp endpoint add ") and not (self.full and self.endpoints):
            self.endpoints.setdefault(netns, []).append(words.split("add ")[1])
        elif words == "ip mptcp endpoint":
            lines = [each.replace(" signal", " id 1 signal") for each in self.endpoints[netns]]
            # A device comes last.
            return "\n".join(re.sub(" (dev .*) subflow", r" id 1 subflow \1", one) for one in lines)
        return ""


def test_receivers_announce_a_port_for_each_further_subflow():
    ip = FakeIp()
    netns = {"h1": 1, "h2": 2, "h3": 3}
    assert multipath.configure([FLOW, PLAIN], netns.__getitem__, ip) == {"h1": 3, "h2": 3}
    assert ip.endpoints == {1: [f"10.0.0.1 port {port} signal" for port in (6101, 6102)]}
    assert set(ip.limits) == {1, 2}
    with pytest.raises(ReadBackError, match="h2: mptcp limits"):
        multipath.configure([FLOW], netns.__getitem__, FakeIp(deaf=True))
    with pytest.raises(ReadBackError, match="h1: mptcp endpoints"):
        multipath.configure([FLOW], netns.__getitem__, FakeIp(full=True))


def test_a_sender_makes_subflows_from_its_further_interfaces():
    flow = wants(mptcp={"subflows": 3, "over": "interfaces"})
    further = {"cell-eth0": "10.0.0.7", "wire-eth0": "10.0.0.8"}
    ip, netns = FakeIp(), {"h1": 1, "h2": 2}.__getitem__
    assert multipath.configure([flow], netns, ip, lambda _: further) == {"h1": 3, "h2": 3}
    assert ip.endpoints == {
        2: [f"{address} dev {name} subflow" for name, address in further.items()]
    }
    with pytest.raises(ReadBackError, match="h2: mptcp endpoints"):
        multipath.configure([flow], netns, FakeIp(full=True), lambda _: further)


def test_subflows_are_those_of_the_connections_token():
    found = multipath.await_subflows([FLOW, PLAIN], lambda host: SAMPLES, 0)
    assert found == {0: ((40933, 6102, "10.0.0.2"), (53127, 6101, "10.0.0.2"))}
    with pytest.raises(RunError, match=r"flow 0 \(h2 to h1\) has 2 of 3 subflows"):
        multipath.await_subflows([FLOW], lambda host: SAMPLES[:2], time.time_ns())


@pytest.mark.parametrize("content", ["0\n", None])
def test_without_multipath_tcp(content, tmp_path, monkeypatch):
    enabled = tmp_path / "enabled"
    if content is not None:
        enabled.write_text(content)
    monkeypatch.setattr(multipath, "ENABLED", enabled)
    with pytest.raises(FeatureMissingError, match="--engine virtual"):
        multipath.require()
    enabled.write_text("1\n")
    multipath.require()


PORTS = (2, 3, 4, 5, 6)

# Open vSwitch 3.1: "using bucket" of `ovs-appctl ofproto/trace` with the parameter 12884901893.
TRACED = [
    (FiveTuple("10.1.1.2", 47266, "10.3.0.2", 5001, TCP), 4),
    (FiveTuple("10.3.0.2", 4360, "10.0.0.2", 5001, UDP), 5),
    (FiveTuple("10.3.1.2", 14545, "10.2.0.2", 5001, TCP), 2),
    (FiveTuple("10.2.0.2", 17153, "10.1.0.2", 5001, UDP), 2),
    (FiveTuple("10.0.1.3", 12677, "10.1.0.2", 5001, TCP), 5),
    (FiveTuple("10.2.1.3", 5684, "10.2.0.2", 5001, UDP), 3),
    (FiveTuple("10.3.0.2", 16209, "10.3.0.2", 5001, TCP), 6),
    (FiveTuple("10.2.0.3", 473, "10.2.0.2", 5001, UDP), 6),
    (FiveTuple("10.2.0.3", 27770, "10.2.0.2", 5001, TCP), 3),
    (FiveTuple("10.3.1.2", 15285, "10.2.0.2", 5001, UDP), 2),
]


def five_tuples(count: int, seed: int = 1) -> list[FiveTuple]:
    """Flows as in experiments: few addresses, consecutive ports, one receiver."""
    random = Random(seed)
    return [
        FiveTuple(
            f"10.{random.randrange(8)}.{random.randrange(4)}.{random.randrange(2, 6)}",
            20001 + number,
            "10.0.0.2",
            5001,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(("flow", "port"), TRACED)
def test_it_is_what_open_vswitch_chooses(flow, port):
    assert choose(flow, 12884901893, PORTS) == port


@pytest.mark.parametrize("buckets", [2, 3, 4, 8])
@pytest.mark.parametrize("parameter", [0, 1, 7 << 32 | 21])
def test_flows_are_split_evenly(buckets, parameter):
    """Each port's share within five standard deviations of the binomial distribution.

    In none of 12 combinations; a fair split exceeds that once in two million.
    """
    count = 20_000
    uses = Counter(choose(flow, parameter, range(buckets)) for flow in five_tuples(count))
    expected = count / buckets
    deviation = (expected * (1 - 1 / buckets)) ** 0.5
    assert all(abs(uses[port] - expected) < 5 * deviation for port in range(buckets))


def test_a_switch_does_not_repeat_the_choice_of_the_one_before():
    """Otherwise half of the core would stay unused (hash polarisation)."""
    graph = fat_tree(4)
    count = 4000
    edge, aggregation = (hash_parameter(0, graph, switch) for switch in ("e1_0", "a1_0"))
    pairs = Counter(
        (choose(flow, edge, (3, 4)), choose(flow, aggregation, (3, 4)))
        for flow in five_tuples(count)
    )
    deviation = (count * 3 / 16) ** 0.5
    assert all(abs(uses - count / 4) < 5 * deviation for uses in pairs.values())
    assert len(pairs) == 4
