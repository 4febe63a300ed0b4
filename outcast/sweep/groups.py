"""Chooses runs of a sweep, groups them and averages them; compares two sweeps."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from outcast import quantities
from outcast.analysis import statistics
from outcast.analysis.statistics import Interval, Kind
from outcast.errors import ConfigError, did_you_mean, some_of
from outcast.records.summary import SHARES
from outcast.sweep.dataset import Dataset, is_compared

_NEVER_BY = ("seed",)
_MOST_VALUES_NAMED = 6
_MOST_COLUMNS_NAMED = 20
"""The most columns that a refusal names, because it is one line."""


_MOST_VALUES = 6
"""The most values of a key that an error lists."""


@dataclass(frozen=True)
class Group:
    """Runs with the same values of the keys by which they are grouped.

    Attributes:
        at: these keys and values.
        cells: each column's average over the runs, or its difference from another sweep.
        stationary: how many of the `tested` runs were stationary; in a comparison, of both sweeps.
    """

    at: dict[str, Any]
    runs: int
    cells: dict[str, Interval]
    stationary: int = 0
    tested: int = 0

    @property
    def moves(self) -> bool:
        """Whether most runs were not stationary, so that means depend on the interval."""
        return 2 * self.stationary < self.tested


def remarks_on_trends(summed: Sequence[Group]) -> list[str]:
    """A sentence if most runs of some groups were not stationary."""
    moving = sum(group.moves for group in summed)
    if not moving:
        return []
    return [
        f"most runs of {moving} of {len(summed)} points were not stationary, so their means "
        "hang on when they are taken: make duration longer, or analysis.from later"
    ]


def are_copies(group: Group) -> bool:
    """Whether all runs of a group have the same values, so that an interval means nothing.

    With constant delays on the exact clock of the virtual engine, runs with different seeds can be
    equal packet by packet.
    """
    bounds = [(each.low, each.high) for each in group.cells.values() if each.value is not None]
    return bool(bounds) and all(
        low is not None and high is not None and math.isclose(low, high, rel_tol=1e-12)
        for low, high in bounds
    )


def without_value(summed: Sequence[Group]) -> list[str]:
    """A sentence for each value that only some runs of a group have."""
    missing: Counter[str] = Counter()
    for group in summed:
        for name, interval in group.cells.items():
            if interval.n:
                missing[name] += group.runs - interval.n
    return [
        f"{name}: {count} of the runs have no value and are left out"
        for name, count in missing.items()
        if count
    ]


def where(frame: pl.DataFrame, conditions: Sequence[str]) -> pl.DataFrame:
    """The rows that meet every condition `KEY=VALUE`.

    Raises ConfigError: a condition has another form, or names no column, or no value of it.
    """
    for condition in conditions:
        key, separator, text = condition.partition("=")
        if not separator:
            raise ConfigError(f"--where {condition}: allowed is KEY=VALUE")
        column = _column(frame, key, "--where")
        texts = [_text(value) for value in column]
        chosen = pl.Series([of_row == text for of_row in texts], dtype=pl.Boolean)
        if not chosen.any():
            allowed = ", ".join(sorted(set(texts))[:20])
            raise ConfigError(f"--where {condition}: no run has that; allowed is {allowed}")
        frame = frame.filter(chosen)
    return frame


def agreeing(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("trusted")) if "trusted" in frame.columns else frame


def default_by(dataset: Dataset, over: Sequence[str] = ()) -> list[str]:
    """The swept keys with more than one value, without those to pool over."""
    return [
        key
        for key in dataset.keys
        if key not in (*_NEVER_BY, *over)
        and dataset.runs.height
        and dataset.runs[key].n_unique() > 1
    ]


def pooled(
    frame: pl.DataFrame, keys: Sequence[str], by: Sequence[str], over: Sequence[str]
) -> dict[str, list[str]]:
    """The swept keys that differ within a group, with their values: what a mean pools.

    Raises ConfigError: another key differs within a group, or one of `over` is not swept.
    """
    for key in over:
        if key not in keys or key in by:
            allowed = ", ".join(name for name in keys if name not in by) or "none"
            raise ConfigError(f"--over {key}: allowed are swept keys that --by lacks: {allowed}")
    mixed: dict[str, list[str]] = {}
    parts = grouped(frame, by)
    for key in keys:
        if key in by or key in _NEVER_BY:
            continue
        if any(rows[key].n_unique() > 1 for _, rows in parts):
            mixed[key] = [_text(value) for value in frame[key].unique(maintain_order=True)]
    for key, values in mixed.items():
        if key not in over:
            listed = ", ".join(values[:_MOST_VALUES_NAMED])
            more = ", ..." if len(values) > _MOST_VALUES_NAMED else ""
            raise ConfigError(
                f"--by {', '.join(by) or 'nothing'}: a group would pool runs with different {key} "
                f"({listed}{more}); allowed are --by {key} too, --where {key}={values[0]}, or "
                f"--over {key}"
            )
    return mixed


def default_values(frame: pl.DataFrame) -> list[str]:
    """The outcast ratio, Jain's fairness index, the total goodput and each class's mean goodput.

    Where `analysis.compare` names groups, their ratio in place of the outcast ratio; where flows
    are grouped otherwise than by hop count, each group's mean goodput in place of each class's.

    For workloads, programs and probes: the values that outcast/quantities.py marks with `sweep`.
    The losses elsewhere than at the bottleneck, if any run has more of them than at it.
    """
    of_parts = [name for name in frame.columns if _is_usual(name) and frame[name].count()]
    ratios = [name for name in frame.columns if is_compared(name)]
    of_groups = _of_groups(frame)
    if of_groups:
        of_parts = [*of_groups, *(name for name in of_parts if not name.startswith("classes."))]
    # A sweep of generated traffic alone has no flows of `flows`, so these values are 0 or missing.
    has_flows = any(name.startswith("classes.") for name in frame.columns)
    # If the groups shown are not classes, the outcast ratio compares none of them.
    ratio = ratios or ([] if of_groups else ["outcast_ratio"])
    of_run = [quantity.key for quantity in quantities.of("run", "sweep")]
    usual = [*((*ratio, *of_run[1:]) if has_flows or not of_parts else ()), *of_parts]
    here, there = "losses.bottleneck", "losses.elsewhere"
    if {here, there} <= {*frame.columns} and (frame[there] > frame[here]).any():
        usual.append(there)
    present = [name for name in usual if name in frame.columns]
    # Flows of a single class have no ratio.
    return [name for name in present if name != "outcast_ratio" or frame[name].count()]


def _is_usual(name: str) -> bool:
    """Whether a column of a part of a run, as a class or a workload, is shown by default."""
    quantity = None if name.startswith("groups.") else quantities.of_column(name)
    return quantity is not None and quantity.level != "run" and "sweep" in quantity.shown


def _of_groups(frame: pl.DataFrame) -> list[str]:
    """The columns of the groups' mean goodput, if all runs show groups other than hop classes."""
    kinds = frame["group_by"].unique().to_list() if "group_by" in frame.columns else []
    if len(kinds) != 1 or kinds[0] in (None, "hops"):
        return []
    begin, end = f"groups.{kinds[0]}.", ".mean_goodput_bps"
    return [name for name in frame.columns if name.startswith(begin) and name.endswith(end)]


