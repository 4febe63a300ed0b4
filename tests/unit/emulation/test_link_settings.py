"""Links one by one: whose settings win, what is refused, and what follows from them elsewhere."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outcast import netlink
from outcast.analysis.port_analysis import elsewhere
from outcast.emulation.commands import SystemCommands
from outcast.emulation.kernel import counters, rtnetlink
from outcast.emulation.network import lossy_links
from outcast.emulation.queues import netem, qdiscs, reconfigure
from outcast.engines import realtime
from outcast.errors import CommandError, ConfigError, FeatureMissingError, ReadBackError
from outcast.experiment import Experiment, Link, links, load
from outcast.plan import link_words, ports
from outcast.plan.events import changes
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.records.counters import Cause, Counters
from outcast.records.flows import BottleneckRecord, FlowRecord
from outcast.records.run_directory import Manifest
from tests import records
from tests.fakes import Shown
from tests.plans import planned

CONFIGS = Path(__file__).parents[3] / "configs"
LINEAR = ("links.rate=1gbit", "flows=[{from: 2-hop}, {from: 3-hop, hosts: 2}]")


def resolved(*settings: str, config: str = "linear-12") -> tuple[Experiment, Plan]:
    first = [*LINEAR] if "lin" in config else []
    return planned(config, *first, "noise.profile=jitter", *settings)


def overrides(*items: Mapping[str, Any]) -> str:
    return f"links.overrides={json.dumps(items)}"


def to_h1(**settings: Any) -> str:
    """An override of the direction from s1 to h1."""
    return overrides({"from": "s1", "to": "h1", **settings})


def test_an_override_is_of_both_directions_or_of_one():
    _, plan = resolved(
        overrides(
            {"between": ["s1", "s2"], "rate": "100mbit", "delay": "2ms", "loss": 0.01},
            {"from": "h3", "to": "s2", "rate": "10mbit"},
        )
    )
    # The default jitter is the greatest that a link can have: half a full frame's time.
    trunk = Link(10**8, 2 * 10**6, 61_520, loss=0.01, overhead="ethernet")
    assert plan.links["s1", "s2"] == plan.links["s2", "s1"] == trunk
    assert plan.links["h3", "s2"] == Link(10**7, 25_000, 25_000, overhead="ethernet")
    usual = Link(10**9, 25_000, 6_152, overhead="ethernet")
    assert plan.links["s2", "h3"] == plan.links["s2", "h4"] == usual


def test_a_jitter_that_was_given_stays_as_long_as_it_fits():
    fast = {"between": ["s1", "s2"], "rate": "10gbit"}
    lossy = {"from": "h3", "to": "s2", "loss": 0.1}
    _, plan = resolved("links.delay=25us", "links.jitter=3us", overrides(fast, lossy))
    assert plan.links["s1", "s2"].jitter_ns == 615
    assert plan.links["h3", "s2"].jitter_ns == 3000


def test_overrides_win_over_layers_and_over_all_links():
    layers = "links.layers={edge-aggregation: {rate: 500mbit, loss: 0.2, mtu: 2000}}"
    own = overrides({"from": "e0_0", "to": "a0_0", "rate": "50mbit"})
    _, plan = resolved(layers, own, "links.mtu=2000", config="fig3c")
    assert plan.links["e0_0", "a0_0"].rate_bps == 5 * 10**7
    assert plan.links["e0_0", "a0_0"].loss == 0.2
    assert plan.links["a0_0", "e0_0"].rate_bps == 5 * 10**8
    assert plan.links["h0_0_2", "e0_0"].loss == 0.0


def test_tcp_agrees_on_the_smaller_mtu_of_its_hosts():
    _, plan = resolved(overrides({"between": ["h3", "s2"], "mtu": 9000}))
    assert plan.smallest_mtu_bytes(("h3", "s2", "s1", "h1")) == 1500
    datagrams = "workloads=[{kind: constant_rate, rate: 1mbit, from: h3, datagram: 8972B}]"
    resolved("links.mtu=9000", datagrams)


def test_a_links_queue_wins_and_stands_at_both_ends():
    own = {"between": ["h3", "s2"], "queue": {"kind": "pfifo", "limit": "7 packets"}}
    others = "queues=[{at: [s2-eth2, s2-eth3], queue: {kind: tbf, limit: 64KB}}]"
    whole, plan = resolved(overrides(own), others)
    assert ports.switch_queue(whole, plan, "s2-eth2").queue.wire_limit.packets == 7
    assert ports.host_queue(whole, plan, "h3").queue.wire_limit.packets == 7
    assert ports.switch_queue(whole, plan, "s2-eth3").queue.wire_limit.size_bytes == 65_536
    assert ports.host_queue(whole, plan, "h4").queue.wire_limit.packets == 1000


def test_a_jumbo_frame_passes_every_shaper_and_is_counted_as_a_full_frame():
    whole, plan = resolved("links.mtu=9000", "queue.limit=64KB")
    for port in (ports.switch_queue(whole, plan, "s1-eth1"), ports.host_queue(whole, plan, "h3")):
        assert port.frame_bytes == 9014
        assert port.queue.burst_bytes == 9014 + 133
        ports.require_fits(port)
    assert qdiscs.record(ports.switch_queue(whole, plan, "s1-eth1")).frame_bytes == 9014
    # Half a frame of 9014 B takes 36 us, which is more than the delay.
    assert plan.links["s1", "s2"].jitter_ns == 25_000
    enough = resolved("links.mtu=9000", "queue={kind: tbf, limit: 64KB, burst: 20KB}")
    assert ports.switch_queue(*enough, "s1-eth1").queue.burst_bytes == 20_480


def test_the_rate_in_the_direction_of_the_data_decides_the_bottleneck():
    assert resolved()[1].bottleneck.egress == "s1-eth1"
    for ends, egress in (("s2", "s1"), "s2-eth1"), (("s1", "s2"), "s1-eth1"):
        slow = dict(zip(("from", "to"), ends, strict=True), rate="100mbit")
        assert resolved(overrides(slow))[1].bottleneck.egress == egress


def test_the_bottleneck_can_be_named():
    whole, plan = resolved("bottleneck.port=s2-eth1")
    assert (plan.bottleneck.switch, plan.bottleneck.egress) == ("s2", "s2-eth1")
    assert plan.bottleneck.ingress == ("s2-eth2", "s2-eth3")
    assert ("s2-eth1", "out") in plan.capture_ports
    aside = "queues=[{at: bottleneck, queue: {kind: pfifo, limit: 7 packets}}]"
    whole, plan = resolved("bottleneck={port: s2-eth1}", aside)
    assert ports.switch_queue(whole, plan, "s2-eth1").queue.wire_limit.packets == 7


def of(where: str, *rows: tuple[str, str]) -> list[tuple[tuple[str, ...], str]]:
    return [((where % keys,), said) for keys, said in rows]


def test_only_links_that_lose_packets_are_two_pairs():
    _, plan = resolved(to_h1(loss=0.1))
    (wire,) = plan.wires.values()
    assert (wire.facing("s1"), wire.facing("h1")) == ("wire1-0", "wire1-1")
    assert resolved()[1].wires == {}


def test_each_direction_loses_by_a_generator_of_its_own():
    own = overrides({"between": ["s1", "s2"], "loss": 0.1}, {"from": "s1", "to": "h1", "loss": 0.2})
    whole, plan = resolved(own)
    losses = lossy_links.losses(whole, plan)
    shares = {direction: loss.share for direction, loss in losses.items()}
    assert shares == {("s1", "h1"): 0.2, ("s1", "s2"): 0.1, ("s2", "s1"): 0.1}
    assert len({loss.seed for loss in losses.values()}) == 3
    assert lossy_links.losses(whole, plan) == losses
    assert lossy_links.losses(whole.model_copy(update={"seed": 2}), plan) != losses


def test_netem_is_told_the_loss_and_its_seed_and_shows_them():
    lossy = netem.Shown(netem.options(loss=netem.Loss(0.01, 12_345)))
    assert (lossy.loss, lossy.seed) == (42_949_673, 12_345)
    # A kernel before Linux 6.6 shows no seed.
    none = netem.Shown(netem.options())
    assert (none.loss, none.seed) == (0, None)


FAULTS = {
    "burst_loss": {"p": 0.25, "r": 0.5},
    "late": {"share": 0.25, "by": "2ms"},
    "duplicate": 0.125,
}
POLICER = {"policer": {"rate": "10500kbit", "burst": "33000B"}}


class FakeTc(SystemCommands):
    """Answers as tc(8) of iproute2 6.1 does, or as a kernel that lacks what redirects packets."""

    def __init__(self, shown: str | None) -> None:
        self.shown, self.given = shown, ""

    def run(self, argv: Any, *, stdin: str = "", **_options: Any) -> str:
        if self.shown is None:
            raise CommandError(list(argv), 2, "Error: TC classifier not found.\n")
        self.given += stdin
        return self.shown


def test_a_policer_stands_before_the_wire_and_is_read_back(monkeypatch):
    whole, plan = resolved(to_h1(**POLICER))
    FakeKernel(lambda options: options).stand_in(monkeypatch)
    tc = FakeTc("")
    lossy_links.connect(plan, tc)
    assert tc.given.count("police index 10 rate 10500000bit burst 33000b") == 1
    asked = plan.links["s1", "h1"].policer
    assert asked is not None

    class Shows:
        """The kernel's answer to the question for a policer."""

        def __init__(self, **others: Any) -> None:
            self.answer = reconfigure.policer_requests(10, asked.model_copy(update=others))[0]

        def ask(self, _question: bytes, _count: int) -> list[bytes]:
            return [self.answer]

        def close(self) -> None:
            pass

    monkeypatch.setattr(lossy_links, "NetlinkSocket", lambda *_: Shows())
    settings = lossy_links.start_losing(whole, plan)
    assert settings["links.s1 to h1.policer"] == {"rate": 10_500_000, "burst": 33_000}
    for others in ({"rate_bps": 1_050_000}, {"burst_bytes": 3_300}):
        monkeypatch.setattr(lossy_links, "NetlinkSocket", lambda *_, others=others: Shows(**others))
        with pytest.raises(ReadBackError, match="policer"):
            lossy_links.start_losing(whole, plan)
    assert link_words.settings(plan.links["s1", "h1"]).endswith("policer 10500kbit, mtu 1500")


