"""Captures along a path, joined hop by hop: loss and delay of each segment of the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from outcast.analysis.capture.pcap import interfaces_of, shared_files
from outcast.analysis.capture.records import INTO, OUT_OF
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.machine_code import I64
from outcast.api import joining, joins
from outcast.errors import ConfigError, InputError, UntrustedError
from outcast.records.captures import JoinRequest

LEAST_POINTS = 2


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
    if len(points) < LEAST_POINTS:
        raise ConfigError(f"--chain: {len(points)} capture; allowed are two or more, in order")
    shared = shared_files(points)
    for name, path in points:
        if path not in shared:
            _require_one_interface(name, path)
    pairs = list(pairwise(points))
    whole = [(points[0], points[-1])] if len(points) > LEAST_POINTS else []
    there: list[Segment] = []
    back: list[list[Segment]] = []
    remarks: list[str] = []
    for first, second in [*pairs, *whole]:
        where = f"{first[0]} to {second[0]}"
        request = JoinRequest(
            captures=joining.captures_of({}, {}, dict((first, second))),
            destinations=joining.addresses(destinations),
            routed=True,
            one_clock=one_clock or first[1] == second[1],
            max_sojourn_ns=joining.longest_ns(max_sojourn),
        )
        try:
            join = joins.join_files(request, shared, common=True)
        except (InputError, UntrustedError) as error:
            text = str(error)
            if text.startswith("no packets"):
                text = "no packet of a host was seen at both points"
            raise type(error)(f"{where}: {text}") from None
        # The segments' remarks include those of the whole way.
        if len(back) < len(pairs):
            remarks += [f"{where}: {text}" for text in join.remarks]
        there += _segment(join.joined, first[0], second[0])
        back.append(_segment(join.joined, second[0], first[0]))
    for parts in (*reversed(back[: len(pairs)]), *back[len(pairs) :]):
        there += parts
    return there, list(dict.fromkeys(remarks))


def _require_one_interface(name: str, path: Path) -> None:
    names = list(interfaces_of(path))
    if len(names) < LEAST_POINTS:
        return
    each = " ".join(f"{interface}={path.name}" for interface in names[:4])
    allowed = f"so it is several points. Give those on the way, in its order: {each}"
    if {INTO, OUT_OF} & set(names):
        allowed = "which it does not name. Capture by `tcpdump -y LINUX_SLL2 -i any`"
    raise ConfigError(f"--chain {name}={path}: has packets of {len(names)} interfaces, {allowed}")


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
