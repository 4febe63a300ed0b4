"""All results of a sweep in two tables: one row per run, and one row per flow of each run.

`runs.parquet` has `run`, `repetition`, `seed`, a column for each swept key (where whole queues are
swept, also `queue.kind` and `queue.limit`), and every single value of summary.json.
Dots separate the levels in the column's name (`classes.2.mean_goodput_bps`).
The groups of `analysis.compare` have a column that names them (`bbr over cubic`).
`trusted` is `capture.trusted`. `run_flows.parquet` begins with the same columns up to the swept
keys; the columns of flows.parquet follow.

`wall_s` is left out because it only shows how fast the machine was, and the manifests have it. So
the same sweep gives the same tables, however often it was interrupted and wherever it ran.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from outcast.experiment import Experiment, Sweep
from outcast.records.run import Run
from outcast.records.run_directory import Manifest
from outcast.records.summary import Summary
from outcast.records.tables import read_table, write_table
from outcast.sweep.points import Point, as_text, points, swept_keys
from outcast.sweep.pool import Failure
from outcast.sweep.store import SweepDirectory

_LEFT_OUT = ("format", "name", "wall_s", "flow_chains", "chains", "reasons", "losses.ports")
"""The file's format, the experiment's name, the machine's speed, histograms and every port's
losses, because those would be a column for each length or port."""

_GROUPINGS = ("name", "congestion_control", "port")
"""The groupings that have columns besides the one shown. Hop counts have those of `classes`, and
senders can be hundreds."""
_GOODPUT = "mean_goodput_bps"
_OVER = " over "


@dataclass(frozen=True)
class Dataset:
    """A sweep's results; rows are in the order of the configuration's runs."""

    keys: tuple[str, ...]
    planned: int
    runs: pl.DataFrame
    flows: pl.DataFrame


def load(path: Path) -> Dataset:
    """A sweep's dataset. It is built again if a run was made or analysed since it was written.

    Raises InputError: the folder holds no sweep, or a result cannot be read.
    """
    directory = SweepDirectory(path)
    file = path / "runs.parquet"
    written = file.stat().st_mtime_ns if file.exists() else 0
    runs = [directory.run(point.name) for point in planned_points(directory)]
    finished = [run for run in runs if run.manifest.exists()]
    # A table with a time in the future is ignored: the clock was set back since.
    newest = max((run.summary.stat().st_mtime_ns for run in finished), default=written + 1)
    if newest <= written <= time.time_ns():
        stored = read(directory)
        if stored.runs["run"].to_list() == [run.path.name for run in finished]:
            return stored
    return build(directory)


def read(directory: SweepDirectory) -> Dataset:
    """The dataset as its two files have it. Raises InputError if one is missing or broken."""
    planned = planned_points(directory)
    runs, flows = (read_table(directory.path / f"{name}.parquet") for name in ("runs", "run_flows"))
    return Dataset(tuple(swept_keys(planned)), len(planned), runs, flows)


def write(directory: SweepDirectory) -> Dataset:
    """Builds the dataset and stores both tables, each whole or not at all."""
    dataset = build(directory)
    write_table(dataset.flows, directory.path / "run_flows.parquet")
    write_table(dataset.runs, directory.path / "runs.parquet")
    return dataset


def build(directory: SweepDirectory, names: Collection[str] | None = None) -> Dataset:
    """Reads all finished runs, or those of these names. Raises InputError if one cannot be read.

    The columns are those of the runs that are read.
    """
    planned = planned_points(directory)
    keys = swept_keys(planned)
    whole = directory.read_experiment()
    own: dict[str, type[pl.DataType]] = dict.fromkeys(
        _OF_QUEUE if "queue" in keys else (), pl.String
    )
    types = own | {key: _type_of([point.settings.get(key) for point in planned]) for key in keys}
    rows: list[dict[str, Any]] = []
    flows: list[pl.DataFrame] = []
    for point in planned:
        run = Run(directory.run(point.name))
        left_out = names is not None and point.name not in names
        if left_out or not run.directory.manifest.exists():
            continue
        head = _head(point, types)
        if own:
            head |= _of_queue(point.settings.get("queue"), whole)
        rows.append({**head, **dict(_flattened(run.summary))})
        flows.append(_flow_rows(run.table("flows"), head, types))
    return Dataset(
        keys=tuple(keys),
        planned=len(planned),
        runs=_frame(rows, types),
        flows=pl.concat(flows, how="diagonal_relaxed") if flows else pl.DataFrame(),
    )


def planned_points(directory: SweepDirectory) -> list[Point]:
    """Every run of the sweep, in the order of the configuration."""
    whole = directory.read_experiment()
    sweep = (whole.sweep or Sweep()).model_copy(update={"order": "given"})
    return points(sweep, whole.repetitions, whole.seed)


def _type_of(values: Sequence[Any]) -> type[pl.DataType]:
    """The column type for values: numbers and booleans stay so; all others become text."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, bool) for value in present):
        return pl.Boolean
    if any(isinstance(value, bool) for value in present):
        return pl.String
    if present and all(isinstance(value, int) for value in present):
        return pl.Int64
    if present and all(isinstance(value, (int, float)) for value in present):
        return pl.Float64
    return pl.String


_OF_QUEUE = ("queue.kind", "queue.limit")
"""The columns that a sweep of whole queues has besides its keys."""


