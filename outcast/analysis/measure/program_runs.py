"""Executions of programs: as a table, and how long they took."""

from __future__ import annotations

import numpy as np
import polars as pl

from outcast.analysis.measure.spreads import in_ms
from outcast.analysis.run_analysis import Analysis
from outcast.analysis.store import Columns, table_of
from outcast.records.flows import ExecutionRecord, ProgramRecord
from outcast.records.summary import ProgramSummary

_COLUMNS: Columns[tuple[ProgramRecord, ExecutionRecord]] = {
    "program": (pl.String, lambda row: row[0].name),
    "host": (pl.String, lambda row: row[0].host),
    "number": (pl.Int32, lambda row: row[1].number),
    "server": (pl.Boolean, lambda row: row[0].server),
    "t_start": (pl.Int64, lambda row: row[1].t_start_ns),
    "t_end": (pl.Int64, lambda row: row[1].t_end_ns),
    "duration_ns": (pl.Int64, lambda row: row[1].t_end_ns - row[1].t_start_ns),
    "status": (pl.Int32, lambda row: row[1].status),
    "ended_by": (pl.String, lambda row: row[1].ended_by),
    "output_bytes": (pl.Int64, lambda row: row[1].output_bytes),
}


def execution_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per execution of a program; None if the run had no programs.

    A server's `t_start` is before the traffic's start. `status` is negative for the signal that
    ended it. `ended_by` is `itself`, `run` or `limit`.
    """
    programs = analysis.manifest.programs
    rows = [(program, execution) for program in programs for execution in program.executions]
    since_start = pl.col("t_start", "t_end") - analysis.manifest.traffic.t_start_ns
    return table_of(_COLUMNS, rows).with_columns(since_start) if programs else None


def program_summary(analysis: Analysis) -> dict[str, ProgramSummary] | None:
    """The summary of each program by its name; None if the run had none."""
    programs = analysis.manifest.programs
    return {program.name: _summary(program) for program in programs} if programs else None


def _summary(program: ProgramRecord) -> ProgramSummary:
    taken_ns = np.array(
        [
            execution.t_end_ns - execution.t_start_ns
            for execution in program.executions
            if execution.ended_by == "itself" and execution.status == 0
        ],
        np.int64,
    )
    return ProgramSummary(
        host=program.host,
        server=program.server,
        asked=program.repeat,
        executions=len(program.executions),
        failures=program.failures,
        time_ms=None if program.server else in_ms(taken_ns),
    )
