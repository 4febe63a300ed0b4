"""IPv6 addresses: they follow from IPv4 addresses, and the plan has them where it should."""

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from outcast import experiment
from outcast.emulation.network import transport
from outcast.emulation.traffic import capture
from outcast.errors import FeatureMissingError
from outcast.plan.addresses import ipv4_of, ipv6_of
from outcast.plan.make import make_plan
from outcast.plan.model import Plan

CONFIG = {
    "name": "addresses",
    "topology": {"kind": "linear", "rivals": 2},
    "links": {"rate": "100mbit", "delay": "5us"},
    "queue": {"kind": "pfifo", "limit": "20 packets"},
    "duration": "100ms",
    "flows": [{"name": "one", "from": ["h2"]}, {"name": "other", "from": ["h3"]}],
}


def planned(folder: Path, *settings: str, **keys: Any) -> Plan:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**CONFIG, **keys}))
    return make_plan(experiment.load(file, settings))


@given(st.integers(0, 2**32 - 1))
def test_an_address_of_either_family_tells_the_other(number):
    ipv4 = str(IPv4Address(number))
    assert ipv4_of(ipv6_of(ipv4)) == ipv4_of(f"::ffff:{ipv4}") == ipv4_of(ipv4) == ipv4


def test_other_addresses_stay():
    for address in ("fd01::1", "2001:db8::a00:1", "fd00:0:0:1::a00:1", "::1"):
        assert ipv4_of(address) == address


def test_flows_have_the_family_that_is_asked_for(tmp_path):
    def ends(*settings: str) -> list[tuple[str, str, int]]:
        flows = planned(tmp_path, *settings).flows
        return [(flow.src_ip, flow.dst_ip, flow.dport) for flow in flows]

    assert ends() == [("10.0.0.2", "10.0.0.1", 5001), ("10.0.0.3", "10.0.0.1", 5001)]
    both = ends("addressing=both", "flows.1.addressing=ipv6")
    # Each family has a receiver of its own.
    assert both == [("10.0.0.2", "10.0.0.1", 5001), ("fd00::a00:3", "fd00::a00:1", 5004)]
    assert {src for src, _, _ in ends("addressing=ipv6")} == {"fd00::a00:2", "fd00::a00:3"}


def test_all_that_leaves_for_a_receiver_is_captured_whatever_its_family(tmp_path):
    plan = planned(tmp_path, "addressing=both")
    assert plan.bottleneck.destinations == ("10.0.0.1", "fd00::a00:1")
    assert planned(tmp_path).bottleneck.destinations == ("10.0.0.1",)


def test_hosts_of_programs_have_a_probe_for_each_family(tmp_path):
    program = {"name": "get", "host": "h2", "command": ["curl", "{h1.url}"]}
    for addressing, sources in (
        ("ipv4", {"10.0.0.1", "10.0.0.2"}),
        ("ipv6", {"fd00::a00:1", "fd00::a00:2"}),
        ("both", {"10.0.0.1", "10.0.0.2", "fd00::a00:1", "fd00::a00:2"}),
    ):
        plan = planned(tmp_path, f"addressing={addressing}", flows=[], programs=[program])
        assert {packet.src for packet in plan.path_probes()} == sources
    assert plan.host_of["fd00::a00:2"] == plan.host_of["10.0.0.2"] == "h2"


def test_a_kernel_without_ipv6_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "_SYSCTL", tmp_path)
    with pytest.raises(FeatureMissingError, match="this kernel has no IPv6") as raised:
        transport.require_ipv6()
    assert raised.value.exit_status == 3
    (tmp_path / "ipv6/conf/all").mkdir(parents=True)
    (tmp_path / "ipv6/conf/all/disable_ipv6").write_text("1\n")
    transport.require_ipv6()


def test_a_run_captures_the_families_that_hosts_have():
    assert capture.wanted(["ipv4"]) == "ip"
    assert capture.wanted(["ipv4", "ipv6"]) == "ip or (ip6 and not dst host ff02::16)"
