import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controllers import entries
from outcast.emulation.commands import Process
from outcast.emulation.network import forwarding, transport
from outcast.errors import CommandError, FeatureMissingError, ReadBackError
from outcast.experiment import load
from outcast.plan.make import make_plan
from outcast.plan.model import Plan

CONFIGS = Path(__file__).parents[3] / "configs"


class FakeKernel:
    """The bridges of a kernel, as ip(8) and bridge(8) change and show them."""

    def __init__(self, *, has_bridge: bool = True) -> None:
        self.has_bridge = has_bridge
        self.masters: dict[str, str] = {}
        self.settings: dict[str, dict[str, bool]] = {}
        self.addresses: set[tuple[str, str]] = set()

    def run(self, argv: Sequence[str], *, stdin: str | None = None, **_: Any) -> str:
        if argv[-1] == "-":
            for line in (stdin or "").split("\n"):
                if line:
                    self._apply(argv, line.split())
            return ""
        if "fdb" in argv:
            shown: list[dict[str, Any]] = [
                {"mac": mac, "ifname": port, "master": self.masters[port], "state": "static"}
                for port, mac in self.addresses
            ]
            shown += [{"mac": "9e:00:00:00:00:01", "ifname": port} for port in self.masters]
            return json.dumps(shown)
        ports = self.settings.items()
        return json.dumps([{"ifname": port, "state": "forwarding", **set_} for port, set_ in ports])

    def _apply(self, argv: Sequence[str], words: list[str]) -> None:
        match words:
            case ["link", "add", "name", _, "type", "bridge", *_]:
                if not self.has_bridge:
                    raise CommandError(argv, 2, "Error: Unknown device type.")
            case ["link", "set", port, "master", bridge]:
                self.masters[port] = bridge
            case ["link", "set", "dev", port, *settings]:
                pairs = zip(settings[::2], settings[1::2], strict=True)
                self.settings[port] = {name: value == "on" for name, value in pairs}
            case ["fdb", "replace", mac, "dev", port, "master", "static"]:
                self.addresses.add((port, mac))
            case ["link", "set", _, "up"]:
                pass
            case _:
                raise AssertionError(words)

    def spawn(self, *_: Any, **__: Any) -> Process:
        raise AssertionError


@pytest.fixture(autouse=True)
def through_iptables(tmp_path, monkeypatch) -> Path:
    """The kernel's setting, as a file. This machine's own stays as it is, if there is one."""
    setting = tmp_path / "sysctl/bridge/bridge-nf-call-iptables"
    setting.parent.mkdir(parents=True)
    setting.write_text("1\n")
    monkeypatch.setattr(transport, "_SYSCTL", tmp_path / "sysctl")
    return setting


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(load(CONFIGS / "fattree-12.yaml"))


def walk(plan: Plan, kernel: FakeKernel, src: str, dst: str) -> list[str]:
    """The nodes that a frame passes, according to the bridges' addresses."""
    way = [src]
    (node,) = plan.graph.neighbors(src)
    while node != dst:
        way.append(node)
        here = forwarding.bridge_name(node)
        ports = [port for port, mac in kernel.addresses if mac == plan.mac(dst)]
        (port,) = (port for port in ports if kernel.masters[port] == here)
        (node,) = (near for near in plan.graph.neighbors(node) if plan.port(node, near) == port)
    return [*way, dst]


def test_frames_do_not_pass_iptables(plan, through_iptables):
    forwarding.create_bridges(plan, FakeKernel())
    assert through_iptables.read_text() == "0"
    through_iptables.unlink()  # as in a kernel without br_netfilter
    forwarding.create_bridges(plan, FakeKernel())
    assert not through_iptables.exists()


def test_frames_go_where_the_flow_tables_say(plan):
    kernel = FakeKernel()
    forwarding.create_bridges(plan, kernel)
    assert set(kernel.masters) == set(plan.switch_ports())
    assert kernel.addresses == set()
    forwarding.install(plan, entries.planned(plan.graph, plan.routes), kernel)
    for src in plan.hosts:
        for dst in plan.hosts:
            if src != dst:
                assert walk(plan, kernel, src, dst) == plan.path(src, dst)
    quiet = {"learning": False, "flood": False, "mcast_flood": False, "bcast_flood": False}
    assert all(settings == quiet for settings in kernel.settings.values())


def test_the_tables_count_and_not_the_plan(plan):
    kernel = FakeKernel()
    forwarding.create_bridges(plan, kernel)
    empty = {switch: frozenset([entries.TABLE_MISS]) for switch in plan.switches}
    forwarding.install(plan, empty, kernel)
    assert kernel.addresses == set()


def test_an_address_that_the_kernel_does_not_show_is_named(plan):
    class Forgetful(FakeKernel):
        def _apply(self, argv: Sequence[str], words: list[str]) -> None:
            if words[:2] != ["fdb", "replace"] or words[4] != "e0_0-eth2":
                super()._apply(argv, words)

    kernel = Forgetful()
    forwarding.create_bridges(plan, kernel)
    with pytest.raises(ReadBackError, match="e0_0-eth2: bridge addresses"):
        forwarding.install(plan, entries.planned(plan.graph, plan.routes), kernel)


def test_a_port_that_floods_is_named(plan):
    kernel = FakeKernel()
    forwarding.create_bridges(plan, kernel)
    kernel.settings["c0_0-eth3"]["flood"] = True
    with pytest.raises(ReadBackError, match="c0_0-eth3: bridge port's flood"):
        forwarding.install(plan, entries.planned(plan.graph, plan.routes), kernel)


def test_a_kernel_without_a_bridge_is_told_with_the_remedy(plan):
    with pytest.raises(FeatureMissingError, match="--engine virtual"):
        forwarding.create_bridges(plan, FakeKernel(has_bridge=False))
