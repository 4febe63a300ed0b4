"""`outcast trace`: a run is made again for its events, on an engine that takes no time."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import outcast
from outcast.analysis.capture.pcap import read_capture
from outcast.cli import invoke
from outcast.errors import did_you_mean
from outcast.records.run_directory import RunDirectory, write_record
from tests.golden import trace_pages
from tests.golden.trace_pages import Record
from tests.unit.records import test_archive_replay as replays
from tests.unit.why.test_trace_tables import DEQUEUE, STATE, dequeue, state

FORMATS = {"qdisc:qdisc_dequeue": DEQUEUE, "tcp:tcp_cong_state_set": STATE}
"""What the fake guest's kernel can record."""
KNOWN = [*FORMATS]
BOTH = ",".join(KNOWN)


class TracingEngine(replays.SeededEngine):
    """Also leaves events, as the guest does where the plan asks for some."""

    runs = 0
    seed: int | None = None

    def run(self, directory: RunDirectory, entry: object, on_event: Any) -> Mapping[str, float]:
        TracingEngine.runs += 1
        plan = directory.read_plan()
        for event in plan.events:
            if event not in FORMATS:
                raise outcast.ConfigError(
                    f"trace.events: no event {event}{did_you_mean(event, KNOWN)}"
                )
        text = directory.config.read_text()
        if self.seed is not None:
            directory.config.write_text(text.replace("seed: 1", f"seed: {self.seed}"))
        wall_s = super().run(directory, entry, on_event)
        directory.config.write_text(text)
        if plan.events:
            self._record(directory, plan.events)
        return wall_s

    def _record(self, directory: RunDirectory, events: tuple[str, ...]) -> None:
        """A state of each flow at the start, and a dequeue of each packet that left."""
        manifest = directory.read_manifest()
        records = []
        if "tcp:tcp_cong_state_set" in events:
            records += [
                Record(
                    manifest.traffic.t_start_ns,
                    state(flow.sport, flow.dport, flow.src_ip, flow.dst_ip, flow.flow % 5),
                )
                for flow in manifest.flows
            ]
        if "qdisc:qdisc_dequeue" in events:
            capture = read_capture("out", directory.captures / "s1-eth1.out.pcap")
            left = capture.columns
            for row in range(left.flow.size):
                flow = capture.flows[left.flow[row]]
                packet = {
                    **{"src": flow.src, "dst": flow.dst, "sport": flow.sport, "dport": flow.dport},
                    **{"seq": int(left.seq[row]), "ip_id": int(left.ip_id[row])},
                    "payload": int(left.payload_bytes[row]),
                }
                records.append(Record(int(left.stamp_ns[row]), dequeue("s1-eth1", packet)))
        directory.trace.mkdir()
        directory.trace_events.write_bytes(trace_pages.pages(records))
        formats = {event: FORMATS[event] for event in events}
        write_record(
            directory.trace_formats,
            trace_pages.formats(formats, count=len(records)),
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run without events, made once."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as monkeypatch:
        prepare(folder, monkeypatch)
        return outcast.run(outcast.load("golden.yaml"), folder / "run").path


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replays.prepare(folder, monkeypatch)
    monkeypatch.setattr("outcast.engines.choose", lambda *asked: TracingEngine())
    monkeypatch.setattr(TracingEngine, "runs", 0)
    monkeypatch.setattr("outcast.view.report.write", lambda directory: directory.path / "none")


@pytest.fixture
def run(made, tmp_path, monkeypatch) -> Path:
    prepare(tmp_path, monkeypatch)
    return shutil.copytree(made, tmp_path / "run")


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in (*(folder / "scratch").iterdir(), *folder.glob("run/.*")))


