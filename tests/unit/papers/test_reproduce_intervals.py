"""The part of a run that a measure covers, and the test for a trend."""

import json

import numpy as np
import polars as pl
import pytest

from outcast.analysis import Measure
from outcast.analysis.measure import fairness
from outcast.analysis.measure.fairness import FlowRates
from outcast.analysis.run_measures import intervals, measures
from outcast.records.run import Run
from outcast.uses.papers import claims, recipe
from tests.golden.run_directory import analysed_run

DURATION_NS = 80_000_000
BIN_NS = 1_000_000
BINS = DURATION_NS // BIN_NS


@pytest.fixture
def run(tmp_path) -> Run:
    """A golden run whose flows, say its records, are all active from 20 ms on."""
    directory = analysed_run(tmp_path / "run", DURATION_NS, 9, 1_000)
    tree = json.loads(directory.summary.read_text())
    directory.summary.write_text(json.dumps(tree | {"start_s": 0.02, "windows": {}}))
    return Run(directory.path)


def with_shares(run: Run, lone_share: np.ndarray) -> Run:
    """The run with 1 Gbps in all, of which the 2-hop flow has this share in each bin."""
    flows = {flow.flow: flow.hops for flow in run.manifest.flows}
    near = sum(hops == 2 for hops in flows.values())
    starts = np.arange(BINS) * BIN_NS
    pl.concat(
        pl.DataFrame(
            {
                "flow": pl.Series([flow] * BINS, dtype=pl.Int32),
                "t": starts,
                "goodput_bps": 1e9 * lone_share / near
                if hops == 2
                else 1e9 * (1 - lone_share) / (len(flows) - near),
            }
        )
        for flow, hops in flows.items()
    ).write_parquet(run.directory.path / "throughput.parquet")
    return run


@pytest.mark.parametrize(
    ("interval", "begin_ms", "end_ms"),
    [
        ("whole", 0, 80),
        ("all_active", 20, 80),
        (None, 20, 80),
        ("second_half", 50, 80),
        (("10ms", "30ms"), 30, 50),
    ],
)
def test_times_count_from_when_all_flows_are_active(run, interval, begin_ms, end_ms):
    span = intervals.span_of(run, interval)
    assert (span.start_ns, span.end_ns) == (begin_ms * 10**6, end_ms * 10**6)


def test_goodput_of_a_part_is_that_of_its_bins(run):
    share = np.where(np.arange(BINS) < 30, 0.8, 0.2)
    share[40:] = 0.5
    part = intervals.covered(with_shares(run, share), ("5ms", "25ms"))
    # 25 to 45 ms: 5 bins of 0.8, 10 of 0.2, 5 of 0.5.
    near = part.classes["2"]
    assert near.mean_goodput_bps * near.flows == pytest.approx(1e9 * 0.425)
    assert part.total_goodput_bps == pytest.approx(1e9)
    assert part.groups["hops"]["2-hop"].mean_goodput_bps == near.mean_goodput_bps


def test_only_whole_bins_count(run):
    part = intervals.covered(with_shares(run, np.full(BINS, 0.5)), ("500us", "3800us"))
    assert (part.start_s, part.end_s) == (0.021, 0.023)
    assert intervals.covered(run, ("200us", "900us")) is None
    assert np.isnan(measures.take(run, Measure(kind="outcast_ratio", interval=("200us", "900us"))))


def test_a_run_whose_shares_drift_is_not_stationary(run):
    noise = np.random.default_rng(5).normal(0, 0.02, BINS)
    flat = with_shares(run, 0.3 + noise)
    assert intervals.is_stationary(flat, "all_active") is True
    rising = with_shares(run, np.linspace(0.2, 0.6, BINS) + noise)
    assert intervals.is_stationary(rising, "second_half") is False
    started = np.where(np.arange(BINS) < 45, np.linspace(0.9, 0.3, BINS), 0.3)
    settled = with_shares(run, started + noise)
    assert intervals.is_stationary(settled, "all_active") is False
    assert intervals.is_stationary(settled, "second_half") is True