def test_netem_is_told_the_other_faults():
    whole, plan = resolved(to_h1(**FAULTS))
    (loss,) = lossy_links.losses(whole, plan).values()
    told = netem.options(limit_packets=9, loss=loss)
    # struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
    assert struct.unpack_from("=6I", told) == (0, 9, 0, 1, 2**29, 0)
    attributes = dict(netlink.attributes(told[24:]))
    assert struct.unpack("=q", attributes[netem.LATENCY64]) == (2_000_000,)
    # Three of four are sent at once, which netem calls reordered.
    assert struct.unpack("=2I", attributes[3]) == (3 * 2**30 - 1, 0)
    assert struct.unpack("=4I", attributes[5][4:]) == (2**30, 2**31, 0, 0)
    settings = link_words.settings(plan.links["s1", "h1"])
    assert settings.endswith("burst loss p 0.25 r 0.5, 25% late by 2ms, duplicate 12.5%, mtu 1500")


class FakeKernel:
    """Netlink that shows for each interface the netem that it was told, changed by `worsen`."""

    def __init__(self, worsen: Callable[[bytes], bytes | None]) -> None:
        self.told: dict[str, bytes] = {}
        self._worsen = worsen

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rtnetlink, "replace_qdisc", self.replace_qdisc)
        monkeypatch.setattr(rtnetlink, "Kernel", lambda: self)
        monkeypatch.setattr(socket, "if_nametoindex", lambda name: [*self.told].index(name))

    def replace_qdisc(self, interface: str, *_: Any, options: bytes, **__: Any) -> None:
        self.told[interface] = options

    def __enter__(self) -> FakeKernel:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def options(self, interface: int, kind: str) -> list[bytes]:
        assert kind == "netem"
        shown = self._worsen([*self.told.values()][interface])
        return [] if shown is None else [shown]


