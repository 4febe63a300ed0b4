"""What is compared: the settings that differ, the pairs that count, and the answer's words."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import outcast
from outcast.cli import invoke
from outcast.errors import ConfigError, RunError, UntrustedError
from outcast.uses.comparison import pairs
from outcast.uses.comparison.pairs import compare

CONFIG = Path(__file__).parents[3] / "configs" / "linear-12.yaml"


def rows(seeds: list[int], gain: float = -3.0, **more: Any) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "name": side,
                "seed": seed,
                "trusted": (side, seed) not in more.get("distrusted", ()),
                "total_goodput_bps": 100.0 + 7 * (seed % 3) + (gain + seed % 2) * (side == "B"),
                "outcast_ratio": None if more.get("no_ratio") else 2.0,
            }
            for seed in seeds
            for side in "AB"
        ]
    )


@pytest.fixture
def sweeps(monkeypatch) -> list[Any]:
    """Runs nothing; what each look would have run."""
    asked: list[Any] = []

    def run_sweep(experiment: Any, values: Any, **how: Any) -> Any:
        asked.append(SimpleNamespace(experiment=experiment, values=values, how=how))
        how["directory"].mkdir(exist_ok=True)
        made = getattr(run_sweep, "rows", rows)(values["seed"])
        return SimpleNamespace(failures=getattr(run_sweep, "failures", {}), table=lambda: made)

    monkeypatch.setattr(outcast, "run_sweep", run_sweep)
    return asked


def both(*settings: dict[str, Any]) -> list[Any]:
    return [outcast.load(CONFIG, each) for each in settings]


def test_runs_end_at_the_first_look_that_answers(sweeps, tmp_path):
    found = compare(*both({}, {"queue.limit": "32KB"}), seeds=20, directory=tmp_path / "c")
    assert found.verdict == "worse"
    assert found.settings == {"queue.limit": ("16KB", "32KB")}
    assert [len(look.values["seed"]) for look in sweeps] == [4, 8]
    assert sweeps[0].values == {
        "points": [{"name": "A"}, {"name": "B", "queue.limit": "32KB"}],
        "seed": [1, 2, 3, 4],
        "order": "random",
    }
    record = json.loads((tmp_path / "c" / "compare.json").read_text())
    assert record["verdict"] == "worse"
    assert record["settings"] == {"queue.limit": {"a": "16KB", "b": "32KB"}}
    assert (tmp_path / "c" / "compare.png").stat().st_size > 1000


def test_looks_go_on_in_the_same_folder(sweeps, tmp_path, monkeypatch):
    monkeypatch.setattr(outcast.run_sweep, "rows", lambda seeds: rows(seeds, -0.5), raising=False)
    found = compare(*both({}, {"duration": "1s"}), seeds=10, directory=tmp_path / "c")
    assert found.verdict == "not settled"
    assert [len(look.values["seed"]) for look in sweeps] == [4, 6, 8, 10]
    assert [look.how["resume"] for look in sweeps] == [False, True, True, True]
    assert len(pairs.words(found)) == 5


def test_parts_of_another_kind_differ_as_one(sweeps, tmp_path):
    other = {"queue": {"kind": "pfifo", "limit": "20 packets"}, "transport.sack": False}
    found = compare(*both({}, other), directory=tmp_path / "c")
    assert [*found.settings] == ["queue", "transport.sack"]
    point = sweeps[0].values["points"][1]
    assert point["queue"]["kind"] == "pfifo"
    assert point["transport.sack"] is False


def test_pairs_that_cannot_be_believed_are_left_out_and_counted(sweeps, tmp_path, monkeypatch):
    table = lambda seeds: rows(seeds, distrusted={("B", 2)}, no_ratio=True)  # noqa: E731
    monkeypatch.setattr(outcast.run_sweep, "rows", table, raising=False)
    experiments = both({}, {"duration": "1s"})
    found = compare(*experiments, seeds=30, directory=tmp_path / "c")
    assert (found.left_out, found.differences[0].pairs) == (1, 5)
    assert [each.name for each in found.differences] == ["total_goodput_bps"]
    assert "1 more pairs left out" in pairs.words(found)[-1]
    with pytest.raises(UntrustedError, match="too few pairs"):
        compare(*experiments, seeds=4, directory=tmp_path / "d")


def test_what_cannot_be_compared_is_refused(sweeps, tmp_path, monkeypatch):
    experiment, other = both({}, {"duration": "1s"})
    with pytest.raises(ConfigError, match="A and B are the same experiment"):
        compare(experiment, *both({"name": "another", "seed": 9}))
    with pytest.raises(ConfigError, match="seeds: 3; allowed are 4 to"):
        compare(experiment, other, seeds=3)
    with pytest.raises(ConfigError, match="has a sweep or repetitions"):
        compare(experiment, *both({"repetitions": 2}))
    with pytest.raises(ConfigError, match=r"no number 'outcast_ratios'.*outcast_ratio"):
        compare(experiment, other, values=["outcast_ratios"], directory=tmp_path / "c")
    failure = SimpleNamespace(message="no such program")
    monkeypatch.setattr(outcast.run_sweep, "failures", {"B,r0": failure}, raising=False)
    with pytest.raises(RunError, match="B,r0: no such program"):
        compare(experiment, other, directory=tmp_path / "c")


@pytest.mark.parametrize(
    ("gain", "more", "status"),
    [(-3, [], 4), (3, [], 0), (-3, ["--margin", "10%"], 0), (-0.5, ["--seeds", "5"], 5)],
)
def test_the_exit_status_is_the_answer(gain, more, status, sweeps, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outcast.run_sweep, "rows", lambda seeds: rows(seeds, gain), raising=False)
    words = ["compare", str(CONFIG), "--against", "duration=1s", "-o", str(tmp_path / "c")]
    assert invoke([*words, *more]) == status
    assert "compared: duration" in capsys.readouterr().out


def test_a_margin_is_a_share(capsys):
    words = ["compare", str(CONFIG), "--against", "duration=1s", "--margin", "3 percent"]
    assert invoke(words) == 2
    assert "--margin: " in capsys.readouterr().err