def _of_queue(swept: Any, whole: Experiment) -> dict[str, Any]:
    """The kind and the limit of a swept queue, or of the one that is not swept at a point."""
    queue = swept if isinstance(swept, Mapping) else whole.queue.model_dump(mode="json")
    return {key: queue.get(key.removeprefix("queue.")) for key in _OF_QUEUE}


_OWN = {"run": pl.String, "repetition": pl.Int64, "seed": pl.Int64}
"""The first columns, which do not depend on what is swept."""


def _head(point: Point, types: Mapping[str, type[pl.DataType]]) -> dict[str, Any]:
    head: dict[str, Any] = {
        "run": point.name,
        "repetition": point.repetition,
        "seed": point.seed,
    }
    for key, kind in types.items():
        value = point.settings.get(key)
        is_text = kind is pl.String and value is not None
        head.setdefault(key, as_text(value) if is_text else value)
    return head


def _flattened(summary: Summary) -> Iterator[tuple[str, Any]]:
    yield "trusted", summary.capture.trusted
    tree = summary.model_dump(mode="json")
    # A label can be any word, so groups do not pass the words that are left out elsewhere.
    groups = tree.pop("groups")
    in_windows = {name: window.pop("groups") for name, window in tree["windows"].items()}
    for key, value in tree.items():
        yield from _leaves(key, value)
    for kind in dict.fromkeys([*_GROUPINGS, summary.group_by]):
        for label, part in groups.get(kind, {}).items() if kind != "hops" else ():
            for key, value in part.items():
                yield from _leaves(f"groups.{kind}.{label}.{key}", value)
    if summary.group_by != "hops":
        for name, of_window in in_windows.items():
            for label, part in of_window.get(summary.group_by, {}).items():
                column = f"windows.{name}.groups.{summary.group_by}.{label}.{_GOODPUT}"
                yield column, part[_GOODPUT]
    compare = summary.compare
    if compare is not None and compare.by != "hops":
        yield compared(compare.groups), compare.ratio


def compared(groups: tuple[str, str]) -> str:
    """The column of the ratio of two groups: `bbr over cubic`."""
    return _OVER.join(groups)


def is_compared(column: str) -> bool:
    return _OVER in column


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if key in _LEFT_OUT or key.rpartition(".")[2] in _LEFT_OUT or isinstance(value, list):
        return
    if isinstance(value, Mapping):
        for inner_key, inner_value in value.items():
            yield from _leaves(f"{key}.{inner_key}", inner_value)
    else:
        yield key, value


def _frame(
    rows: Sequence[Mapping[str, Any]], types: Mapping[str, type[pl.DataType]]
) -> pl.DataFrame:
    frame = pl.DataFrame(
        rows, schema_overrides={**types, **_OWN}, infer_schema_length=None, strict=False
    )
    if "losses.total" in frame.columns:
        # A run that counted its losses lost nothing by a cause that it does not name.
        counted = pl.col("losses.total").is_not_null()
        causes = pl.col("^losses\\.causes\\..*$")
        frame = frame.with_columns(pl.when(counted).then(causes.fill_null(0)).otherwise(causes))
    # A column without any value is numeric.
    return frame.with_columns(pl.col(pl.Null).cast(pl.Float64))


def _flow_rows(
    frame: pl.DataFrame, head: Mapping[str, Any], types: Mapping[str, type[pl.DataType]]
) -> pl.DataFrame:
    # The members of an enumeration differ between runs, so the tables could not be joined.
    frame = frame.with_columns(pl.col(pl.Enum, pl.Categorical).cast(pl.String))
    own = [
        pl.lit(value, dtype=_OWN.get(key) or types[key]).alias(key) for key, value in head.items()
    ]
    return frame.select(*own, pl.all().exclude(*head))


def maker(manifest: Manifest) -> str:
    kernel = str(manifest.kernel.get("sha256", manifest.kernel.get("release", "unknown")))
    return f"outcast {manifest.outcast} with kernel {kernel[:20]}"


@dataclass(frozen=True)
class State:
    """The content of a sweep's folder at one time.

    Attributes:
        planned: every run, in the order of the configuration.
        failures: by run name, of runs without a result.
        disagreeing: by run name, why captures and counters contradict each other.
        left: names of the runs that have neither a result nor a failure.
        makers: how many runs were made by each version of outcast with its kernel.
    """

    experiment: Experiment
    planned: Sequence[Point]
    results: Dataset
    failures: Mapping[str, Failure]
    disagreeing: Mapping[str, str]
    left: Sequence[str]
    makers: Mapping[str, int]

    @property
    def finished(self) -> list[str]:
        return self.results.runs["run"].to_list() if self.results.runs.height else []


def read_state(directory: SweepDirectory) -> State:
    """Reads a sweep's folder.

    Raises InputError if the folder does not hold a sweep, or a result cannot be read.
    """
    planned = planned_points(directory)
    results = load(directory.path)
    finished = set(results.runs["run"]) if results.runs.height else set()
    failures = {name: why for name, why in directory.failures().items() if name not in finished}
    runs = {name: Run(directory.run(name)) for name in sorted(finished)}
    makers = Counter(maker(run.directory.read_manifest()) for run in runs.values())
    return State(
        experiment=directory.read_experiment(),
        planned=planned,
        results=results,
        failures=failures,
        disagreeing={n: "; ".join(run.reasons) for n, run in runs.items() if not run.trusted},
        left=[p.name for p in planned if p.name not in finished and p.name not in failures],
        makers=dict(sorted(makers.items())),
    )
