"""From the captures of a switch's ports to what its queue did and who was starved.

Nothing here imports Mininet, so it works on any machine, from files alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcast import members
from outcast.errors import UntrustedError

if TYPE_CHECKING:
    from outcast.analysis.capture.pcap import read_capture
    from outcast.analysis.machine_code import I64, U8, U64, Array, Scalar, compiled
    from outcast.analysis.run_analysis import Analysis
    from outcast.analysis.run_measures import (
        drop_measures,
        intervals,
        kinds,
        measures,
        sender_measures,
    )
    from outcast.analysis.run_measures.kinds import Measure
    from outcast.analysis.selection import Span
    from outcast.analysis.statistics import Interval, central, probability
    from outcast.analysis.store import nullable
    from outcast.records.run_directory import RunDirectory
    from outcast.records.summary import Summary
else:
    __getattr__ = members(
        __name__,
        {
            "outcast.analysis.capture.pcap": "read_capture",
            "outcast.analysis.machine_code": "I64 U8 U64 Array Scalar compiled",
            "outcast.analysis.run_measures": (
                "drop_measures intervals kinds measures sender_measures"
            ),
            "outcast.analysis.run_measures.kinds": "Measure",
            "outcast.analysis.selection": "Span",
            "outcast.analysis.statistics": "Interval central probability",
            "outcast.analysis.store": "nullable",
        },
    )


def compute(directory: RunDirectory) -> Analysis:
    """Joins a run's captures and computes everything from them. Writes nothing.

    Raises InputError if the directory, its configuration or a capture is missing or broken.
    """
    from outcast import experiment
    from outcast.analysis import run_analysis

    directory.read_manifest()
    return run_analysis.compute(directory, experiment.load_resolved(directory.config).analysis)


def write(directory: RunDirectory, analysis: Analysis) -> Summary:
    """Stores the tables and summary.json of a folder that has its manifest, with its `wall_s`."""
    from outcast import uses
    from outcast.analysis.run_summary import summarize
    from outcast.analysis.run_tables import write_tables
    from outcast.records.captures import read_manifest
    from outcast.records.run_directory import write_record

    # The manifest is read again because `wall_s` may have grown since `compute`.
    manifest = read_manifest(directory)
    summary = summarize(analysis, manifest.wall_s)
    write_tables(directory, analysis)
    if manifest.programs:
        # Their flows are known only now. Readers of the run find them with the others.
        flows = analysis.manifest.flows
        directory.write_manifest(manifest.model_copy(update={"flows": flows}))
    if directory.trace.is_dir():
        uses.find(uses.TRACE_TABLES)(directory)
    write_record(directory.summary, summary)
    return summary


def get_ready() -> None:
    """Imports what `compute` and `write` need, which takes longer than a small run's analysis."""
    from outcast.analysis import run_analysis, run_summary, run_tables


def analyze(directory: RunDirectory) -> Summary:
    """`compute`, then `write`. The same directory gives the same summary, byte for byte."""
    return write(directory, compute(directory))


def require_agreement(summary: Summary) -> None:
    """Raises UntrustedError with the reasons if captures and counters disagree."""
    if not summary.capture.trusted:
        raise UntrustedError(
            f"captures and counters do not agree: {'; '.join(summary.capture.reasons)}"
        )
