"""Executions of programs: as a table, and how long they took."""

from __future__ import annotations

import numpy as np
import polars as pl

from outcast.analysis.measure.spreads import in_ms
from outcast.analysis.run_analysis import Analysis
from outcast.records.flows import ProgramRecord
from outcast.records.summary import ProgramSummary

_SCHEMA = {
    "program": pl.String,
    "host": pl.String,
    "number": pl.Int32,
    "server": pl.Boolean,
    "t_start": pl.Int64,
    "t_end": pl.Int64,
    "duration_ns": pl.Int64,
    "status": pl.Int32,
    "ended_by": pl.String,
    "output_bytes": pl.Int64,
}


def execution_table(analysis: Analysis) -> pl.DataFrame | None:
    """One row per execution of a program; None if the run had no programs.

    A server's `t_start` is before the traffic's start. `status` is negative for the signal that
    ended it. `ended_by` is `itself`, `run` or `limit`.
    """
    programs = analysis.manifest.programs
    if not programs:
        return None
    t_start_ns = analysis.manifest.traffic.t_start_ns
    return pl.DataFrame(
        [
            (
                *(program.name, program.host, execution.number, program.server),
                *(execution.t_start_ns - t_start_ns, execution.t_end_ns - t_start_ns),
                execution.t_end_ns - execution.t_start_ns,
                *(execution.status, execution.ended_by, execution.output_bytes),
            )
            for program in programs
            for execution in program.executions
        ],
        schema=_SCHEMA,
        orient="row",
    )


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
