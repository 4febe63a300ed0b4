"""The noise of a run: what a configuration can ask for, and what a profile stands for."""

import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outcast import netlink
from outcast.emulation.kernel import counters, rtnetlink
from outcast.emulation.network import interrupt_moderation
from outcast.emulation.queues import netem, qdiscs
from outcast.errors import ConfigError, FeatureMissingError, ReadBackError, RunError
from outcast.experiment import Experiment, load
from outcast.experiment.noise import NEVER, PROFILES
from outcast.plan.make import make_plan
from outcast.plan.noise import HostNoise, Span, Throttle, interval_ns
from outcast.plan.ports import host_queue, port_rate_bps, switch_queue

CONFIG = Path(__file__).parents[3] / "configs" / "linear-12.yaml"
SLOT = Span(50_000, 250_000)
GIGABIT = "links={rate: 1gbit, delay: 5us}"


def resolved(*settings: str, engine: Any = "virtual") -> Experiment:
    return load(CONFIG, [GIGABIT, *settings]).resolved(engine)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_fills_every_part_and_says_where_its_numbers_are_from(name):
    profile = PROFILES[name]
    whole = resolved(f"noise.profile={name}")
    assert whole.noise.oscillators_ppm == profile.oscillators_ppm == whole.links.clock_offset_ppm
    assert whole.noise.interrupts == profile.interrupts
    assert whole.noise.sender == profile.sender
    assert whole.transport.offloads == profile.offloads
    assert whole.resolved("virtual") == whole
    numbers = {
        "oscillators": profile.oscillators_ppm,
        "interrupts": profile.interrupts,
        "sender": profile.sender,
        "switch_latency": profile.switch_latency_ns or profile.greatest_jitter,
        "offloads": profile.offloads,
    }
    assert not [part for part, number in numbers.items() if number and part not in profile.sources]


def test_parts_that_are_given_win_over_the_profile():
    noise = resolved("noise={profile: hosts-2011, oscillators: 20, interrupts: {most: 0us}}").noise
    assert (noise.oscillators_ppm, noise.interrupts) == (20, NEVER)
    assert noise.switch_latency_ns == PROFILES["hosts-2011"].switch_latency_ns


def test_keys_of_the_links_win_over_the_profile_and_both_places_say_so():
    whole = resolved(
        "links={rate: 1gbit, delay: 5us, jitter: 1us, clock_offset_ppm: 7}",
        "noise.profile=hosts-2011",
    )
    assert (whole.links.jitter_ns, whole.noise.switch_latency_ns) == (1000, 1000)
    assert (whole.links.clock_offset_ppm, whole.noise.oscillators_ppm) == (7, 7)
    plan = make_plan(whole)
    assert switch_queue(whole, plan, "s1-eth1").jitter_ns == 1000


def test_a_switch_varies_by_the_profiles_number_and_no_host_does():
    whole = resolved("noise.profile=hosts-2011")
    plan = make_plan(whole)
    ports = [switch_queue(whole, plan, port) for port in plan.switch_ports()]
    assert {port.jitter_ns for port in ports} == {760}
    assert len({port.jitter_seed for port in ports}) == len(ports)
    host = host_queue(whole, plan, plan.hosts[0])
    assert (host.jitter_ns, host.jitter_seed) == (0, None)
    again = resolved("noise.profile=hosts-2011", "seed=2")
    other = switch_queue(again, make_plan(again), ports[0].port)
    assert other.jitter_seed != ports[0].jitter_seed
    # A link with less delay than that varies by its delay.
    short = resolved("links.delay=500ns", "noise.profile=hosts-2011")
    assert switch_queue(short, make_plan(short), "s1-eth1").jitter_ns == 500
    # Ports of ten times the rate vary by as much: what varies is the switch, not the frame's time.
    quick = resolved("links.rate=10gbit", "noise.profile=hosts-2011")
    assert switch_queue(quick, make_plan(quick), "s1-eth1").jitter_ns == 760


def test_a_switch_latency_above_a_links_delay_is_refused():
    """Half of the draws would be a negative delay, so the latency would vary by less."""
    long = resolved("noise={profile: exact, switch_latency: 6us}")
    allowed = "noise.switch_latency: 6us: allowed is up to the shortest delay of a link; .* has 5us"
    with pytest.raises(ConfigError, match=allowed):
        make_plan(long)
    make_plan(resolved("noise={profile: exact, switch_latency: 5us}"))


