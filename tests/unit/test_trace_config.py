"""`trace` of a configuration: which events, where they are allowed, and how the plan keeps them."""

import json

import pytest

import configs
from outcast import experiment
from outcast.analysis.trace.events import read_events
from outcast.engines.realtime import RealtimeEngine
from outcast.errors import ConfigError, FeatureMissingError, InputError
from outcast.plan import stored
from outcast.plan.make import make_plan
from outcast.plan.model import Planned
from outcast.records.run_directory import RunDirectory, write_record
from outcast.records.trace import Formats, Statistics, Traced
from tests.golden.run_directory import make_run

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


FORMATS = Formats(
    clock="mono",
    to_captures_ns=5,
    page_bytes=4096,
    header_page="",
    events={"tcp:tcp_probe": "name: tcp_probe\n"},
    statistics=Statistics(entries=0, overrun=1, commit_overrun=2, dropped_events=3, read_events=10),
)


def test_records_of_the_folder_are_read_as_they_were_written(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.trace.mkdir()
    assert directory.read_traced() is None
    traced = Traced(outcast="1", events={"tcp:tcp_probe": 7})
    write_record(directory.traced, traced)
    write_record(directory.trace_formats, FORMATS)
    assert directory.read_traced() == traced
    assert directory.read_trace_formats() == FORMATS
    assert FORMATS.statistics.lost == 6


@pytest.mark.parametrize("event", ["../x:y", "no_system"])
def test_formats_that_cannot_be_are_refused(event, tmp_path):
    directory = RunDirectory(tmp_path)
    directory.trace.mkdir()
    write_record(directory.trace_formats, FORMATS.model_copy(update={"events": {event: ""}}))
    with pytest.raises(InputError):
        directory.read_trace_formats()


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
