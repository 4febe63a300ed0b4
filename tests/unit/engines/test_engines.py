import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from outcast import workflow as execute
from outcast.engines import EventReader, ledger, limits, realtime, require_compiler
from outcast.errors import ConfigError, FeatureMissingError, ReadBackError, RunError, without_folder
from outcast.experiment import load
from outcast.plan.make import make_plan
from outcast.plan.model import Planned
from outcast.records.run_directory import RunDirectory

FIG3C = Path(__file__).parents[3] / "configs/fig3c.yaml"


def test_events_and_phases():
    seen: list[Mapping[str, Any]] = []
    reader = EventReader(seen.append)
    for line in ('{"event": "phase", "phase": "setup"}', "a word of the kernel", "[1]"):
        reader.feed(line)
    reader.feed('{"event": "done"}')
    assert [event["event"] for event in seen] == ["phase", "done"]
    assert set(reader.wall_s) == {"boot", "setup"}
    assert reader.done


@pytest.mark.parametrize(
    ("overrides", "least_mib", "most_mib"),
    [
        ([], 2048, 2048),
        (["topology.k=12"], 2048, 2048),
        # 3,072 links filled more than 1 GiB, and 10,368 links 3 GiB.
        (["topology.k=16"], 2049, 2500),
        (["topology.k=20"], 3500, 5000),
        (["topology.k=24"], 6000, 8000),
        # 1,280 captures, whose rings take a GiB in all.
        (["topology.k=8", "capture.ports=all"], 3000, 4000),
    ],
)
def test_a_large_network_gets_more_memory(overrides, least_mib, most_mib):
    assert least_mib <= limits.memory_mib(make_plan(load(FIG3C, overrides))) <= most_mib


def test_the_inner_programs_error_keeps_its_kind():
    reader = EventReader(lambda event: None)
    reader.feed(json.dumps({"event": "error", "kind": "ReadBackError", "message": "h1: x: y"}))
    assert isinstance(reader.error, ReadBackError)
    assert str(reader.error) == "h1: x: y"
    reader.feed(json.dumps({"event": "error", "kind": "SystemExit", "message": "no"}))
    assert isinstance(reader.error, RunError)


def test_real_time_refuses_cards_that_are_asked_for_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(realtime.os, "geteuid", lambda: 0)
    monkeypatch.setattr(realtime.doctor, "require_programs", lambda besides: None)
    asked = load(FIG3C, ["noise={profile: exact, interrupts: {per_second: 20000}}"])
    with pytest.raises(FeatureMissingError, match="per_second: no real machine's timers"):
        realtime.RealtimeEngine().require(*Planned(asked).by("realtime"))
    # A profile stands for other machines, so in real time it adds nothing.
    of_2011 = load(FIG3C, ["noise.profile=hosts-2011"])
    assert not of_2011.noise.resolved("realtime").interrupts
    assert of_2011.noise.resolved("virtual").interrupts


@pytest.mark.parametrize(
    ("override", "needed_for"),
    [
        ("blackout={at: e0_0-eth4, drops: 9}", "blackout"),
        ("transport.tcprand={min_payload: 200}", "transport.tcprand or mptcp"),
        ("flows.0.transport={mptcp: {subflows: 2}}", "transport.tcprand or mptcp"),
        ("queue={kind: pfifo, limit: 5 packets}", "a queue with no room for all flows' handshakes"),
    ],
)
def test_no_compiler_is_said_before_anything_is_built(override, needed_for, monkeypatch):
    require_compiler(*Planned(load(FIG3C, [override])).by("virtual"))
    monkeypatch.setenv("PATH", "")
    require_compiler(*Planned(load(FIG3C)).by("virtual"))
    with pytest.raises(FeatureMissingError, match="the common start of flows in real time needs"):
        require_compiler(*Planned(load(FIG3C)).by("realtime"), start_afterwards=True)
    with pytest.raises(FeatureMissingError, match=f"cc, is missing: {needed_for} needs"):
        require_compiler(*Planned(load(FIG3C, [override])).by("virtual"))


class FailingEngine:
    name: Literal["realtime", "virtual"] = "realtime"

    def require(self, experiment: object, plan: object) -> None:
        """Nothing is missing."""

    def run(
        self, directory: RunDirectory, entry: ledger.Entry, on_event: object
    ) -> Mapping[str, float]:
        directory.log.write_text("it began\n")
        assert entry.folders == [str(directory.path)]
        raise RunError("the flows never came")


def run_failing(target: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The message of a run into `target` that fails."""
    monkeypatch.setattr(ledger, "default_folder", lambda: target.parent / "ledger")
    with pytest.raises(RunError) as caught:
        execute.execute(Planned(load(FIG3C)), FailingEngine(), target, lambda event: None)
    return str(caught.value)


def test_a_failed_run_leaves_no_result_that_looks_whole(tmp_path, monkeypatch):
    said = run_failing(tmp_path / "result", monkeypatch)
    assert said.endswith(f"(what was written up to then: {tmp_path / 'result.failed'})")
    # What is stored of it can do without its folder.
    assert without_folder(said) == "the flows never came"
    assert (tmp_path / "result.failed/log.txt").read_text() == "it began\n"
    assert list((tmp_path / "ledger").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger", "result.failed"]


class FinishingEngine(FailingEngine):
    """Makes what the evaluation is replaced for; `meanwhile` happens during the run."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    def run(
        self, directory: RunDirectory, entry: ledger.Entry, on_event: object
    ) -> Mapping[str, float]:
        directory.log.write_text("it ended\n")
        self._meanwhile()
        return {}


