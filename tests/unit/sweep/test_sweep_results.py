import csv
import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcast import cli
from outcast.analysis import statistics
from outcast.errors import ConfigError
from outcast.sweep import dataset, groups, render
from outcast.sweep.groups import summarize
from outcast.sweep.store import SweepDirectory
from tests.golden import fake_run
from tests.json_files import edit

CONFIG = """\
name: fake
topology: {kind: linear, rivals: 2}
links: {rate: 100mbit}
queue: {kind: tbf, limit: 16KB}
flows: [{from: 2-hop}, {from: 3-hop}]
duration: 100ms
analysis: {bin: 10ms}
repetitions: 3
sweep:
  queue.limit: [16KB, 64KB, 512KB]
  topology.rivals: [1, 2]
"""


def make_sweep(path: Path, config: str = CONFIG, leave_out: int = 0) -> Path:
    """A sweep's folder, its runs made by the executor of the tests."""
    from outcast import experiment
    from outcast.sweep import plan

    file = path.with_suffix(".yaml")
    file.write_text(config)
    wanted = plan.plan_sweep(experiment.read(file), lambda each: "virtual")
    path.mkdir()
    (path / "sweep.yaml").write_text(config)
    for run in wanted.runs[leave_out:]:
        fake_run.execute(run.experiment, SweepDirectory(path).run(run.point.name).path)
    return path


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    return make_sweep(tmp_path_factory.mktemp("results") / "sweep")