def remarks_on_intervals(frame: pl.DataFrame) -> list[str]:
    """A sentence on the interval of the runs' numbers, and one on trends in it."""
    lines = []
    if "interval" in frame.columns:
        parts = frame.filter(pl.col("interval").is_in(["asked", "all active"]))
        spans = parts.select("start_s", "end_s").unique().sort(pl.all()).rows()
        if spans:
            named = some_of([f"{start:g} to {end:g} s" for start, end in spans], 3)
            lines.append(
                f"numbers are of {named} of each run; those of losses, programs and workloads are "
                "of all of it"
            )
    stationary, known = _stationary(frame)
    if known:
        lines.append(f"stationary: {stationary} of {known} known runs (docs/steady-state.md)")
    return lines


def summarize(
    frame: pl.DataFrame, by: Sequence[str], values: Sequence[str], kind: Kind
) -> list[Group]:
    """The averages of every group, the groups in the order of their first run.

    Raises ConfigError if a column is missing or holds no numbers, or if a geometric mean is
    requested and a value is not above zero.
    """
    groups = []
    for at, rows in grouped(frame, by):
        samples = {name: numbers(rows, name, kind) for name in values}
        cells = {
            name: statistics.central(sample, kind, _limits(name, sample))
            for name, sample in samples.items()
        }
        groups.append(Group(at, rows.height, cells, *_stationary(rows)))
    return groups


def _stationary(*parts: pl.DataFrame) -> tuple[int, int]:
    """The number of stationary runs, and of runs for which this is known."""
    known = [rows["stationary"].drop_nulls() for rows in parts if "stationary" in rows.columns]
    return sum(int(part.sum()) for part in known), sum(part.len() for part in known)


