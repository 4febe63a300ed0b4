"""Any captures of a switch's ports, or of the points of a path, joined."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from outcast.analysis.capture.headers import INBOUND, OUTBOUND, Columns
from outcast.analysis.capture.pcap import (
    grid_ns,
    interfaces_of,
    read_captures,
    remove_few,
    shared_files,
)
from outcast.analysis.capture.records import INTO, OUT_OF
from outcast.analysis.join import same_flows
from outcast.analysis.join.doubts import (
    MOST_SHARE,
    RefusedJoin,
    doubts,
    port_counts,
)
from outcast.analysis.join.join import JoinOptions, Verdict, join
from outcast.analysis.join.packets import sample
from outcast.analysis.machine_code import I64
from outcast.analysis.measure.blackout import port_chains
from outcast.analysis.measure.drop_causes import DropRange
from outcast.analysis.measure.estimates import Found, estimated, left_out
from outcast.analysis.measure.segments import (
    repairs,
    silence_remarks,
    silences,
    unrepaired,
)
from outcast.api import joining
from outcast.errors import ConfigError, InputError, UntrustedError, did_you_mean
from outcast.records.captures import ClockEstimate, JoinRequest

if TYPE_CHECKING:
    import polars as pl

    from outcast.analysis.capture.pcap import PortCapture
    from outcast.analysis.join.join import Joined
    from outcast.api.runs import Run


@dataclass(frozen=True, eq=False, repr=False)
class Join(Found):
    """Joined captures, as `join_captures` returns them.

    Attributes:
        joined: the packets, their verdicts and the counts, as arrays.
        queue: the content of each output's queue, as arrays.
        chains: chains of consecutive drops of one input port, as arrays.
        remarks: captures that were cut off, clocks that were corrected and the like, a line each.
        clocks: the offset and drift of each capture's clock; none if one clock stamped all.
        estimates: for each output, the rate and limit of its queue.
        request: the captures and options that were joined.
        drop_ranges: where captures lack packets, the least and the most drops.
    """

    request: JoinRequest
    drop_ranges: tuple[DropRange, ...]

    def __repr__(self) -> str:
        counts = self.joined.counts
        return (
            f"Join({counts.entered} packets in: {counts.forwarded} forwarded, "
            f"{counts.dropped} dropped)"
        )

    def save(self, directory: str | os.PathLike[str]) -> Run:
        """Writes tables, summary, figures and report into a folder that `open_run` opens.

        The folder names the captures with their SHA-256, and `analyze` reads them again.

        Args:
            directory: a new or empty folder. It appears whole, or not at all.

        Raises:
            ConfigError: the folder cannot be used.
            InputError: a capture is not there any more, or there is nothing to analyse.
        """
        from outcast.api import captures

        return captures.save(self, directory)

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return ["blackouts", "packets", "queue"]

    def table(self, name: str) -> pl.DataFrame:
        """A table by its name, with the columns of the same table of a run.

        `packets` has a row for each packet that came in, `queue` one for each change of the queue,
        `blackouts` one for each chain of drops. Raises InputError for another name.
        """
        return self._rows_of(name)[1](slice(None))

    def write(self, name: str, path: Path) -> None:
        """Writes a table, in blocks if it is large: CSV if the name ends in .csv, else Parquet.

        Raises InputError for another name, or if the file cannot be written.
        """
        # It imports polars, which a join whose tables nobody wants does without.
        from outcast.records.tables import BLOCK_ROWS, write_blocks, write_table

        height, rows_of = self._rows_of(name)
        if height > BLOCK_ROWS:
            write_blocks(path, height, rows_of)
        else:
            write_table(rows_of(slice(None)), path)

    def _rows_of(self, name: str) -> tuple[int, Callable[[slice], pl.DataFrame]]:
        """The number of a table's rows (0 if always few), and a function that returns some."""
        from outcast.analysis import store

        joined, queue = self.joined, self.queue
        if name == "packets":
            numbers = store.flow_numbers(joined)
            return len(joined.arrivals), partial(store.packet_table, joined, queue, numbers)
        if name == "queue":
            return queue.time_ns.size, partial(store.queue_table, joined, queue)
        if name == "blackouts":
            return 0, lambda rows: store.chain_table(joined, self.chains)
        near = did_you_mean(name, self.tables)
        raise InputError(f"table {name}: allowed are {', '.join(self.tables)}{near}")