def results(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = cli.invoke(["results", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_means_by_the_swept_keys(sweep, capsys):
    status, out, _ = results(capsys, str(sweep), "--format", "json", "--value", "outcast_ratio")
    assert status == 0
    told = json.loads(out)
    assert len(told) == 6
    assert told[0]["at"] == {"queue.limit": "16KB", "topology.rivals": 1}
    summaries = [
        json.loads(path.read_text())["outcast_ratio"]
        for path in (sweep / "runs").glob("limit=16KB,rivals=1,*/summary.json")
    ]
    found = told[0]["values"]["outcast_ratio"]
    assert found["runs"] == told[0]["runs"] == len(summaries) == 3
    assert found["center"] == pytest.approx(np.mean(summaries))
    # Of three runs, Student's t reaches far; a ratio is not negative.
    assert 0 == found["low"] < min(summaries)
    assert found["center"] < max(summaries) < found["high"]


def test_where_by_and_csv(sweep, capsys):
    argv = ["--where", "queue.limit=64KB", "--by", "topology.rivals", "--format", "csv"]
    _, out, _ = results(capsys, str(sweep), *argv, "--value", "classes.2.mean_goodput_bps")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["topology.rivals"] for row in rows] == ["1", "2"]
    assert {row["runs"] for row in rows} == {"3"}
    _, out, _ = results(capsys, str(sweep), *argv[:2], "--format", "json")
    assert [each["runs"] for each in json.loads(out)] == [3, 3]


def test_runs_that_differ_in_a_swept_key_are_pooled_only_if_told(sweep, capsys):
    argv = [str(sweep), "--value", "outcast_ratio", "--by", "queue.limit"]
    status, out, err = results(capsys, *argv)
    assert (status, out) == (2, "")
    assert "a group would pool runs with different topology.rivals (1, 2)" in err
    assert "--over topology.rivals" in err
    status, out, _ = results(capsys, *argv, "--over", "topology.rivals")
    assert status == 0
    assert "pooled over topology.rivals: 1, 2" in out
    assert out == results(capsys, *argv[:-2], "--over", "topology.rivals")[1]
    _, out, _ = results(capsys, *argv, "--where", "topology.rivals=2")
    assert "pooled" not in out
    for over in ("queue.limit", "engine"):
        _, _, err = results(capsys, *argv, "--over", over)
        assert f"--over {over}: allowed are swept keys that --by lacks: topology.rivals" in err


def test_against_another_sweep(sweep, tmp_path, capsys):
    other = make_sweep(tmp_path / "other", CONFIG + "seed: 2\n")
    argv = ["--against", str(other), "--format", "json", "--value", "outcast_ratio"]
    argv += ["--over", "topology.rivals"]
    _, out, _ = results(capsys, str(sweep), *argv, "--by", "queue.limit")
    told = json.loads(out)
    assert [each["at"]["queue.limit"] for each in told] == ["16KB", "64KB", "512KB"]

    def mean(path: Path) -> float:
        found = [
            json.loads(each.read_text())["outcast_ratio"]
            for each in (path / "runs").glob("limit=16KB,*/summary.json")
        ]
        return float(np.mean(found))

    apart = told[0]["values"]["outcast_ratio"]
    assert apart["center"] == pytest.approx(mean(sweep) - mean(other))
    assert apart["low"] < apart["center"] < apart["high"]


def test_a_run_that_was_analysed_again_counts_as_it_is_now(tmp_path, capsys):
    path = make_sweep(tmp_path / "again", CONFIG[: CONFIG.index("sweep:")])
    dataset.write(SweepDirectory(path))
    for summary in (path / "runs").glob("*/summary.json"):
        edit(summary, lambda told: told.update(outcast_ratio=100.0))
    argv = ["--value", "outcast_ratio", "--format", "json"]
    _, out, _ = results(capsys, str(path), *argv)
    assert json.loads(out)[0]["values"]["outcast_ratio"]["center"] == 100


def test_runs_without_a_value_are_counted(tmp_path, capsys):
    path = make_sweep(tmp_path / "starved")
    for summary in sorted((path / "runs").glob("limit=16KB,*/summary.json"))[:2]:
        edit(summary, lambda told: told.update(outcast_ratio=None))
    said = "outcast_ratio: 2 of the runs have no value and are left out"
    assert said in results(capsys, str(path))[1]
    assert "have none" not in results(capsys, str(path), "--value", "jain_index")[1]


@pytest.mark.parametrize("kind", ["line", "bar", "heat", "cdf"])
def test_every_figure_is_drawn(sweep, tmp_path, capsys, kind):
    file = tmp_path / f"{kind}.png"
    status, out, _ = results(capsys, str(sweep), "--figure", kind, "-o", str(file))
    assert (status, out.strip()) == (0, str(file))
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--where", "queue.limit"], "allowed is KEY=VALUE"),
        (["--where", "queue.limit=1KB"], "no run has that; allowed is 16KB, 512KB, 64KB"),
        (["--where", "limit=16KB"], "no such column; similar are queue.limit"),
        (["--by", "nothing"], "no such column"),
        (["--figure", "cdf", "--by", "nothing"], "no such column"),
        (["--value", "engine"], "holds no numbers"),
        (["--value", "zebra"], "allowed are run, repetition, seed, queue.limit,"),
        (["--value", "outcast_ratoi"], "did you mean 'outcast_ratio'?"),
        (["--value", "groups.hops.2-hop.mean_goodput"], "mean 'classes.2.mean_goodput_bps'?"),
        (["--figure", "heat", "--over", "topology.rivals"], "two keys"),
        (["-o", "x.png"], "allowed only together with --figure"),
        (["--figure", "cdf", "--against", "x"], "a difference has no cdf"),
        (["--figure", "bar", "-o", "/nowhere/x.png"], "-o /nowhere/x.png"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(sweep, capsys, argv, said):
    status, out, err = results(capsys, str(sweep), *argv)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


# --- statistics

finite = st.floats(-1e6, 1e6)


@settings(deadline=None)  # The machine may be busy.
@given(st.lists(finite, min_size=2, max_size=20))
def test_a_medians_interval_is_within_what_was_measured(values):
    found = statistics.central(values, "median")
    assert found.value is not None
    margin = 1e-6
    assert min(values) - margin <= found.low <= found.high <= max(values) + margin
    assert found == statistics.central(values, "median")


@settings(deadline=None)  # The machine may be busy.
@given(st.lists(st.floats(0.1, 1e3), min_size=2, max_size=10))
def test_a_geometric_mean_is_that_of_the_logarithms(values):
    found = statistics.central(values, "geometric")
    assert found.value == pytest.approx(float(np.exp(np.mean(np.log(values)))))
    turned = statistics.central([1 / value for value in values], "geometric")
    assert turned.value == pytest.approx(1 / found.value)


def test_few_runs_have_no_interval():
    assert statistics.central([]) == statistics.Interval(0, None, None, None)
    assert statistics.central([3.0]) == statistics.Interval(1, 3.0, None, None)
    assert statistics.difference([3.0], [1.0, 2.0]) == statistics.Interval(1, 1.5, None, None)
    with pytest.raises(ValueError, match="above zero"):
        statistics.central([0.0, 1.0], "geometric")


@pytest.mark.parametrize(
    ("known", "shown", "moves"),
    [
        ([True, False, False, False], "1 of 4", True),
        ([True, False, None, None], "1 of 2", False),
        ([False, None], "0 of 1", True),
        ([None], "-", False),
    ],
)
def test_a_mean_of_runs_that_were_mostly_not_stationary_is_marked(known, shown, moves):
    frame = pl.DataFrame(
        {"key": [1] * len(known), "value": [2.0] * len(known), "stationary": known},
        schema_overrides={"stationary": pl.Boolean},
    )
    (group,) = groups.summarize(frame, ["key"], ["value"], "mean")
    assert (render.stationary(group), group.moves) == (shown, moves)
    assert bool(groups.remarks_on_trends([group])) == moves
    (line,) = csv.DictReader(io.StringIO(render.as_csv([group])))
    (tree,) = json.loads(render.as_json([group]))
    told = [(int(each["stationary"]), int(each["tested"])) for each in (line, tree)]
    assert told == [(group.stationary, group.tested)] * 2


def test_missing_values_do_not_count():
    frame = pl.DataFrame({"key": ["a", "a", "b"], "value": [1.0, None, float("nan")]})
    one, other = summarize(frame, ["key"], ["value"], "mean")
    assert (one.runs, one.cells["value"].n, one.cells["value"].value) == (2, 1, 1.0)
    assert other.cells["value"].value is None
    for ours, theirs in ((frame[:1], frame), (frame, frame[:1])):
        (apart,) = groups.compare(ours, theirs, ["key"], ["value"], "mean")
        assert apart.runs == 1
    with pytest.raises(ConfigError, match="no group"):
        groups.compare(frame, frame.with_columns(key=pl.lit("c")), ["key"], ["value"], "mean")


def test_a_run_lost_nothing_by_a_cause_that_it_does_not_name():
    rows = [
        {"run": "a", "losses.total": 3, "losses.causes.queue": 3},
        {"run": "b", "losses.total": 0},
        {"run": "c"},
    ]
    frame = dataset._frame(rows, {})
    assert frame["losses.causes.queue"].to_list() == [3, 0, None]
