"""The stored results of benchmarks, and what pages say of them."""

import polars as pl
import pytest

from benchmarks import causes, settings, stored
from outcast.records.run import Run
from tests.golden import model
from tests.golden.run_directory import write_run

ENTRY = stored.Entry("c", "s", [["a", "b"], ["1", "2"]], {"x": "7"})


def test_an_entry_is_read_as_it_was_stored_and_others_stay(tmp_path):
    path = tmp_path / "measured.json"
    path.write_text("{}")
    stored.store("first", ENTRY, path)
    stored.store("second", stored.Entry("d", "t"), path)
    stored.store("first", stored.Entry("e", "s", [["a"], ["3"]]), path)
    assert stored.read(path) == {
        "first": stored.Entry("e", "s", [["a"], ["3"]]),
        "second": stored.Entry("d", "t"),
    }


def test_the_committed_entries_can_be_written_as_they_are(tmp_path):
    copy = tmp_path / "measured.json"
    copy.write_text(stored.PATH.read_text(encoding="utf-8"), encoding="utf-8")
    name, entry = next(iter(stored.read().items()))
    stored.store(name, entry, copy)
    assert stored.read(copy) == stored.read()


def test_waits_are_summed_for_each_control_in_order():
    waits = pl.DataFrame(
        [
            ("bic", "2-hop", "blackout", 300.0, 75.0, 100.0),
            ("bic", "2-hop", "hole", 100.0, 25.0, 0.0),
            ("bic", "6-hop", "lost elsewhere", 9.0, 90.0, 0.0),
            ("reno", "2-hop", "blackout", 80.0, 80.0, 8.0),
            ("reno", "2-hop", "tail loss", 20.0, 20.0, 0.0),
        ],
        schema=["control", "group", "lost", "ms_per_flow", "share_percent", "tlp"],
        orient="row",
    )
    told = causes.of_lone(waits, ["reno", "bic"])
    assert told["controls"] == "Reno and BIC"
    assert told["lone"] == "100 and 400"
    assert told["lone blackout"] == "80 and 75 %"
    assert told["lone tail"] == "20.0 and 0.0 %"
    assert told["lone probes"] == "8 and 25 %"
    assert told["rivals before"] == "0 and 90 %"


def test_a_row_of_settings_has_means_with_intervals(tmp_path):
    traffic = model.drop_tail(model.make_traffic(9, 200), 16_384, 10**9)
    run = Run(write_run(tmp_path / "run", traffic, 80_000_000).path)
    values = iter([1.0, 4.0, 2.0])
    column = settings.Column("ratio", lambda _: next(values), "geometric")
    assert settings.cell(column, [run, run, run]).startswith("2 [")
    missing = iter([1.0, None])
    assert settings.cell(settings.Column("x", lambda _: next(missing)), [run, run]) == "-"


@pytest.mark.parametrize("study", settings.STUDIES.values(), ids=settings.STUDIES)
def test_every_setting_of_a_study_is_accepted(study):
    import outcast

    for changes in study.rows.values():
        outcast.load(settings.ROOT / study.config, {**settings.COMMON, **changes, "seed": 1})
