"""One figure of a sweep by its name, of the runs and values that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from outcast.analysis.statistics import Kind
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.sweep import dataset, figures, groups
from outcast.sweep.dataset import Dataset
from outcast.sweep.groups import Group
from outcast.sweep.labels import Labels
from outcast.sweep.store import SweepDirectory
from outcast.view.figures.style import styled

OF_GROUPS: Mapping[str, Callable[[Sequence[Group], str, Labels], Figure]] = {
    "line": figures.line,
    "bar": figures.bar,
    "heat": figures.heat,
}
FIGURES: Mapping[str, str] = {
    "line": "a value over the first key, a line for each combination of the other keys",
    "bar": "the same as bars",
    "heat": "a value over two keys, as colour and as a number",
    "cdf": "the share of runs, or of flows, up to each value",
}
"""The content of each figure of a sweep."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The part of a sweep that is drawn.

    None as `value` is the first of those that `outcast results` shows. The first key of `by` is
    along the axis; without any, all swept keys count, and one whose values are amounts is first.
    Keys of `over` may differ in a group.
    """

    value: str | None = None
    by: Sequence[str] = ()
    where: Sequence[str] = ()
    center: Kind = "mean"
    disagreeing: bool = False
    over: Sequence[str] = ()


def chosen(runs: pl.DataFrame, where: Sequence[str], disagreeing: bool) -> pl.DataFrame:
    """The runs that meet the conditions. Raises ConfigError as `groups.where` does."""
    kept = groups.where(runs, where)
    return kept if disagreeing else groups.agreeing(kept)


def figure(path: Path, name: str, choice: Choice) -> Figure:
    """Draws a figure of the sweep in a folder.

    Raises:
        ConfigError: there is no such figure, column, key or run.
        InputError: the folder holds no sweep, or no run has finished yet.
    """
    if name not in FIGURES:
        raise ConfigError(
            f"figure {name}: of a sweep allowed are {', '.join(FIGURES)}"
            f"{did_you_mean(name, FIGURES)}"
        )
    results = dataset.load(path)
    if not results.runs.height:
        raise InputError(f"{path}: no run has finished yet")
    labels = Labels(SweepDirectory(path).read_experiment())
    keys = list(choice.by) or groups.default_by(results, choice.over)
    runs = chosen(results.runs, _of_runs(results, choice), choice.disagreeing)
    groups.pooled(runs, results.keys, keys, choice.over)
    if name == "cdf":
        value = choice.value or groups.default_values(results.runs)[0]
        rows = _rows_with(results, value, choice)
        with styled():
            return figures.cdf(rows, keys, value, labels)
    value = choice.value or groups.default_values(runs)[0]
    summed = groups.summarize(runs, keys, [value], choice.center)
    if not choice.by:
        summed = figures.ordered_first(summed, labels)
    return of_groups(summed, name, value, labels)


def of_groups(summed: Sequence[Group], name: str, value: str, labels: Labels) -> Figure:
    """Draws `line`, `bar` or `heat` of groups. Raises ConfigError if their keys do not fit it."""
    with styled():
        return OF_GROUPS[name](summed, value, labels)


def _of_runs(results: Dataset, choice: Choice) -> list[str]:
    """The conditions that runs meet; others are on flows."""
    of_runs, of_flows = results.runs.columns, results.flows.columns
    keys = {text: text.partition("=")[0] for text in choice.where}
    return [text for text, key in keys.items() if key in of_runs or key not in of_flows]


def _rows_with(results: Dataset, value: str, choice: Choice) -> pl.DataFrame:
    """The chosen runs; or the flows of these, if only the table of flows has the value."""
    runs, flows = results.runs, results.flows
    if value in runs.columns or value not in flows.columns:
        return chosen(runs, choice.where, choice.disagreeing)
    of_runs = _of_runs(results, choice)
    kept = chosen(runs, of_runs, choice.disagreeing)
    of_kept = flows.join(kept.select("run"), on="run", how="semi")
    return groups.where(of_kept, [text for text in choice.where if text not in of_runs])