def join_captures(
    inputs: Mapping[str, str | os.PathLike[str]] | None = None,
    outputs: Mapping[str, str | os.PathLike[str]] | None = None,
    *,
    ports: Mapping[str, str | os.PathLike[str]] | None = None,
    file: str | os.PathLike[str] | None = None,
    destinations: Collection[str] = (),
    routed: bool = False,
    one_clock: bool = False,
    max_sojourn: str = "1s",
    rate: str | None = None,
    limit: str | None = None,
) -> Join:
    """Matches the packets that entered a switch with those that left it.

    A capture is a pcap or pcapng file, which gzip or zstd may have compressed. It may hold both
    directions of its port: the ports where a packet is seen show where it came in and left. Clocks
    that differ or drift are corrected. If several ports have the same file, their names are those
    of its interfaces, and one clock stamped them all if there is no other file.

    Args:
        inputs: the capture of each input port by a name that you choose.
        outputs: likewise, the output ports.
        ports: likewise, ports that are inputs and outputs at once.
        file: one capture of several interfaces, of which each is a port; then no others are given.
            The interfaces have the names of pcapng, or `if` and their number.
        destinations: only packets to these addresses; empty takes all that leave.
        routed: the switch is a router, so the TTL may change.
        one_clock: one clock stamped all captures, so none is corrected.
        max_sojourn: the longest time that a packet can spend in the switch, as `10ms`.
        rate: the rate of the outputs, as `50mbit`, if it is known.
        limit: the limit of the outputs' queues, as `16KB`, if it is known.

    Raises:
        ConfigError: a name, a time or a size is refused.
        InputError: a capture is missing or broken, or nothing can be joined.
        UntrustedError: more than 1 % of the packets cannot be explained, as where a capture is
            missing, cut or of another time. Its `ports` has the numbers of each port.
    """
    captures = joining.captures_of(inputs or {}, outputs or {}, ports or {}, file)
    request = joining.requested(
        captures, destinations, max_sojourn, rate, limit, routed=routed, one_clock=one_clock
    )
    return join_files(request, shared_files(joining.files_of(request)))