def half_the_loss(options: bytes) -> bytes:
    words = list(struct.unpack_from("=6I", options))
    words[2] //= 2
    return struct.pack("=6I", *words) + options[24:]


def losing(monkeypatch: pytest.MonkeyPatch, worsen: Callable[[bytes], bytes | None]) -> Any:
    one_way, both = {"from": "s1", "to": "h1", "loss": 0.25}, {"between": ["s1", "s2"], "loss": 0.5}
    whole, plan = resolved(overrides(one_way, both))
    FakeKernel(worsen).stand_in(monkeypatch)
    settings = lossy_links.start_losing(whole, plan)
    seeds = {direction: loss.seed for direction, loss in lossy_links.losses(whole, plan).items()}
    return settings, seeds


def test_a_loss_is_read_back_from_the_kernel(monkeypatch):
    settings, seeds = losing(monkeypatch, lambda options: options)
    wanted = {}
    for ends, seed in seeds.items():
        wanted[f"links.{' to '.join(ends)}.loss"] = 0.25 if "h1" in ends else 0.5
        wanted[f"links.{' to '.join(ends)}.loss_seed"] = seed
    assert settings == wanted
    assert len(seeds) == 3
    # An older kernel has netem without a seed of its own.
    settings, _ = losing(monkeypatch, lambda options: options[:24])
    generators = {value for name, value in settings.items() if name.endswith("_seed")}
    assert generators == {"the kernel's own generator"}


