"""How a right answer is computed: a measure of a run, or a query in polars' SQL over its tables.

An exercise may come from anyone, so a query reads nothing but these tables: polars' table functions
`read_csv`, `read_parquet` and so on are refused, and so is every statement but SELECT.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any

import polars as pl
from pydantic import Field, field_validator

from outcast.analysis import measures
from outcast.errors import ConfigError, DeadlineError, InputError
from outcast.records import Run
from outcast.uses.classroom.documents import Part, RunMeasure

QUERY_DEADLINE_S = 60.0
"""A query over a million packets takes less than a second."""

_BEGINNING = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)
_READERS = re.compile(r"\b(?:read|scan)_\w+", re.IGNORECASE)
"""polars-sql's table functions, which open files (`PolarsTableFunctions` in table_functions.rs).

The names of those that a later polars may add begin in the same way. They are refused wherever they
stand, also in a literal, because only the parser of polars knows where a literal ends.
"""
_RECURSIVE = re.compile(r"\brecursive\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_SCAN = re.compile(r"\bSCAN\b")
"""How polars' plans name the reading of a file."""


def require_safe(sql: str) -> None:
    """Raises ValueError if the text is anything but one SELECT over tables."""
    if not _BEGINNING.match(sql):
        raise ValueError("sql: allowed is one SELECT")
    if ";" in sql:
        raise ValueError("sql: allowed is one SELECT, without a semicolon")
    if _RECURSIVE.search(sql):
        raise ValueError("sql: RECURSIVE is refused, because polars does not end with it")
    reader = _READERS.search(sql)
    if reader is not None:
        raise ValueError(
            f"sql: {reader[0]} is refused, because a query reads only the run's tables"
        )


def rows(sql: str, run: Run) -> list[tuple[Any, ...]]:
    """The rows that a query gives for an analysed run.

    Its tables are those of the run, and the small ones of `tables_of_summary`.

    Raises:
        InputError: the run lacks a table, or the query does not fit the tables.
        DeadlineError: the query takes too long.
    """
    require_safe(sql)
    named = set(_WORD.findall(sql))
    frames: dict[str, pl.DataFrame] = {
        name: frame for name, frame in tables_of_summary(run).items() if name in named
    }
    # Two columns of names can only be joined as texts.
    names = pl.selectors.by_dtype(pl.Enum, pl.Categorical)
    frames |= {
        name: run.table(name).with_columns(names.cast(pl.String))
        for name in run.tables
        if name in named
    }
    try:
        with pl.SQLContext(frames, eager=False) as context:
            plan = context.execute(sql)
            # A second net: a registered table is `DF` in the plan, and a file is a SCAN.
            if _SCAN.search(_without_literals(plan.explain(optimized=False))):
                raise ConfigError("sql: reads a file; allowed are the run's tables")
            frame = _collected(plan)
    # polars raises a panic for a part of what it does not know. A panic is no Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        what = (str(error).strip() or "polars failed").splitlines()[0]
        tables = ", ".join(sorted({*run.tables, *TABLES_OF_SUMMARY}))
        raise InputError(f"sql: {what}; its tables: {tables}") from None
    # polars' SQL takes 100.0 as a decimal, and what is computed from it is one too.
    return frame.with_columns(pl.selectors.decimal().cast(pl.Float64)).rows()


def _collected(plan: pl.LazyFrame) -> pl.DataFrame:
    """Answers a query. Raises DeadlineError if it takes longer than QUERY_DEADLINE_S."""
    answers: list[pl.DataFrame] = []
    raised: list[BaseException] = []

    def collect() -> None:
        try:
            answers.append(plan.collect())
        except BaseException as error:  # a panic of polars is no Exception
            raised.append(error)

    # polars cannot be interrupted. A query that is too long goes on until the process ends.
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(QUERY_DEADLINE_S)
    if raised:
        raise raised[0]
    if not answers:
        raise DeadlineError("the rows of a query", QUERY_DEADLINE_S, "sql: join fewer rows")
    return answers[0]


def _without_literals(text: str) -> str:
    return re.sub(r"\"[^\"]*\"", "", text)


TABLES_OF_SUMMARY: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    "run": {
        "t_start": pl.Int64,
        "duration_s": pl.Float64,
        "frame_us": pl.Float64,
        "outcast_ratio": pl.Float64,
        "jain_index": pl.Float64,
        "total_goodput_bps": pl.Float64,
    },
    "inputs": {
        "port": pl.String,
        "hops": pl.Int64,
        "packets": pl.Int64,
        "dropped": pl.Int64,
        "longest_chain": pl.Int64,
        "blackouts": pl.Int64,
    },
}
"""Small tables with numbers of summary.json, and their columns; docs/exercises.md explains them."""


def tables_of_summary(run: Run) -> dict[str, pl.DataFrame]:
    """The run's summary as tables, for queries.

    `run` has one row; its `t_start` is the traffic's start in ns, as the times of the tables are.
    `inputs` has a row for each input port.
    """
    start, frame_us = run.manifest.traffic.t_start_ns, run.frame_ns / 1e3
    rows = {
        "run": [{**dict(run.summary), "t_start": start, "frame_us": frame_us}],
        "inputs": [
            {**dict(part), "port": name, "hops": part.hops[0] if len(part.hops) == 1 else None}
            for name, part in run.summary.drops.items()
        ],
    }
    return {
        name: pl.DataFrame(
            [{key: row[key] for key in columns} for row in rows[name]], schema=dict(columns)
        )
        for name, columns in TABLES_OF_SUMMARY.items()
    }


class Expression(Part):
    """A computation of right answers, for the key `answer` of a question."""

    sql: str | None = Field(
        default=None,
        max_length=4000,
        description="one SELECT in polars' SQL over the run's tables",
    )
    measure: RunMeasure | None = Field(default=None, description="a measure of the run")
    times: float = Field(
        default=1.0, description="the measure is multiplied by this: 1e-6 for Mbps"
    )

    @field_validator("sql")
    @classmethod
    def _is_safe(cls, sql: str | None) -> str | None:
        if sql is not None:
            require_safe(sql)
        return sql

    def require_sound(self) -> None:
        """Raises ValueError if it has neither a query nor a measure, or both."""
        if (self.sql is None) == (self.measure is None):
            raise ValueError("allowed is {sql: ...} or {measure: ...}")
        if self.sql is not None and self.times != 1.0:
            raise ValueError("times: only together with measure")

    def rows(self, run: Run) -> list[tuple[Any, ...]]:
        """Computes the rows for an analysed run; a measure gives one row with one number.

        Raises InputError: the run lacks a table, or the query does not fit the tables.
        """
        if self.sql is not None:
            return rows(self.sql, run)
        assert self.measure is not None
        with run.reading():
            return [(measures.take(run, self.measure) * self.times,)]
