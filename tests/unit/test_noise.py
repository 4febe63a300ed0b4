"""The noise of a run: what a configuration can ask for, and what a profile stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outcast import workflow
from outcast.errors import ConfigError
from outcast.experiment import Experiment, load, load_finished
from outcast.experiment.noise import NEVER, PROFILES, between
from outcast.plan.make import make_plan
from outcast.plan.ports import host_queue, port_rate_bps, switch_queue

CONFIG = Path(__file__).parents[2] / "configs" / "linear-12.yaml"
GIGABIT = "links={rate: 1gbit, delay: 5us}"


def resolved(*settings: str, engine: Any = "virtual") -> Experiment:
    return workflow.resolve(load(CONFIG, [GIGABIT, *settings]), engine)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_fills_every_part_and_says_where_its_numbers_are_from(name: Any) -> None:
    profile = PROFILES[name]
    whole = resolved(f"noise.profile={name}")
    assert whole.noise.oscillators_ppm == profile.oscillators_ppm == whole.links.clock_offset_ppm
    assert whole.noise.interrupts == profile.interrupts
    assert whole.noise.sender == profile.sender
    assert whole.transport.offloads == profile.offloads
    assert workflow.resolve(whole, "virtual") == whole
    numbers = {
        "oscillators": profile.oscillators_ppm,
        "interrupts": profile.interrupts,
        "sender": profile.sender,
        "switch_latency": profile.switch_latency_ns or profile.greatest_jitter,
        "offloads": profile.offloads,
    }
    assert not [part for part, number in numbers.items() if number and part not in profile.sources]


def test_parts_that_are_given_win_over_the_profile() -> None:
    noise = resolved("noise={profile: hosts-2011, oscillators: 20, interrupts: {most: 0us}}").noise
    assert (noise.oscillators_ppm, noise.interrupts) == (20, NEVER)
    assert noise.switch_latency_ns == PROFILES["hosts-2011"].switch_latency_ns


def test_keys_of_the_links_win_over_the_profile_and_both_places_say_so() -> None:
    whole = resolved(
        "links={rate: 1gbit, delay: 5us, jitter: 1us, clock_offset_ppm: 7}",
        "noise.profile=hosts-2011",
    )
    assert (whole.links.jitter_ns, whole.noise.switch_latency_ns) == (1000, 1000)
    assert (whole.links.clock_offset_ppm, whole.noise.oscillators_ppm) == (7, 7)
    plan = make_plan(whole)
    assert switch_queue(whole, plan, "s1-eth1").jitter_ns == 1000


def test_a_switch_varies_by_the_profiles_number_and_no_host_does() -> None:
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


def test_the_jitter_of_before_is_the_greatest_with_the_kernels_seed() -> None:
    whole = resolved("noise.profile=jitter", "links={rate: 1gbit, overhead: none}")
    port = switch_queue(whole, make_plan(whole), "s1-eth1")
    assert (port.jitter_ns, port.jitter_seed) == (6056, None)
    assert port_rate_bps(whole, "s1-eth1", 10**9) == 10**9


def test_real_time_adds_nothing_by_itself() -> None:
    noise = resolved(engine="realtime").noise
    assert (noise.profile, noise.oscillators_ppm, noise.interrupts) == ("exact", 0, NEVER)


def test_offloads_of_a_profile_give_way_to_what_forbids_them() -> None:
    modern = "noise.profile=hosts-modern"
    tcprand = "transport={congestion_control: cubic, tcprand: {min_payload: 200}}"
    assert resolved(modern).transport.offloads
    assert not resolved(modern, "transport.offloads=false").transport.offloads
    assert not resolved(modern, tcprand).transport.offloads


def test_a_run_from_before_there_were_profiles_is_read_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "config.yaml"
    old.write_text(CONFIG.read_text().replace("engine: realtime", "engine: virtual"))
    noise = load_finished(old).noise
    assert (noise.profile, noise.interrupts, noise.switch_latency_ns) == ("jitter", NEVER, None)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("noise.profile=hosts", "noise.profile: \"hosts\": allowed is 'exact', 'oscillators'"),
        ("noise={interrupts: {least: 2us, most: 1us}}", "least: allowed is up to most, which is"),
        ("noise={interrupts: {least: 2us}}", "noise.interrupts.most: is missing"),
        ("noise={interrupts: {most: 1s}}", "noise.interrupts.most"),
        ("noise.oscillators=-1", "noise.oscillators"),
        ("noise.oscilators=1", "unknown key; allowed are"),
        ("noise=exact", 'noise: "exact": allowed is a mapping of keys'),
    ],
)
def test_what_is_no_noise_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(CONFIG, [setting])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_interval_reads_as_people_write_it() -> None:
    assert str(between("50us", "250us")) == "50us to 250us"