@pytest.mark.parametrize(
    ("worsen", "said"),
    [
        (lambda _: None, "no netem"),
        (half_the_loss, "loss"),
        (
            lambda told: told[:24] + netlink.encode(netem.PRNG_SEED, bytes([7, *bytes(7)])),
            "seed of",
        ),
    ],
)
def test_a_loss_that_the_kernel_shows_otherwise_stops_the_run(monkeypatch, worsen, said):
    with pytest.raises(ReadBackError, match=said):
        losing(monkeypatch, worsen)


def test_a_kernel_that_cannot_redirect_packets_is_named():
    _, plan = resolved(to_h1(loss=0.1))
    with pytest.raises(FeatureMissingError, match=r"links.loss: .*act_mirred.*TC classifier"):
        lossy_links.connect(plan, FakeTc(None))
    lossy_links.connect(resolved()[1], FakeTc(None))


def test_what_a_link_lost_is_counted_apart_from_what_was_sent():
    _, plan = resolved(overrides({"between": ["h3", "s2"], "loss": 0.1}))
    zero = dict.fromkeys(("tx_packets", "tx_bytes", "rx_packets", "rx_bytes"), 0)
    before = {name: zero for name in (*plan.switch_ports(), *lossy_links.names(plan))}
    wire = plan.wires[frozenset(("h3", "s2"))].facing("h3")
    after = {
        **before,
        wire: {**zero, "rx_packets": 50, "rx_bytes": 500},
        "s2-eth2": {**zero, "tx_packets": 20, "tx_bytes": 200, "rx_packets": 45, "rx_bytes": 450},
    }
    none: dict[str, dict[Cause, int]] = {port: {"queue": 0} for port in plan.ends}
    lost: dict[str, dict[Cause, int]] = {**none, "h3-eth0": {"queue": 1, "link": 5}}
    made = counters.records(plan, (before, none), None, None, (after, lost))
    by_ends = {(record.node, record.neighbour): record for record in made}
    sent, answered = by_ends["h3", "s2"], by_ends["s2", "h3"]
    # The switch's port has seen only what was not lost.
    assert (sent.packets, sent.bytes, sent.lost) == (50, 500, {"queue": 1, "link": 5})
    assert (answered.packets, answered.bytes) == (20, 200)


def counted(kind: str, drops: int) -> Any:
    queue = Shown(TCA_STATS_QUEUE={"drops": drops})
    return Shown(TCA_KIND=kind, TCA_STATS2=queue)


def test_the_lost_packets_of_a_direction_are_counted_where_they_would_leave():
    _, plan = resolved(overrides({"between": ["s1", "s2"], "loss": 0.1}))
    wire = plan.wires[frozenset(("s1", "s2"))]
    before = {name: [counted("ingress", 9)] for name in wire.interfaces}
    assert set(lossy_links.lost(plan, before).values()) == {0}
    after = {**before, wire.facing("s2"): [counted("ingress", 9), counted("netem", 4)]}
    assert lossy_links.lost(plan, after) == {("s1", "s2"): 4, ("s2", "s1"): 0}


