"""The settings of every port: exceptions by layer, by port, and at the bottleneck."""

from pathlib import Path

import pytest

from outcast import experiment
from outcast.emulation.queues import qdiscs
from outcast.errors import ConfigError
from outcast.experiment import Link
from outcast.plan import ports
from outcast.plan.events import changes
from outcast.plan.links import resolve
from outcast.plan.make import make_plan
from outcast.plan.model import Plan
from outcast.plan.ports import PortQueue

FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"


def resolved(*overrides: str) -> tuple[experiment.Experiment, Plan]:
    settings = ["noise.profile=jitter", *overrides]
    whole = experiment.load(FIG3C, settings).resolved("virtual")
    return whole, make_plan(whole)


def at(port: str, *overrides: str) -> PortQueue:
    return ports.switch_queue(*resolved(*overrides), port)


LAYERS = (
    "links.layers={edge-aggregation: {rate: 500mbit, delay: 9us}, "
    "aggregation-core: {rate: 10gbit, jitter: 100ns}}"
)


def test_links_differ_by_layer_and_each_has_its_own_jitter():
    seen = {
        port: (wanted.rate_bps, wanted.delay_ns, wanted.jitter_ns)
        for port in ("e0_0-eth1", "e0_0-eth3", "a0_0-eth1", "a0_0-eth3", "c0_0-eth1")
        for wanted in (at(port, LAYERS),)
    }
    assert seen == {
        "e0_0-eth1": (10**9, 10000, 5000),
        # Half a frame takes 12.304 us there, and the delay is less.
        "e0_0-eth3": (5 * 10**8, 18000, 9000),
        "a0_0-eth1": (5 * 10**8, 18000, 9000),
        "a0_0-eth3": (10**10, 5000, 100),
        "c0_0-eth1": (10**10, 5000, 100),
    }
    # Half a frame at 10 Gbps.
    assert at("c0_0-eth1", "links.layers={aggregation-core: {rate: 10gbit}}").jitter_ns == 615


def test_a_hosts_port_has_its_own_links_rate_and_no_jitter():
    loaded, plan = resolved("links.layers={host-edge: {rate: 2gbit}}")
    wanted = ports.host_queue(loaded, plan, "h0_0_3")
    assert (wanted.port, wanted.rate_bps, wanted.jitter_ns) == ("h0_0_3-eth0", 2 * 10**9, 0)
    assert wanted.queue.limit.packets == 1000
    loaded, plan = resolved("flows.0.per_host=30")
    of_thirty = ports.host_queue(loaded, plan, plan.flows[0].src)
    # Four units of 64 KB for each flow.
    assert of_thirty.queue.limit.packets == 30 * 4 * 65536 // 1514


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), False),
        (("links.overhead=none",), False),
        (("links.mtu=576",), True),
        (("queue.burst=10KB",), True),
        (("queue.kind=htb",), False),
        (("links.overrides=[{from: h0_0_3, to: e0_0, queue: {kind: htb, limit: 64KB}}]",), True),
    ],
)
def test_a_hosts_shaper_lets_units_of_several_segments_through(settings, expected):
    # TBF cuts what is more than its burst, 1600 B unless given, and HTB cuts nothing. A switch's
    # own shaper is no host's.
    assert ports.host_queue(*resolved(*settings), "h0_0_3").lets_units_through is expected


@pytest.mark.parametrize(
    ("engine", "settings", "expected"),
    [
        ("virtual", (), 1600),
        ("virtual", ("links.mtu=9000",), 9014 + 133),
        # 100 us at 10 Mbps are 125 B more. At 1 Gbps they would be 12,500 B.
        ("realtime", ("links.rate=10mbit",), 1600 + 125),
        ("realtime", (), 1600 + 1514),
        ("realtime", ("links.mtu=9000",), 9014 + 133 + 9014),
        # Another burst counts as it is.
        ("realtime", ("queue.burst=1601B",), 1601),
        ("realtime", ("queue.burst=2000B", "links.mtu=9000"), 9014 + 133),
    ],
)
def test_a_bucket_has_room_for_late_timers_in_real_time_alone(engine, settings, expected):
    whole = experiment.load(FIG3C, ["noise.profile=exact", *settings]).resolved(engine)
    plan = make_plan(whole)
    for port in (
        ports.switch_queue(whole, plan, "e0_0-eth1"),
        ports.host_queue(whole, plan, "h0_0_3"),
    ):
        assert port.bucket_bytes == expected