def test_a_flow_alone_has_goodput_and_no_share(run):
    alone = run.manifest.flows[:1]

    def of(goodput_bytes: np.ndarray) -> FlowRates:
        return FlowRates((alone[0].flow,), goodput_bytes[None, :], intervals.Span(0, 40))

    assert fairness.change(of(np.linspace(1, 9, 40)), alone) == "the goodput rises"
    assert fairness.change(of(np.full(40, 5.0)), alone) == ""


def test_many_flows_that_change_places_are_doubted_by_their_fairness(run):
    uneven = np.random.default_rng(5).random((50, 40)) + 0.5
    few = uneven.copy()
    # Half of the flows come up at different times, none of them from part to part.
    few[:25] *= np.arange(40) >= np.linspace(0, 39, 25)[:, None]
    told = fairness.fairness_change(FlowRates(tuple(range(50)), few, intervals.Span(0, 40)))
    assert told.startswith("Jain's index rises from 0.")
    for steady in (uneven, np.full((2, 40), 5.0)):
        rates = FlowRates(tuple(range(len(steady))), steady, intervals.Span(0, 40))
        assert fairness.fairness_change(rates) == ""
    assert fairness.fairness_change(None) == ""


def of_flow(run: Run, flow: int, factors: np.ndarray) -> Run:
    """The run with one flow's goodput multiplied, bin by bin."""
    path = run.directory.path / "throughput.parquet"
    table = pl.read_parquet(path).sort("flow", "t")
    factor = pl.Series(
        np.where(table["flow"] == flow, np.tile(factors, len(run.manifest.flows)), 1.0)
    )
    table.with_columns(pl.col("goodput_bps") * factor).write_parquet(path)
    return run


def test_every_flow_is_looked_at(run):
    flat = with_shares(run, 0.3 + np.random.default_rng(5).normal(0, 0.02, BINS))
    assert intervals.is_stationary(flat, "all_active") is True
    far = next(flow.flow for flow in run.manifest.flows if flow.hops != 2)
    # A flow that gets nothing, and one that fades while the class with the fewest hops does not.
    assert intervals.is_stationary(of_flow(flat, far, np.zeros(BINS)), "all_active") is False
    flat = with_shares(run, 0.3 + np.random.default_rng(5).normal(0, 0.02, BINS))
    fades = of_flow(flat, far, np.linspace(1, 0.1, BINS))
    assert intervals.is_stationary(fades, "all_active") is False


def test_few_bins_tell_nothing(run):
    assert intervals.is_stationary(with_shares(run, np.full(BINS, 0.5)), ("0ms", "9ms")) is None


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        (np.arange(10.0), True),
        (np.arange(10.0)[::-1], True),
        (np.ones(10), False),
        (np.array([1.0, 3, 2, 4, 1, 3, 2, 4, 1, 3]), False),
    ],
)
def test_a_trend_rises_or_falls(values, trend):
    assert fairness.has_trend(values) is trend


def test_the_test_for_a_trend_is_as_strict_as_it_says():
    draw = np.random.default_rng(1)
    doubted = [fairness.has_trend(draw.normal(size=10)) for _ in range(1000)]
    assert 0.03 < np.mean(doubted) < 0.07


def test_an_interval_ends_after_it_begins():
    with pytest.raises(ValueError, match="interval: 200ms is not before 100ms"):
        Measure(kind="outcast_ratio", interval=("200ms", "100ms"))
    with pytest.raises(ValueError, match="not before"):
        Measure.model_validate({"kind": "outcast_ratio", "interval": ["2s", "2s"]})


def test_measures_have_the_recipes_interval_or_their_own():
    found = recipe.load_all()["P5"].claims
    assert {claim.measure.interval for claim in found} == {"second_half"}
    fades = found[-1]
    assert isinstance(fades, claims.OrderClaim)
    assert fades.lesser_measure.interval == ("0s", "100ms")
