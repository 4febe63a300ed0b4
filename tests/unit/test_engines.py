from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from outcast import execute, ledger
from outcast.engines import EventReader, require_compiler
from outcast.errors import ConfigError, FeatureMissingError, ReadBackError, RunError
from outcast.experiment import load
from outcast.run import RunDirectory

FIG3C = Path(__file__).parents[2] / "configs/fig3c.yaml"


def test_events_and_phases() -> None:
    seen: list[Mapping[str, Any]] = []
    reader = EventReader(seen.append)
    for line in ('{"event": "phase", "phase": "setup"}', "a word of the kernel", "[1]"):
        reader.feed(line)
    reader.feed('{"event": "done"}')
    assert [event["event"] for event in seen] == ["phase", "done"]
    assert set(reader.wall_s) == {"boot", "setup"}
    assert reader.done


def test_the_inner_programs_error_keeps_its_kind() -> None:
    reader = EventReader(lambda event: None)
    reader.feed(json.dumps({"event": "error", "kind": "ReadBackError", "message": "h1: x: y"}))
    assert isinstance(reader.error, ReadBackError)
    assert str(reader.error) == "h1: x: y"
    reader.feed(json.dumps({"event": "error", "kind": "SystemExit", "message": "no"}))
    assert isinstance(reader.error, RunError)


@pytest.mark.parametrize(
    ("override", "needed_for"),
    [
        ("blackout={at: e0_0-eth4, drops: 9}", "blackout"),
        ("transport.tcprand={min_payload: 200}", "transport.tcprand or mptcp"),
        ("flows.0.transport={mptcp: {subflows: 2}}", "transport.tcprand or mptcp"),
    ],
)
def test_no_compiler_is_said_before_anything_is_built(
    override: str, needed_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_compiler(load(FIG3C, [override]))
    monkeypatch.setenv("PATH", "")
    require_compiler(load(FIG3C))
    with pytest.raises(FeatureMissingError, match="the common start of flows in real time needs"):
        require_compiler(load(FIG3C), start_afterwards=True)
    with pytest.raises(FeatureMissingError, match=f"cc, is missing: {needed_for} needs"):
        require_compiler(load(FIG3C, [override]))


class FailingEngine:
    name: Literal["realtime", "virtual"] = "realtime"

    def require(self, experiment: object) -> None:
        """Nothing is missing."""

    def run(
        self, directory: RunDirectory, entry: ledger.Entry, on_event: object
    ) -> Mapping[str, float]:
        directory.log.write_text("it began\n")
        assert entry.folders == [str(directory.path)]
        raise RunError("the flows never came")


def test_a_failed_run_leaves_no_result_that_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "default_folder", lambda: tmp_path / "ledger")
    target = tmp_path / "result"
    with pytest.raises(RunError, match=r"the flows never came.*result\.failed"):
        execute.execute(load(FIG3C), FailingEngine(), target, lambda event: None)
    assert not target.exists()
    assert (tmp_path / "result.failed/log.txt").read_text() == "it began\n"
    assert list((tmp_path / "ledger").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger", "result.failed"]


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path, tmp_path / "file"):
        with pytest.raises(ConfigError, match="new or empty folder"):
            execute.require_free(target)
    empty = tmp_path / "empty"
    empty.mkdir()
    execute.require_free(empty)
    execute.require_free(tmp_path / "new")


@pytest.mark.parametrize(
    ("engine", "override", "delay_ns", "jitter_ns"),
    [
        ("virtual", "links={rate: 1gbit}", 25_000, 6056),
        ("virtual", "links={rate: 1gbit, delay: 500ns}", 500, 500),
        ("virtual", "links={rate: 100mbit}", 25_000, 25_000),
        ("virtual", "links={rate: 1gbit, delay: 5us, jitter: 0us}", 5000, 0),
        ("virtual", "links={rate: 1gbit, delay: 0us}", 0, 0),
        ("realtime", "links={rate: 1gbit}", 0, 0),
        ("realtime", "links={rate: 1gbit, delay: 5us, jitter: 2us}", 5000, 2000),
    ],
)
def test_delay_and_jitter_are_resolved_by_the_engine(
    engine: Literal["realtime", "virtual"], override: str, delay_ns: int, jitter_ns: int
) -> None:
    resolved = execute.resolve(load(FIG3C, [override]), engine)
    assert resolved.engine == engine
    assert (resolved.links.delay_ns, resolved.links.jitter_ns) == (delay_ns, jitter_ns)
    assert execute.resolve(resolved, engine) == resolved
