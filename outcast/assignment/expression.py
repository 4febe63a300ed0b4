"""How a right answer is computed from a run: a query over its tables, or a measure."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from outcast.assignment import queries
from outcast.assignment.documents import Part, RunMeasure
from outcast.records.run import Run
from outcast.reproduce import measures


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
            queries.require_safe(sql)
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
            return queries.rows(self.sql, run)
        assert self.measure is not None
        with run.reading():
            return [(measures.take(run, self.measure) * self.times,)]
