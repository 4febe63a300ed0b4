"""`trace` of a configuration: which events, where they are allowed, and how the plan keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

import configs
from outcast import experiment
from outcast.engines.realtime import RealtimeEngine
from outcast.errors import ConfigError, FeatureMissingError, InputError
from outcast.plan import stored
from outcast.plan.make import make_plan
from outcast.records.run_directory import RunDirectory
from outcast.records.trace import Formats, Statistics, Traced

EVENTS = "trace={events: [tcp:tcp_probe, skb:kfree_skb]}"


def test_events_reach_the_plan_that_is_stored(tmp_path: Path) -> None:
    asked = experiment.load(configs.find("fig3c"), [EVENTS])
    plan = make_plan(asked)
    assert plan.events == ("tcp:tcp_probe", "skb:kfree_skb")
    directory = RunDirectory(tmp_path)
    directory.write_plan(plan)
    assert directory.read_plan().events == plan.events
    assert experiment.dump(asked).count("tcp:tcp_probe") == 1
    assert make_plan(experiment.load(configs.find("fig3c"))).events == ()
    assert '"events":["tcp:tcp_probe","skb:kfree_skb"]' in stored.dumps(plan)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trace={events: []}", "trace.events"),
        ("trace={events: [tcp_probe]}", "trace.events.0"),
        ("trace={events: ['tcp:../../x']}", "trace.events.0"),
        ("trace={events: [a:b, a:b]}", "a:b is there twice"),
        ("trace={event: [a:b]}", "did you mean 'events'"),
    ],
)
def test_events_that_cannot_be_are_refused_in_one_line(override: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment.load(configs.find("fig3c"), [override])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_real_time_records_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"trace: in real time .* engine: virtual"):
        experiment.load(configs.find("fig3c"), [EVENTS, "engine=realtime"])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(FeatureMissingError, match=r"trace: .* --engine virtual"):
        RealtimeEngine().require(experiment.load(configs.find("fig3c"), [EVENTS]))


FORMATS = Formats(
    clock="mono",
    to_captures_ns=5,
    page_bytes=4096,
    header_page="",
    events={"tcp:tcp_probe": "name: tcp_probe\n"},
    statistics=Statistics(entries=0, overrun=1, commit_overrun=2, dropped_events=3, read_events=10),
)


def test_records_of_the_folder_are_read_as_they_were_written(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.trace.mkdir()
    assert directory.read_traced() is None
    traced = Traced(outcast="1", events={"tcp:tcp_probe": 7})
    directory.write_traced(traced)
    directory.write_trace_formats(FORMATS)
    assert directory.read_traced() == traced
    assert directory.read_trace_formats() == FORMATS
    assert FORMATS.statistics.lost == 6


@pytest.mark.parametrize(
    "change",
    [
        {"page_bytes": 1 << 40},
        {"page_bytes": 0},
        {"events": {"../x:y": ""}},
        {"events": {"no_system": ""}},
    ],
)
def test_formats_that_cannot_be_are_refused(change: dict[str, object], tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.trace.mkdir()
    directory.write_trace_formats(FORMATS.model_copy(update=change))
    with pytest.raises(InputError):
        directory.read_trace_formats()