def test_acknowledgements_to_a_measured_receiver_are_captured_when_they_come_in():
    slow = overrides({"from": "s2", "to": "s1", "rate": "30mbit"})
    _, plan = resolved("flows=[{from: [h3, h1], to: [h1, h4]}]", slow)
    # h3's data to h1, and the acknowledgements that h4 sends to h1.
    assert plan.bottleneck.egress == "s2-eth1"
    assert plan.bottleneck.ingress == ("s2-eth2", "s2-eth3")


def test_a_link_that_loses_packets_needs_netem_in_real_time():
    for more, needed in ([to_h1(loss=0.1)], {"netem"}), ([], set()):
        asked = load(CONFIGS / "linear-12.yaml", [*LINEAR, *more])
        assert realtime._qdiscs(asked, make_plan(asked)) == {"tbf", "bfifo", "pfifo"} | needed


def test_a_flow_beside_the_named_bottleneck_is_measured_where_others_cross_too():
    _, plan = resolved("bottleneck.port=s2-eth1")
    (other,) = plan.others
    assert (other.egress, other.ingress) == ("s1-eth1", ("s1-eth2", "s1-eth3"))
    assert [plan.ingress(flow) for flow in plan.flows] == ["s1-eth2", "s2-eth2", "s2-eth3"]
    ends = {("s2", "s1"): "s2-eth1", ("s1", "h1"): "s1-eth1"}
    links = [records.link(port, *way) for way, port in ends.items()]
    ports = [
        BottleneckRecord.model_construct(egress=port.egress, ingress=list(port.ingress))
        for port in (plan.bottleneck, other)
    ]
    manifest = Manifest.model_construct(
        bottlenecks=ports,
        flows=[
            FlowRecord.model_construct(flow=flow.flow, path=list(flow.path), of_program=False)
            for flow in plan.flows
        ],
    )
    counters = Counters.model_construct(links=links)
    # Flow 0 does not leave by s2-eth1, and flows 1 and 2 count there already.
    assert elsewhere(manifest, counters, ports[0]) == {0}
    assert elsewhere(manifest, counters, ports[1]) == {1, 2}
    # An old run did not record its links.
    assert elsewhere(manifest, Counters.model_construct(links=[]), ports[1]) == frozenset()


def test_flows_of_programs_share_no_port():
    program = "programs=[{name: get, host: h2, command: [curl, h1], to: [h1]}]"
    others = resolved("bottleneck.port=s2-eth1", program)[1].others
    assert "s1-eth1" not in {port.egress for port in others}


def test_an_event_changes_the_loss_of_a_link():
    event = "events=[{at: 1s, from: s1, to: h1, loss: 0.2}, {at: 2s, from: s1, to: h1, loss: 0}]"
    whole, plan = resolved(event)
    wire = plan.wires[frozenset(("s1", "h1"))]
    assert plan.links["s1", "h1"].loss_changes
    assert not plan.links["h1", "s1"].loss_changes
    # It loses nothing at first, and the direction that no event names never does.
    shares = {ways: loss.share for ways, loss in lossy_links.losses(whole, plan).items()}
    assert shares == {("s1", "h1"): 0.0}
    events = changes(whole, plan)
    changed = [(change.what, change.value) for change in events]
    assert changed == [("loss_ppm", 200_000), ("loss_ppm", 0)]
    assert {change.wire for change in events} == {wire.facing("h1")}
    assert len({change.seed for change in events}) == 2
    assert changes(whole, plan) == events


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation"),
    [
        ("normal", 0, 1),
        # 4/3 of Pareto's with its end at 4: by its integrals up to 4.5, and 4 beyond.
        ("pareto", -4 / 3 / (2 * 4.5**2), 0.8209),
        ("paretonormal", -1 / (2 * 4.5**2), 0.835),
    ],
)
def test_a_table_has_the_mean_and_the_deviation_of_its_distribution(distribution, mean, deviation):
    values = np.frombuffer(netem.table(distribution), np.int16) / 8192
    assert values.size == 4096
    assert (np.diff(values) >= 0).all()
    assert values.mean() == pytest.approx(mean, abs=0.002)
    assert values.std() == pytest.approx(deviation, rel=0.01)
    assert values.max() <= 4