def test_a_run_is_traced_once_and_then_read(run, monkeypatch, capsys):
    reports: list[Path] = []
    monkeypatch.setattr(
        "outcast.view.report.write", lambda directory: reports.append(directory.path)
    )
    packets = (run / "packets.parquet").read_bytes()
    assert invoke(["trace", str(run), "--events", "qdisc:qdisc_dequeue"]) == 0
    printed = capsys.readouterr()
    assert "the same run: 3 captures are equal to the byte" in printed.err
    table = outcast.open_run(run).table("trace/qdisc_dequeue")
    assert printed.out == f"{run}/trace/qdisc_dequeue.parquet: {table.height} events\n"
    assert table["packet"].null_count() == 0
    assert (run / "packets.parquet").read_bytes() == packets
    assert left_over(run.parent) == []
    assert TracingEngine.runs == 1
    # The table is there, so nothing runs.
    assert invoke(["trace", str(run), "--events", "qdisc:qdisc_dequeue"]) == 0
    assert "the same run" not in capsys.readouterr().err
    assert TracingEngine.runs == 1
    assert reports == []
    # What was recorded stays, and a report that is there follows.
    (run / "report.html").touch()
    traced = outcast.trace(run, ["tcp:tcp_cong_state_set"])
    assert reports == [run]
    assert traced.captures == 3
    assert traced.events["qdisc:qdisc_dequeue"] == table.height
    again = traced.run.table("trace/qdisc_dequeue")
    assert again.drop("order").equals(table.drop("order"))
    assert TracingEngine.runs == 2
    # A table that is gone is recorded again, although traced.json names it.
    traced.table_file("tcp:tcp_cong_state_set").unlink()
    outcast.trace(run, ["tcp:tcp_cong_state_set"])
    assert traced.table_file("tcp:tcp_cong_state_set").exists()
    assert TracingEngine.runs == 3


def test_events_are_listed_in_their_order(run, capsys):
    span = ["--between", "0ms", "5ms"]
    arguments = ["trace", str(run), "--events", BOTH, "--flow", "1", *span]
    assert invoke(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["time", "(ms)", "event", "host", "port", "flow", "packet", "what"]
    assert "tcp:tcp_cong_state_set" in lines[1]
    assert "cong_state=1" in lines[1]
    assert "qdisc:qdisc_dequeue" in lines[2]
    assert "reason=NOT_SPECIFIED" in lines[2]
    assert "skbaddr" not in lines[2]
    assert invoke([*arguments[:6], "--between", "8s", "9s"]) == 2
    assert "no event fits --flow 1 and --between 8s 9s; there are some from 0 to " in (
        capsys.readouterr().err
    )
    assert invoke([*arguments, "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(lines) - 1
    assert {row["flow"] for row in rows} == {1}
    assert [row["order"] for row in rows] == sorted(row["order"] for row in rows)
    assert max(row["t_ns"] for row in rows) <= 5_000_000
    table = outcast.open_run(run).table("trace/qdisc_dequeue")
    chosen = table.filter((pl.col("flow") == 1) & pl.col("t_ns").is_between(0, 5_000_000))
    assert len(rows) == chosen.height + 1
    assert invoke([*arguments, "--format", "csv"]) == 0
    again = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [int(row["t_ns"]) for row in again] == [row["t_ns"] for row in rows]
    assert json.loads(again[0]["fields"])["cong_state"] == 1


def test_another_run_leaves_no_tables(run, monkeypatch, capsys):
    monkeypatch.setattr(TracingEngine, "seed", 2)
    assert invoke(["trace", str(run), "--events", BOTH]) == 4
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"outcast: {run}: the run made again is another one")
    assert not (run / "trace").exists()
    again = run.parent / "again"
    assert invoke(["trace", str(run), "--events", BOTH, "-o", str(again)]) == 4
    assert not again.exists()
    assert left_over(run.parent) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--events", "qdisc:qdisc_dequeu"], "did you mean 'qdisc:qdisc_dequeue'?"),
        (["--events", "dequeue"], "events: 'dequeue': allowed are names as tcp:tcp_probe"),
        (["--events", ""], "events: '': allowed are names"),
        (["--flow", "99"], "--flow 99: there are 0 to"),
        (["--between", "2ms", "1ms"], "--between 2ms 1ms: ends before it begins"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(run, arguments, told, capsys):
    assert invoke(["trace", str(run), *arguments]) == 2
    said = capsys.readouterr().err.splitlines()
    assert told in said[-1]
    assert "scratch" not in said[-1]
    assert not (run / "trace").exists()


def test_a_run_records_what_its_configuration_names(run):
    experiment = outcast.load("golden.yaml", {"trace.events": KNOWN})
    traced = outcast.run(experiment, run.parent / "traced")
    assert traced.tables.count("trace/qdisc_dequeue") == 1
    assert not traced.directory.trace_events.exists()
    assert outcast.trace(traced.path, KNOWN).captures is None
    before = traced.table("trace/qdisc_dequeue")
    outcast.analyze(traced.path)
    assert traced.table("trace/qdisc_dequeue").equals(before)
