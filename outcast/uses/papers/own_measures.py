"""The measures of other fates, and of the computed model."""

from __future__ import annotations

import math

import polars as pl

from outcast.analysis import (
    Measure,
    kinds,
    sender_measures,  # noqa: F401 - recipes name them too
)
from outcast.analysis.statistics import UNLIMITED
from outcast.errors import ConfigError
from outcast.records import Run
from outcast.uses.papers.model import ModelRun


class EffectsRun(Run):
    """A run with what came of other fates of its packets."""

    def __init__(self, run: Run, effects: pl.DataFrame) -> None:
        super().__init__(run.directory)
        self.effects = effects


def mean_of(effects: pl.DataFrame, column: str) -> float:
    """The mean of a column; NaN without values."""
    mean = effects[column].cast(pl.Float64).mean() if column in effects.columns else None
    return mean if isinstance(mean, float) else math.nan


def _effects(run: Run) -> pl.DataFrame:
    if not isinstance(run, EffectsRun):
        raise ConfigError("this measure needs other fates: the point must have fates")
    return run.effects


def _of_effects(column: str) -> kinds.Kind:
    return kinds.Kind(lambda run, _: mean_of(_effects(run), column), limits=kinds.SHARE)


def _gain(undone: pl.Expr, *, summed: bool = False) -> kinds.Kind:
    """The mean gain of a blackout's flows by some of its undone drops, in bit/s."""

    def function(run: Run, measure: Measure) -> float:
        gain, rows = f"gain_{measure.within_ms}ms_bps", _effects(run).filter(undone)
        return mean_of(rows.group_by("group").agg(pl.col(gain).sum()) if summed else rows, gain)

    return kinds.Kind(function, limits=UNLIMITED)


def _of_model(name: str) -> kinds.Kind:
    def function(run: Run, _measure: Measure) -> float:
        if not isinstance(run, ModelRun):
            raise ConfigError("this measure needs a computation: the point must have payload_min")
        return float(getattr(run.enqueued, name))

    return kinds.Kind(function, limits=kinds.SHARE)


kinds.MEASURES.update(
    # The share of fates after which a packet of another flow has another fate too.
    fates_that_spread=_of_effects("spread"),
    # The mean share of a run's packets that have another fate, or are in one of the runs alone.
    fates_changed=_of_effects("changed"),
    # The share of fates after which other flows get less than half of the mean.
    fates_that_starve_others=_of_effects("other_starved"),
    # The share of fates after which the other side of the ratio gets less.
    fates_that_swap_sides=_of_effects("other_side"),
    # All drops of a blackout are undone.
    undone_together_bps=_gain(pl.col("undone").is_null()),
    # They are undone one by one: what they give together, without one another.
    undone_apart_bps=_gain(pl.col("undone").is_not_null(), summed=True),
    # The last drop alone, of blackouts that a timeout follows.
    undone_last_bps=_gain(pl.col("is_last") & pl.col("timeout")),
    # All drops together, of blackouts that a timeout follows.
    undone_before_timeout_bps=_gain(pl.col("undone").is_null() & pl.col("timeout")),
    # The shares of cases in which the loser's next packet, X2, is queued; the winner's, Y2; both;
    # and neither (TCPRand, figure 5).
    x2_queued=_of_model("x2"),
    y2_queued=_of_model("y2"),
    both_queued=_of_model("both"),
    neither_queued=_of_model("neither"),
)
