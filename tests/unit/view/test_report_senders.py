"""The lanes of the senders in the report: what the page carries of the kernel's events."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.records.trace import FOLDER
from outcast.view import sender_series
from outcast.view.report import timeline
from tests.golden.run_directory import analysed_run
from tests.golden.traced import write_trace
from tests.unit.view.test_report import columns


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> RunDirectory:
    directory = analysed_run(tmp_path_factory.mktemp("traced") / "run", 20_000_000, 9, 4_000)
    write_trace(directory)
    return directory


@given(st.data())
def test_thinned_series_keep_changes_and_extremes(data):
    size = data.draw(st.integers(1, 400))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    series = pl.DataFrame(
        {
            "flow": np.sort(rng.integers(0, 3, size)),
            "cwnd": rng.integers(1, 50, size),
            "in_flight": rng.integers(0, 50, size),
            "ssthresh": pl.Series(np.cumsum(rng.random(size) < 0.02)).replace(0, None),
            "state": rng.choice(["open", "loss"], size, p=[0.97, 0.03]),
        }
    )
    most = data.draw(st.integers(1, 500))
    keep, every = sender_series.thin(series, most)
    if size <= most:
        assert every == 1
        assert keep.all()
        return
    assert every >= 4
    kept = series.filter(keep)
    changing = ("flow", "ssthresh", "state")
    steps = series.select(
        pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in changing)
    ).to_series()
    assert keep[steps.to_numpy()].all()
    extremes = [pl.min("cwnd", "in_flight").name.prefix("least_"), pl.max("cwnd", "in_flight")]
    assert (
        kept.group_by("flow")
        .agg(*extremes)
        .sort("flow")
        .equals(series.group_by("flow").agg(*extremes).sort("flow"))
    )
    assert keep.sum() <= 4 * (size / every + 3) + steps.sum()


def test_the_page_has_the_series_and_the_causes(traced):
    made = timeline.make(Run(traced))
    header, got = json.loads(made.header), columns(made)
    assert (made.traced, made.points_every) == (True, 1)
    texts = header["senders"]["texts"]
    flows = [flow["flow"] for flow in header["flows"]]
    table = pl.read_parquet(traced.path / FOLDER / "tcp.parquet").sort("flow", "t_ns")
    for name in ("t_ns", "cwnd", "in_flight", "srtt_us", "rto_us"):
        assert got["series"][name] == table[name].to_list(), name
    assert got["series"]["ssthresh"] == table["ssthresh"].cast(pl.Int64).fill_null(-1).to_list()
    assert [texts[code] for code in got["series"]["state"]] == table["state"].to_list()
    assert [flows[place] for place in got["series"]["flow"]] == table["flow"].to_list()
    sent = pl.read_parquet(traced.path / FOLDER / "retransmissions.parquet").sort("t_ns")
    assert [texts[code] for code in got["resent"]["cause"]] == sent["cause"].to_list()
    fired = sent.select(pl.when(pl.col("timer").is_not_null()).then("rto_ns").fill_null(-1) + 1)
    assert got["resent"]["rto_ns"] == fired.to_series().to_list()
    packets = pl.read_parquet(traced.path / "packets.parquet")
    # Each retransmission is followed to the packet that came in because of it.
    for place, seq, sent_ns in zip(got["resent"]["packet"], sent["seq"], sent["t_ns"], strict=True):
        row = packets.row(place - 1, named=True)
        assert row["seq"] == seq
        assert 0 <= row["t_in"] - traced.read_manifest().traffic.t_start_ns - sent_ns <= 20_000
    assert 0 < sum(got["again"]["known"]) < len(got["again"]["known"])