def compare(
    ours: pl.DataFrame,
    theirs: pl.DataFrame,
    by: Sequence[str],
    values: Sequence[str],
    kind: Kind,
) -> list[Group]:
    """The difference of `ours` from `theirs`, for every group that both have.

    A group's `runs` is the smaller number of runs. Keys 2 and 2.0 mean the same group.

    Raises ConfigError: as `summarize` does; and if both have no group.
    """
    others = {tuple(at.items()): rows for at, rows in grouped(theirs, by)}
    groups = []
    for at, rows in grouped(ours, by):
        other = others.get(tuple(at.items()))
        if other is None:
            continue
        cells = {
            name: statistics.difference(numbers(rows, name, kind), numbers(other, name, kind), kind)
            for name in values
        }
        runs = min(rows.height, other.height)
        groups.append(Group(at, runs, cells, *_stationary(rows, other)))
    if not groups:
        raise ConfigError(
            f"no group by {', '.join(by) or 'nothing'} is in both of what is compared"
        )
    return groups


def sides(
    frame: pl.DataFrame, keys: Sequence[str], a: str, b: str
) -> tuple[str, pl.DataFrame, pl.DataFrame]:
    """The swept key that has the values A and B, and the runs with each; `KEY=VALUE` names it.

    Raises ConfigError: no key has both values, or several have.
    """
    found: list[tuple[str, pl.DataFrame, pl.DataFrame]] = []
    for key in keys:
        texts = frame[key].cast(pl.String)
        of_a, of_b = (frame.filter(texts == text.removeprefix(f"{key}=")) for text in (a, b))
        if of_a.height and of_b.height:
            found.append((key, of_a, of_b))
    if len(found) != 1:
        has = "no swept key has" if not found else "several swept keys have"
        known = "; ".join(f"{key} {', '.join(_values(frame[key]))}" for key in keys)
        raise ConfigError(
            f"--difference: {has} both values {a!r} and {b!r}; swept are {known}; allowed is "
            "KEY=VALUE, too"
        )
    return found[0]


def _values(column: pl.Series) -> list[str]:
    return [str(value) for value in column.unique(maintain_order=True).to_list()[:_MOST_VALUES]]


def numbers(frame: pl.DataFrame, name: str, kind: Kind = "mean") -> list[float]:
    """A column's values without missing ones and NaN. Raises ConfigError as `summarize` does."""
    column = _column(frame, name, "--value")
    if not column.dtype.is_numeric() and column.dtype != pl.Boolean:
        raise ConfigError(f"--value {name}: holds no numbers")
    values: list[float] = column.cast(pl.Float64).drop_nulls().drop_nans().to_list()
    if kind == "geometric" and any(value <= 0 for value in values):
        raise ConfigError(f"--value {name}: a geometric mean needs values above zero")
    return values


def _limits(name: str, sample: Sequence[float]) -> statistics.Limits:
    """The values that a column can have: rates, times and counts are not negative.

    Correlations and clocks' offsets can be, which is seen from their values.
    """
    if min(sample, default=0) < 0:
        return statistics.UNLIMITED
    return (0.0, 1.0 if name.rpartition(".")[2] in SHARES else math.inf)


def grouped(frame: pl.DataFrame, by: Sequence[str]) -> list[tuple[dict[str, Any], pl.DataFrame]]:
    """Each group's values at the keys, and its rows. Without keys, all rows are one group.

    Raises ConfigError if a key is not a column.
    """
    keys = list(dict.fromkeys(by))
    for key in keys:
        _column(frame, key, "--by")
    if not keys:
        return [({}, frame)] if frame.height else []
    parts = frame.group_by(keys, maintain_order=True)
    return [(dict(zip(keys, at, strict=True)), rows) for at, rows in parts]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) or value is None else str(value)


def _column(frame: pl.DataFrame, key: str, option: str) -> pl.Series:
    other = re.sub(r"\bmedian$", "p50", re.sub(r"^groups\.hops\.(\d+)-hop", r"classes.\1", key))
    if found := [name for name in (key, other) if name in frame.columns]:
        return frame[found[0]]
    raise ConfigError(f"{option} {key}: there is no such column; {_columns_like(frame, other)}")


def _columns_like(frame: pl.DataFrame, key: str) -> str:
    """Suggests the columns most like `key`: the nearest column, or several."""
    every = f"--columns lists all {len(frame.columns)}"
    words = {*re.split(r"[._]", key)}
    shared = {name: len(words.intersection(re.split(r"[._]", name))) for name in frame.columns}
    most = max(shared.values())
    near = [name for name, count in shared.items() if count == most]
    if meant := did_you_mean(key, near):
        return f"{every}{meant}"
    return f"{'similar' if most else 'allowed'} are {some_of(near, _MOST_COLUMNS_NAMED)}; {every}"