def run_finishing(
    target: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]
) -> None:
    above = next(folder for folder in target.parents if folder.exists())
    monkeypatch.setattr(ledger, "default_folder", lambda: above / "ledger")
    monkeypatch.setattr(execute, "_evaluate", lambda *arguments: ([], ()))
    execute.execute(Planned(load(FIG3C)), FinishingEngine(meanwhile), target, lambda event: None)


def test_a_result_comes_into_its_place(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty", "deep/er"):
        run_finishing(tmp_path / name, monkeypatch, lambda: None)
        assert (tmp_path / name / "log.txt").read_text() == "it ended\n"
    assert list((tmp_path / "ledger").iterdir()) == []
    assert not list(tmp_path.rglob("*.partial"))


def test_a_result_that_cannot_come_into_its_place_is_kept_and_named(tmp_path, monkeypatch):
    target = tmp_path / "result"

    def spoil() -> None:
        target.mkdir()
        (target / "another's").write_text("mine")

    with pytest.raises(RunError, match=r"not empty; the result is complete and stands in") as told:
        run_finishing(target, monkeypatch, spoil)
    kept = Path(str(told.value).rpartition(" in ")[2])
    assert (kept / "log.txt").read_text() == "it ended\n"
    assert (target / "another's").read_text() == "mine"
    assert ledger.undo_dead(folder=tmp_path / "ledger") == []
    assert kept.exists()


def test_a_second_run_into_the_same_folder_is_refused_at_its_start(tmp_path, monkeypatch):
    refused = []

    def start_another() -> None:
        with pytest.raises(ConfigError, match="another run will put its result there"):
            run_finishing(tmp_path / "result", monkeypatch, lambda: pytest.fail("it ran"))
        refused.append(True)

    run_finishing(tmp_path / "result", monkeypatch, start_another)
    assert refused
    assert (tmp_path / "result/log.txt").read_text() == "it ended\n"


def test_a_place_that_no_result_can_come_into_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").write_text("mine")
    for target, said in (
        *((tmp_path / name, "is a symbolic link; allowed is") for name in ("link", "dangling")),
        *((path, "does not end with a name") for path in (Path(), Path(".."), Path("/"))),
        (tmp_path / "real/..", "does not end with a name"),
        *((path, "new or empty folder") for path in (tmp_path, tmp_path / "file")),
        # A file system is mounted there, whether it is empty or not.
        (Path("/proc"), "allowed is"),
    ):
        with pytest.raises(ConfigError, match=said):
            execute.require_free(target)
    for name in ("real", "new"):
        execute.require_free(tmp_path / name)


def test_temporary_programs_stand_where_they_can_run(tmp_path, monkeypatch):
    spaced, mine = tmp_path / "with space", tmp_path / "mine"
    for folder in (spaced, mine):
        folder.mkdir()
    monkeypatch.setattr(realtime, "_SCRATCH_PLACES", (mine,))
    monkeypatch.setattr(tempfile, "tempdir", str(spaced))
    assert realtime._scratch_place() == mine
    monkeypatch.setattr(realtime, "_SCRATCH_PLACES", (tmp_path / "nowhere",))
    with pytest.raises(FeatureMissingError, match=r"a space or .* is missing, .*set TMPDIR"):
        realtime._scratch_place()


@pytest.mark.parametrize(
    ("engine", "override", "delay_ns", "jitter_ns"),
    [
        ("virtual", "links={rate: 1gbit}", 25_000, 6152),
        ("virtual", "links={rate: 1gbit, overhead: none}", 25_000, 6056),
        ("virtual", "links={rate: 1gbit, delay: 500ns}", 500, 500),
        ("virtual", "links={rate: 100mbit}", 25_000, 25_000),
        ("virtual", "links={rate: 1gbit, delay: 5us, jitter: 0us}", 5000, 0),
        ("virtual", "links={rate: 1gbit, delay: 0us}", 0, 0),
        ("realtime", "links={rate: 1gbit}", 0, 0),
        ("realtime", "links={rate: 1gbit, delay: 5us, jitter: 2us}", 5000, 2000),
    ],
)
def test_delay_and_jitter_are_resolved_by_the_engine(engine, override, delay_ns, jitter_ns):
    noise = [f"noise.profile={'jitter' if engine == 'virtual' else 'exact'}"]
    resolved = load(FIG3C, [override, *noise]).resolved(engine)
    assert resolved.engine == engine
    assert (resolved.links.delay_ns, resolved.links.jitter_ns) == (delay_ns, jitter_ns)
    assert resolved.resolved(engine) == resolved