def test_the_jitter_of_before_is_the_greatest_with_the_kernels_seed():
    whole = resolved("noise.profile=jitter", "links={rate: 1gbit, overhead: none}")
    port = switch_queue(whole, make_plan(whole), "s1-eth1")
    assert (port.jitter_ns, port.jitter_seed) == (6056, None)
    assert port_rate_bps(whole, "s1-eth1", 10**9) == 10**9


def test_real_time_adds_nothing_by_itself():
    noise = resolved(engine="realtime").noise
    assert (noise.profile, noise.oscillators_ppm, noise.interrupts) == ("exact", 0, NEVER)


def test_offloads_of_a_profile_give_way_to_what_forbids_them():
    modern = "noise.profile=hosts-modern"
    tcprand = "transport={congestion_control: cubic, tcprand: {min_payload: 200}}"
    assert resolved(modern).transport.offloads
    assert not resolved(modern, "transport.offloads=false").transport.offloads
    assert not resolved(modern, tcprand).transport.offloads


def test_what_hosts_do_is_in_the_plan():
    whole = resolved("noise={profile: exact, interrupts: {least: 50us, most: 250us}}")
    plan = make_plan(whole)
    assert plan.host_noise == HostNoise(interrupts=SLOT)
    # Flows connect in time, because a round trip has both hosts' longest waits.
    frames_ns = 3 * (12_304 + 720)
    assert counters.longest_round_trip_ns(plan) == 6 * 5000 + frames_ns + 2 * 250_000
    assert make_plan(resolved("noise.profile=exact")).host_noise == HostNoise()