def test_a_random_delay_is_told_with_its_table_and_order():
    delay = {"mean": "400us", "spread": "100us", "distribution": "pareto"}
    whole, plan = resolved(to_h1(random_delay=delay))
    (loss,) = lossy_links.losses(whole, plan).values()
    asked = netem.options(limit_packets=9, loss=loss)
    told = dict(netlink.attributes(asked[24:]))
    assert told[2] == netem.table("pareto")
    assert [int.from_bytes(told[kind], "little") for kind in (10, 11)] == [400_000, 100_000]
    assert int.from_bytes(told[8], "little") == netem.IN_ORDER_RATE
    # A queue of one product holds what the link sends meanwhile.
    way = ("s1", "h1")
    assert plan.base_rtts_ns[way] == resolved()[1].base_rtts_ns[way] + 400_000


def test_an_event_changes_all_that_happens_on_a_link():
    where = "from: s1, to: h1"
    whole, plan = resolved(
        f"links.overrides=[{{{where}, late: {{share: 0.1, by: 1ms}}}}]",
        f"events=[{{at: 1s, {where}, loss: 0.2, rate: 5mbit}}, "
        f"{{at: 2s, {where}, burst_loss: {{p: 0.1, r: 0.4}}, duplicate: 0.3}}, "
        f"{{at: 3s, {where}, burst_loss: none, late: none}}]",
    )
    events = changes(whole, plan)
    assert [(change.what, change.value) for change in events] == [
        *(("rate_bps", 5_000_000), ("loss_ppm", 200_000)),
        *(("burst_loss_ppm", 200_000), ("duplicate_ppm", 300_000)),
        *(("burst_loss_ppm", 0), ("late_ppm", 0)),
    ]
    # Losses take the place of one another, and what no event names goes on.
    states = [
        (link.loss, link.burst_loss is not None, link.late is not None, link.duplicate)
        for change in events
        if (link := change.link) is not None
    ]
    assert states == [
        *((0.2, False, True, 0), (0, True, True, 0), (0, True, True, 0.3)),
        *((0, False, True, 0.3), (0, False, False, 0.3)),
    ]
    assert [change.after.rate_bps for change in events] == [5_000_000] * 6


def test_the_kernel_is_told_another_loss_and_asked_for_it():
    request, question = reconfigure.loss_requests(7, netem.Loss(0.2, 99))
    told = netlink.attribute(request[36:], 2)
    assert told is not None
    assert (netem.Shown(told).loss, netem.Shown(told).seed) == (858_993_459, 99)
    assert reconfigure.shown_options(request) == told
    assert len(question) == 36


def test_the_kernel_is_told_another_bucket_of_a_policer():
    policer = links.Policer.model_validate({"rate": "20mbit", "burst": "10000B"})
    request, question = reconfigure.policer_requests(lossy_links.policer_index("wire3-1"), policer)
    # The kernel answers in the form in which it is told.
    assert reconfigure.checked_policer("wire3-1", policer, request) == (20_000_000, 10_000)
    kind, flags = struct.unpack_from("=HH", request, 4)
    assert (kind, flags) == (48, netlink.REQUEST | netlink.ACK | netlink.REPLACE)
    table = netlink.attribute(question[20:], 1) or b""
    assert netlink.attribute(netlink.attribute(table, 1) or b"", 3) == struct.pack("=I", 31)


def test_a_policer_changes_as_a_whole_and_takes_a_packet():
    policed = to_h1(**POLICER)
    event = "events=[{at: 1s, from: s1, to: h1, policer: {rate: 1mbit, burst: 20KB}}]"
    whole, plan = resolved(policed, event)
    (change_made,) = changes(whole, plan)
    assert (change_made.what, change_made.value) == ("policer_bps", 1_000_000)
    assert change_made.wire == "wire1-0"
    with pytest.raises(ConfigError, match=r"events\.0\.policer\.burst 1000B: allowed is a packet"):
        resolved(policed, event.replace("20KB", "1000B"))