def join_files(request: JoinRequest, shared: Collection[Path], *, common: bool = False) -> Join:
    """Joins captures as `join_captures`, whose arguments have been checked.

    `shared` are files of several interfaces, of which each port is one. With `common` only flows
    take part that every capture has. Directions in the captures are ignored then, because they are
    relative to another machine's ports.
    """
    files = joining.files_of(request)
    if len(files) == 1:
        raise ConfigError(
            f"{files[0][1]}: is the only capture; allowed are those of two ports or more. "
            "If it is of several interfaces, give the file alone, without a port's name. "
            "`outcast inspect FILE` shows the flows of one capture"
        )
    read = read_captures(files, shared=shared)
    captures = dict(zip(files, read, strict=True))
    by_way: dict[str, list[PortCapture]] = {"in": [], "out": [], "any": []}
    for each in request.captures:
        by_way[each.direction].append(captures[each.port, Path(each.file.path)])
    joining.require_interfaces(read, shared)
    joining.require_different(by_way["in"])
    # The ports of a file have the same remarks on it.
    first = [*dict.fromkeys(text for capture in read for text in capture.remarks)]
    first += [line for capture in read for line in remove_few(capture, MOST_SHARE)]
    first += _keep_common(read) if common else []
    units = {capture.port: grid_ns(capture.columns.stamp_ns) for capture in read}
    # Packets that left by all interfaces have no queue of their own.
    mixed = {
        capture.port
        for capture in read
        if capture.port == OUT_OF and capture.path in shared
        if (capture.columns.marks & OUTBOUND).all()
    }
    options = JoinOptions(
        max_sojourn_ns=request.max_sojourn_ns,
        routed=request.routed,
        one_clock=request.one_clock or len({path for _, path in files}) == 1,
        one_way=False,
        destinations=frozenset(request.destinations),
        release=True,
    )
    joined = join(by_way["any"] + by_way["in"], by_way["any"] + by_way["out"], options)
    repaired, silent = repairs(joined), [*silences(joined)]
    refusals = doubts(joined, read, request.max_sojourn_ns), unrepaired(joined, repaired, silent)
    if refusal := next(itertools.chain(*refusals), None):
        cut_off = dict.fromkeys(capture.remarks[0] for capture in read if capture.cut_short)
        raise RefusedJoin(refusal, [*port_counts(joined, read)], [*cut_off])
    first += [
        f"{name}: its packets left by several interfaces that Linux cooked v1 does not name, so "
        "queues count as one, without rate and limit; capture by `tcpdump -y LINUX_SLL2`"
        for name in mixed
    ]
    found = estimated(joined, request, units, mixed, repaired, silent)
    clocks = joined.sources.clocks
    last = *silence_remarks(joined, repaired, silent), *left_out(joined, read)
    return Join(
        joined=joined,
        queue=found.queue,
        chains=port_chains(joined),
        remarks=(
            *first,
            *joined.clocks,
            *joined.sources.notes,
            *(clocks.remarks if clocks else ()),
            *found.remarks,
            *last,
        ),
        clocks=_clocks(joined),
        estimates=found.estimates,
        request=request,
        drop_ranges=found.drop_ranges,
    )


def _keep_common(captures: Sequence[PortCapture]) -> list[str]:
    """Keeps the flows that every capture has. Returns remarks on the others.

    Flows that a NAT changes get one name first. Raises UntrustedError if it is ambiguous which
    flows are the same.
    """
    united = same_flows.unite(captures, sample(captures), [None] * len(captures))
    common = set.intersection(*(set(capture.flows) for capture in captures))
    if not common and united.refusals:
        raise UntrustedError(united.refusals[0])
    remarks = [*united.notes, *united.refusals]
    for capture in captures:
        kept = np.array([flow in common for flow in capture.flows], np.bool_)
        rows = kept[capture.columns.flow]
        away = int((~rows).sum())
        np.bitwise_and(
            capture.columns.marks, 0xFF & ~(INBOUND | OUTBOUND), out=capture.columns.marks
        )
        if away:
            capture.columns = Columns.of(column[rows] for column in capture.columns)
            remarks.append(
                f"{capture.port}: {away:,} packets that were seen at one of the two points only "
                f"({int((~kept).sum()):,} of {kept.size:,} flows) take no part"
            )
    return remarks


def _clocks(joined: Joined) -> tuple[ClockEstimate, ...]:
    clocks = joined.sources.clocks
    return tuple(
        ClockEstimate(
            port=port,
            offset_ns=clock.offset_ns,
            low_ns=clock.low_ns,
            high_ns=clock.high_ns,
            drift_ppm=clock.drift * 1e6,
            drift_low_ppm=clock.drift_low and clock.drift_low * 1e6,
            drift_high_ppm=clock.drift_high and clock.drift_high * 1e6,
        )
        for port, clock in zip(joined.sources.ports, clocks.clocks if clocks else (), strict=False)
    )


@dataclass(frozen=True, eq=False)
class Segment:
    """The fate of packets between two points of a path, in one direction.

    Attributes:
        begins, ends: the names of the two points.
        packets: those that passed the first point and are for hosts beyond the second one.
        lost: those that never passed the second point.
        unknown: those that were under way when a capture began or ended.
        delays_ns: the time between the points of each packet that passed both.
    """

    begins: str
    ends: str
    packets: int
    lost: int
    unknown: int
    delays_ns: I64