def test_a_senders_time_stands_between_the_delay_and_the_shaper(monkeypatch):
    whole = resolved("noise={profile: exact, sender: {most: 12us}}")
    host = host_queue(whole, make_plan(whole), "h1")
    assert host.sender == Span(0, 12_000)
    parents = {}

    def replace(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
        parents[kind] = (parent, major)

    monkeypatch.setattr(rtnetlink, "replace_qdisc", replace)
    qdiscs.set_shaper(host)
    assert parents == {"tbf": (0x90001, 2)}
    assert "netem" in qdiscs.kinds(host)
    # No switch has it, and without a delay it is the root.
    assert switch_queue(whole, make_plan(whole), "s1-eth1").sender is None


def test_slots_are_told_to_netem_and_read_back():
    raw = netem.options(delay_ns=0, jitter_ns=0, limit_packets=9, in_order=False, slot=SLOT)
    assert netem.Shown(raw).slot == SLOT
    # A slot with other limits is not read as outcast's slot.
    limited = raw.replace(struct.pack("=qqi", 50_000, 250_000, 0), struct.pack("=qqi", 1, 2, 3))
    assert netem.Shown(limited).slot is None
    assert netem.Shown(netem.options(delay_ns=1, in_order=True)).slot is None


def test_cards_that_count_from_their_last_interrupt_are_in_the_plan():
    plan = make_plan(resolved("noise.profile=hosts-2011"))
    cards_2011 = Throttle(per_second=20_000, below_gigabit=4_000)
    assert plan.host_noise == HostNoise(throttle=cards_2011)
    # An interval is a whole number of the units in which the kernel saves it up.
    assert (cards_2011.at(10**9), cards_2011.at(10**8)) == (20_032, 3_988)
    assert (interval_ns(20_032), interval_ns(3_988)) == (49_920, 250_752)
    frames_ns = 3 * (12_304 + 720)
    assert counters.longest_round_trip_ns(plan) == 6 * 5000 + frames_ns + 2 * 250_752


class FakeCard:
    """A kernel that shows the slot and the actions that it was given, or others."""

    def __init__(self, slot: Span, shown: dict[int, list[bytes]] | None = None) -> None:
        self.slot, self.shown = slot, shown
        self.requests: list[rtnetlink.Request] = []

    def do(self, requests: Sequence[rtnetlink.Request]) -> None:
        self.requests += requests

    def options(self, interface: int, kind: str) -> list[bytes]:
        assert (interface, kind) == (4, "netem")
        return [netem.options(delay_ns=1, limit_packets=9, slot=self.slot)]

    def filters(self, interface: int, parent: int) -> list[tuple[int, bytes]]:
        assert parent == netlink.INGRESS
        actions = self.shown or actions_of(self.requests)
        listed = [netlink.encode(place, each) for place, each in enumerate(actions[interface], 1)]
        return [(0, b""), (0, netlink.encode(2, b"".join(listed)))]


def actions_of(requests: Sequence[rtnetlink.Request]) -> dict[int, list[bytes]]:
    """The actions that requests put at the ingress of each interface."""
    actions = {}
    for request in requests:
        if request.kind == netlink.RTM_NEWTFILTER:
            (interface,) = struct.unpack_from("=4xi", request.body)
            options = dict(netlink.attributes(request.body[20:]))[netlink.TCA_OPTIONS]
            listed = netlink.attribute(options, netlink.TCA_MATCHALL_ACT)
            assert listed is not None
            actions[interface] = [action for _, action in netlink.attributes(listed)]
    return actions


@pytest.fixture
def interfaces(monkeypatch) -> None:
    index = {"h1-eth0": 2, "behind": 3, "waiting": 4, "arrivals": 4}
    monkeypatch.setattr(socket, "if_nametoindex", index.__getitem__)
    monkeypatch.setattr(interrupt_moderation.rtnetlink, "replace_qdisc", lambda *_, **__: None)
    monkeypatch.setattr(interrupt_moderation.transport, "write_sysctl", lambda *_: None)


@pytest.mark.usefixtures("interfaces")
def test_a_card_is_read_back_part_by_part():
    whole = Span(49_920, 49_920)

    def install(slot: Span = whole, shown: dict[int, list[bytes]] | None = None) -> FakeCard:
        kernel: Any = FakeCard(slot, shown)
        interrupt_moderation.install_card(
            kernel, "h1-eth0", 20_032, address="02:00:00:00:00:01", mtu_bytes=9000
        )
        return kernel

    given = actions_of(install().requests)
    assert {number: len(listed) for number, listed in given.items()} == {2: 4, 3: 4}
    # The card's memory is one and the same action at both places.
    assert given[2][1] == given[3][1]
    with pytest.raises(ReadBackError, match="interrupts"):
        install(slot=Span(49_920, 49_921))
    # A kernel before 5.12 knows no packets per second, and shows none.
    without = given[2][1].replace(netlink.encode(10, struct.pack("=Q", 20_032)), b"")
    burst = struct.pack("=Q", 49_920 // 64)
    larger = given[2][1].replace(burst, struct.pack("=Q", 49_920 // 64 + 1))
    others = [[given[2][0], card, *given[2][2:]] for card in (without, larger)]
    for other in (*others, given[2][::-1], given[2][:3]):
        with pytest.raises(ReadBackError, match="actions on arrivals"):
            install(shown={2: other, 3: list(given[3])})


@pytest.mark.usefixtures("interfaces")
def test_held_arrivals_are_read_back_part_by_part():
    kernel: Any = FakeCard(SLOT)
    interrupt_moderation.hold_back(kernel, "h1-eth0", SLOT)
    elsewhere = interrupt_moderation.Mirred(how=1, to=3, then=4)
    others: list[tuple[Any, str]] = [
        (FakeCard(SLOT, {2: [elsewhere.encoded()]}), "actions on arrivals"),
        (FakeCard(Span(50_000, 249_999)), "interrupts"),
    ]
    for other, setting in others:
        with pytest.raises(ReadBackError, match=setting):
            interrupt_moderation.hold_back(other, "h1-eth0", SLOT)


@pytest.mark.usefixtures("interfaces")
def test_a_kernel_that_cannot_hold_arrivals_back_is_refused_by_name(monkeypatch):
    def refuse(requests: Sequence[rtnetlink.Request]) -> None:
        raise RunError(f"{requests[0].what}: Operation not supported")

    kernel: Any = FakeCard(SLOT)
    monkeypatch.setattr(kernel, "do", refuse)
    with pytest.raises(FeatureMissingError, match=r"noise.interrupts: this kernel lacks ifb.*not "):
        interrupt_moderation.hold_back(kernel, "h1-eth0", Span(0, 1))
