"""Where a flow loses packets: each step between two captured points of its path.

A run with `capture: {ports: all}` has every port of the path. So several queues in a row are told
apart, and a loss belongs to one of them, or to a link between. Of fewer captures a step spans more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import polars as pl

from controllers import routes
from outcast.analysis.capture.headers import FlowKey
from outcast.analysis.capture.pcap import PortCapture, read_capture
from outcast.analysis.export.captured import captures_of
from outcast.errors import ConfigError, InputError
from outcast.records.flows import FlowRecord
from outcast.records.run import Run

_Points = list[tuple[str, str]]
"""Captured ports on a path, each with the direction of its capture."""
_Files = dict[tuple[str, str], Path]
"""The file of each captured port and direction."""
SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("flow", "step"), pl.Int64),
    **dict.fromkeys(("begins", "ends", "where"), pl.String),
    **dict.fromkeys(("packets", "lost", "wait_p50_ns", "wait_p99_ns"), pl.Int64),
}


def loss_table(run: Run, flow: int | None = None) -> pl.DataFrame:
    """One row per flow and step of its path, in the order of both.

    `begins` and `ends` are a port and a direction, `where` is in words. Of the `packets` at its
    begin some were `lost` at its end; waits are the time between, null where no packet came
    through. Retransmissions are packets too.

    Raises:
        ConfigError: there is no such flow, or no two captured points on a path.
        InputError: a capture is missing or broken, or the run tells no paths.
    """
    manifest = run.manifest
    if run.captured is not None:
        raise ConfigError("--losses: joined captures tell no paths; allowed are runs of outcast")
    if manifest.effective.get("routing.kind") in routes.PER_PACKET:
        raise ConfigError(
            "--losses: routing.core: packet gives no flow a path of its own; allowed are other runs"
        )
    records = [record for record in manifest.flows if flow in (None, record.flow)]
    if not records:
        last = max((record.flow for record in manifest.flows), default=None)
        there = "the run has none" if last is None else f"there are 0 to {last}"
        raise ConfigError(f"--flow {flow}: no such flow; {there}")
    ports = {(link.node, link.neighbour): link.port for link in run.counters.links}
    files: _Files = {(each.port, each.direction): each.path for each in captures_of(run)}
    points = {record.flow: _points(record, ports, files) for record in records}
    if all(len(of_flow) < 2 for of_flow in points.values()):
        raise ConfigError(
            "--losses: no path has two captured points; `capture: {ports: all}` in the "
            "configuration captures every port"
        )
    seen = _seen(run, records, points, files)
    rows = [
        (record.flow, number, *step)
        for record in records
        for number, step in enumerate(_steps(record.flow, points[record.flow], seen))
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _points(record: FlowRecord, ports: dict[tuple[str, str], str], files: _Files) -> _Points:
    """The captured points of a flow's path, in its order."""
    every = []
    for before, node, after in zip(record.path, record.path[1:], record.path[2:], strict=False):
        every += [(ports.get((node, before), ""), "in"), (ports.get((node, after), ""), "out")]
    return [point for point in every if point in files]


def _seen(
    run: Run, records: Sequence[FlowRecord], points: dict[int, _Points], files: _Files
) -> dict[tuple[int, str, str], pl.DataFrame]:
    """The packets of each flow at each of its points. Every capture is read once."""
    flows: dict[tuple[str, str], list[FlowRecord]] = defaultdict(list)
    for record in records:
        for point in points[record.flow]:
            flows[point].append(record)
    found = {}
    for (port, way), of_point in flows.items():
        path = files[port, way]
        if not path.exists():
            raise InputError(f"{path}: is missing; a sweep or an archive may have left it out")
        addresses = frozenset(record.dst_ip for record in of_point)
        capture = read_capture(port, path, addresses, foreign=False)
        rows = {key: number for number, key in enumerate(capture.flows)}
        for record in of_point:
            numbers = [rows[key] for key in _keys(record) if key in rows]
            found[record.flow, port, way] = _packets(capture, numbers)
    return found


def _keys(record: FlowRecord) -> Iterator[FlowKey]:
    protocol = 6 if record.protocol == "tcp" else 17
    for ends in record.connections:
        yield FlowKey(*ends, protocol)


def _packets(capture: PortCapture, flows: Sequence[int]) -> pl.DataFrame:
    columns = capture.columns
    names = ("stamp_ns", "flow", "identity")
    frame = pl.DataFrame({name: getattr(columns, name) for name in names})
    kept = frame.filter(pl.col("flow").is_in(list(flows)))
    return kept.select("stamp_ns", "identity").sort("stamp_ns")


def _steps(
    flow: int, points: _Points, seen: dict[tuple[int, str, str], pl.DataFrame]
) -> Iterator[tuple[str | int | None, ...]]:
    for begin, end in pairwise(points):
        came, departures = seen[flow, *begin], seen[flow, *end]
        waits = _waits(came, departures)
        quantiles = [waits.quantile(share, "lower") for share in (0.5, 0.99)]
        yield (
            *(f"{port} {way}" for port, way in (begin, end)),
            _where(begin, end),
            came.height,
            came.height - departures.height,
            *(None if value is None else int(value) for value in quantiles),
        )


def _where(begin: tuple[str, str], end: tuple[str, str]) -> str:
    (first, way), (second, other) = begin, end
    if (way, other) == ("in", "out") and first.rpartition("-")[0] == second.rpartition("-")[0]:
        return f"queue of {second}"
    if (way, other) == ("out", "in"):
        return f"link from {first}"
    return f"between {first} and {second}"


def _waits(came: pl.DataFrame, departures: pl.DataFrame) -> pl.Series:
    """How long each packet that left was on the way: since the last like it that came before."""
    joined = departures.join_asof(
        came.with_columns(came_ns=pl.col("stamp_ns")),
        on="stamp_ns",
        by="identity",
        check_sortedness=False,
    )
    return (joined["stamp_ns"] - joined["came_ns"]).drop_nulls()