def join_chain(
    captures: Mapping[str, Path],
    destinations: Collection[str] = (),
    one_clock: bool = False,
    max_sojourn: str = "1s",
) -> tuple[list[Segment], list[str]]:
    """Joins captures of the points of a path, as end host, routers and end host.

    Each two neighbours are joined like the two ports of a switch, and so are both ends. Between
    the points there may be routers, because the TTL may change. Only flows that both points saw
    count, so that other traffic may join and leave on the way.

    Args:
        captures: the capture of each point by its name, in the order of the way. Points of one
            file are interfaces of it, as in `join_captures`. A file of several interfaces is not
            one point, because it has packets before and behind a queue.
        destinations: as in `join_captures`.
        one_clock: as in `join_captures`.
        max_sojourn: as in `join_captures`, for each segment and for the whole way.

    Returns the segments of both directions, each in the order of the way with the whole way at
    the end, and remarks.

    Raises:
        ConfigError: there are fewer than two points, or an argument is refused.
        InputError, UntrustedError: as `join_captures`; the text begins with the segment.
    """
    points = [(joining.port_name(name), path) for name, path in captures.items()]
    if len(points) < 2:
        raise ConfigError(f"--chain: {len(points)} capture; allowed are two or more, in order")
    shared = shared_files(points)
    for name, path in points:
        if path not in shared:
            _require_one_interface(name, path)
    pairs = list(pairwise(points))
    whole = [(points[0], points[-1])] if len(points) > 2 else []
    there: list[Segment] = []
    back: list[list[Segment]] = []
    remarks: list[str] = []
    for first, second in [*pairs, *whole]:
        where = f"{first[0]} to {second[0]}"
        request = joining.requested(
            joining.captures_of({}, {}, dict((first, second))),
            destinations,
            max_sojourn,
            routed=True,
            one_clock=one_clock or first[1] == second[1],
        )
        try:
            found = join_files(request, shared, common=True)
        except (InputError, UntrustedError) as error:
            text = str(error)
            if text.startswith("no packets"):
                text = "no packet of a host was seen at both points"
            error.args = (f"{where}: {text}",)
            raise
        # The segments' remarks include those of the whole way.
        if len(back) < len(pairs):
            remarks += [f"{where}: {text}" for text in found.remarks]
        there += _segment(found.joined, first[0], second[0])
        back.append(_segment(found.joined, second[0], first[0]))
    for parts in (*reversed(back[: len(pairs)]), *back[len(pairs) :]):
        there += parts
    return there, list(dict.fromkeys(remarks))


def _require_one_interface(name: str, path: Path) -> None:
    names = [*interfaces_of(path)]
    if len(names) < 2:
        return
    allowed = f"give those on the way: {' '.join(f'{one}={path.name}' for one in names[:4])}"
    if {INTO, OUT_OF} & set(names):
        allowed = "which it does not name; capture by `tcpdump -y LINUX_SLL2 -i any`"
    raise ConfigError(f"--chain {name}={path}: has packets of {len(names)} interfaces; {allowed}")


def _segment(joined: Joined, begins: str, ends: str) -> list[Segment]:
    """The packets that came in at a point; an empty list if there are none."""
    rows = np.flatnonzero(joined.arrivals.port == joined.inputs.index(begins))
    verdict = joined.verdict[rows]
    through = rows[verdict == Verdict.FORWARDED]
    delays_ns = (
        joined.departures.stamp_ns[joined.left_as[through]] - joined.arrivals.stamp_ns[through]
    )
    lost, unknown = (int((verdict == one).sum()) for one in (Verdict.DROPPED, Verdict.UNKNOWN))
    return [Segment(begins, ends, rows.size, lost, unknown, delays_ns)] if rows.size else []
