"""`trace` of a configuration: which events, where they are allowed, and how the plan keeps them."""

import json
from typing import Any

import polars as pl
import pytest

import configs
from benchmarks.seen import after_timeouts
from outcast import experiment
from outcast.engines.realtime import RealtimeEngine
from outcast.errors import ConfigError, FeatureMissingError, InputError
from outcast.plan import stored
from outcast.plan.make import make_plan
from outcast.plan.model import Planned
from outcast.records.run_directory import RunDirectory
from outcast.uses.why import recorded_events as of
from outcast.uses.why.causes import drops_of_packets, retransmission_table
from outcast.uses.why.overview import wait_table, within
from outcast.uses.why.recorded_events import TcpEvents, read_events
from tests.golden.run_directory import make_run
from tests.unit.why.tcp_events import Event, tables

EVENTS = "trace={events: [tcp:tcp_probe, skb:kfree_skb]}"


def test_events_reach_the_plan_that_is_stored(tmp_path):
    asked = experiment.load(configs.find("fig3c"), [EVENTS])
    plan = make_plan(asked)
    assert plan.events == ("tcp:tcp_probe", "skb:kfree_skb")
    directory = RunDirectory(tmp_path)
    directory.write_plan(plan)
    assert directory.read_plan().events == plan.events
    assert experiment.dump(asked).count("tcp:tcp_probe") == 1
    assert make_plan(experiment.load(configs.find("fig3c"))).events == ()
    assert '"events":["tcp:tcp_probe","skb:kfree_skb"]' in stored.dumps(plan)


def test_real_time_records_no_events(monkeypatch):
    with pytest.raises(ConfigError, match=r"trace: in real time .* engine: virtual"):
        experiment.load(configs.find("fig3c"), [EVENTS, "engine=realtime"])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(FeatureMissingError, match=r"trace: .* --engine virtual"):
        RealtimeEngine().require(
            *Planned(experiment.load(configs.find("fig3c"), [EVENTS])).by("realtime")
        )


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return make_run(tmp_path / "run", 20_000_000, 3, 20)


def ran_in(run: RunDirectory, engine: str) -> None:
    manifest = json.loads(run.manifest.read_text())
    run.manifest.write_text(json.dumps(manifest | {"engine": engine}))


def refusal(run: RunDirectory) -> str:
    with pytest.raises(InputError) as caught:
        read_events(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_without_events_says_how_to_record_them(run):
    ran_in(run, "virtual")
    assert refusal(run).endswith(f"`outcast trace {run.path}` records them")
    ran_in(run, "realtime")
    assert refusal(run).endswith("allowed are runs of the virtual engine")
    assert "there is no such folder" in refusal(RunDirectory(run.path / "nowhere"))


# --- How long a sender stood still until a timer went off, and what had been lost


MS = 1_000_000
SEGMENT = {"seq": 100, "end_seq": 1100, "segs": 1}


def fired(t_ms: int, kind: int = of.TIME_RETRANS) -> Event:
    return ("tcp_timer", t_ms * MS, {"action": of.FIRED, "kind": kind, "snd_una": 100})


def timeout(t_ms: int) -> tuple[Event, ...]:
    return (
        fired(t_ms),
        ("tcp_timeout", t_ms * MS, {}),
        ("tcp_mark_lost", t_ms * MS, SEGMENT | {"cause": of.LOST_RTO}),
        ("tcp_retransmit_skb", t_ms * MS, SEGMENT | {"cause": of.BY_RTO, "ca_state": of.LOSS}),
    )


def packets(*at_ms: int) -> pl.DataFrame:
    """Copies of the segment that were dropped."""
    rows: dict[str, Any] = {
        "flow": 0,
        "sport": 5000,
        "seq": 100,
        "payload": 1000,
        "ingress": "s1-eth2",
        "egress": "s1-eth1",
        "verdict": "dropped",
    }
    return pl.DataFrame(
        [rows | {"t_in": t_ms * MS} for t_ms in at_ms],
        schema_overrides={"t_in": pl.Int64},
        schema=[*rows, "t_in"],
    )


def chain(begin_ms: int, drops: int, others_through: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "ingress": ["s1-eth2"],
            "egress": ["s1-eth1"],
            "t_start": [begin_ms * MS],
            "t_end": [(begin_ms + 9) * MS],
            "drops": [drops],
            "others_through": [others_through],
        }
    )


def waits(
    events: tuple[Event, ...], came: pl.DataFrame, chains: pl.DataFrame, sacked: int = 0
) -> pl.DataFrame:
    heard = ("tcp_ack_done", 2 * MS, {"sacked_out": sacked})
    every = tables(("tcp_xmit_stop", 1 * MS, {}), heard, *events)
    drops = drops_of_packets(came, 0)
    return wait_table(every, retransmission_table(every, drops), drops, came, chains)


@pytest.mark.parametrize(
    ("sacked", "drops", "others", "lost"),
    [
        (0, 2, 5, "blackout"),
        (1, 2, 5, "blackout"),
        (0, 2, 0, "tail loss"),
        (0, 1, 5, "tail loss"),
        (1, 1, 5, "hole"),
    ],
)
def test_what_was_lost_before_a_timeout(sacked, drops, others, lost):
    table = waits(timeout(6), packets(1), chain(1, drops, others), sacked)
    assert table.select("timer", "waited_ns", "lost", "copies").rows() == [("rto", 4 * MS, lost, 0)]


def test_what_a_timeout_waited_for():
    other = packets(1).with_columns(seq=pl.lit(9000))
    table = waits(timeout(6), other, chain(1, 2, 5))
    assert table["lost"].to_list() == ["not lost"]
    table = waits((*timeout(6), *timeout(10)), packets(1, 7), chain(1, 2, 5))
    assert table["waited_ns"].to_list() == [4 * MS, 4 * MS]
    assert table["copies"].to_list() == [0, 1]
    table = waits((*timeout(6), *timeout(10), *timeout(14)), packets(1, 7), chain(1, 2, 5))
    assert table["waited_ns"].to_list() == [4 * MS] * 3
    assert within(table, 0, 9 * MS)["waited_ns"].to_list() == [4 * MS, 3 * MS]
    assert within(table, 0, 6 * MS)["waited_ns"].to_list() == [4 * MS]


def test_other_timers_wait_for_the_same_losses():
    table = waits(
        (fired(5, of.TIME_REO_TIMEOUT), fired(8, of.TIME_DACK)), packets(1), chain(1, 2, 5)
    )
    assert table.select("timer", "waited_ns", "lost").rows() == [
        ("reordering_timer", 3 * MS, "blackout")
    ]


def test_the_first_acknowledgement_after_a_timeout_may_wait_for_the_receiver():
    receiver: dict[str, Any] = {"host": "h2", "sport": 5001}
    every = tables(
        ("tcp_timeout", 6 * MS, {}),
        ("tcp_timer", 8 * MS, {"action": of.FIRED, "kind": of.TIME_DACK} | receiver),
        ("tcp_ack_done", 9 * MS, {}),
        ("tcp_timeout", 20 * MS, {}),
        ("tcp_ack_done", 21 * MS, {}),
        ("tcp_timeout", 30 * MS, {}),
    )
    senders = TcpEvents(
        {name: table.filter(pl.col("host") == "h1") for name, table in every.tables.items()}
    )
    table = after_timeouts(every, senders)
    assert table["heard_ns"].to_list() == [3 * MS, 1 * MS, None]
    assert table["delayed"].to_list() == [True, False, False]