def test_a_bucket_follows_a_rate_that_changes():
    event = "events=[{at: 5ms, from: e0_0, to: h0_0_3, rate: 100mbit}]"
    whole = experiment.load(FIG3C, ["noise.profile=exact", event]).resolved("realtime")
    (change,) = changes(whole, make_plan(whole))
    assert (change.before.bucket_bytes, change.after.bucket_bytes) == (3114, 2850)
    assert change.before.queue == change.after.queue


def test_a_paced_senders_port_has_fq_and_no_other():
    loaded = experiment.load(FIG3C, ["flows.0.transport={pacing: fq}"])
    plan = make_plan(loaded)
    paced = {flow.src for flow in plan.flows if flow.group == 0}
    for host in plan.hosts:
        lines = qdiscs.commands(ports.host_queue(loaded, plan, host))
        # A drop-tail queue needs no tc.
        assert len(lines) == (host in paced)
        if host in paced:
            assert " fq limit 1000 " in lines[-1]
            assert lines[-1].endswith(" pacing")


STOCK, SEEN = (f"{{kind: red, limit: 64KB, idle: {idle}}}" for idle in ("stock", "seen"))


def test_of_several_exceptions_the_last_that_fits_counts():
    exceptions = (
        "queues=[{at: edge, queue: {kind: sfq, limit: 20 packets}},"
        "{at: [e0_0-eth2, a0_0-eth1], queue: {kind: pfifo, limit: 7 packets}},"
        "{at: bottleneck, queue: {kind: red, limit: 64KB}}]"
    )
    kinds = {
        port: at(port, exceptions).queue.kind
        for port in ("e0_0-eth1", "e0_0-eth2", "e3_1-eth4", "a0_0-eth1", "a0_0-eth2", "c0_0-eth1")
    }
    assert kinds == {
        "e0_0-eth1": "red",
        "e0_0-eth2": "pfifo",
        "e3_1-eth4": "sfq",
        "a0_0-eth1": "pfifo",
        "a0_0-eth2": "tbf",
        "c0_0-eth1": "tbf",
    }


def test_a_resolved_experiment_leaves_no_link_open(tmp_path):
    loaded, _ = resolved(LAYERS)
    file = tmp_path / "config.yaml"
    file.write_text(experiment.dump(loaded))
    assert experiment.load_resolved(file) == loaded
    for _, own in loaded.links.layers.given():
        assert None not in (own.rate_bps, own.delay_ns, own.jitter_ns)


def test_an_edges_own_settings_win_over_those_of_its_layers():
    whole, plan = resolved(LAYERS)
    ends = ("e0_0", "a0_0")
    plan.graph.edges[ends]["own"] = {"e0_0": {"rate": "100mbit", "delay": "1ms"}}
    links = resolve(whole, plan.graph)
    # The jitter of its layers is the greatest of theirs, so its own is the greatest of its own.
    assert links[ends] == Link(
        rate_bps=10**8, delay_ns=10**6, jitter_ns=61_520, overhead="ethernet"
    )
    assert (
        links[ends[::-1]]
        == plan.links[ends[::-1]]
        == Link(5 * 10**8, 9000, 9000, overhead="ethernet")
    )


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"rate": "quick"}, "rate: "),
        ({"colour": "red"}, "colour: "),
        ({"delay": "2s"}, "delay 2s: allowed is up to 1s"),
        ({"jitter": "1ms"}, "jitter 1ms: allowed is up to the delay"),
    ],
)
def test_an_edges_own_settings_are_refused_with_the_link(own, said):
    whole, plan = resolved()
    plan.graph.edges["e0_0", "a0_0"]["own"] = {"a0_0": own}
    with pytest.raises(ConfigError, match="topology: link a0_0 to e0_0: ") as refused:
        resolve(whole, plan.graph)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
