"""Any captures of a switch's ports, joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from outcast.analysis.capture.headers import INBOUND, OUTBOUND, Columns
from outcast.analysis.capture.pcap import grid_ns, read_captures, remove_few, shared_files
from outcast.analysis.capture.records import OUT_OF
from outcast.analysis.join import identities
from outcast.analysis.join.doubts import MOST_SHARE, doubts, left_out, port_counts
from outcast.analysis.join.findings import DropRange, Found, RefusedJoin
from outcast.analysis.join.join import JoinOptions, join
from outcast.analysis.join.pairs import sample
from outcast.analysis.measure import blackout, queue
from outcast.analysis.measure.drop_causes import (
    Relation,
    drop_ranges,
    explained_drops,
    lost_by_length,
    random_losses,
    relations,
)
from outcast.analysis.measure.estimates import (
    FINE_NS,
    Doubtful,
    KnownQueue,
    alike_remarks,
    copy_remarks,
    estimate,
    late_remarks,
    latency_remarks,
    level,
    level_remarks,
    lost_on_several,
    marked_remarks,
    pause_remarks,
    rate_remarks,
    require_possible,
    service_remarks,
)
from outcast.analysis.measure.latency import latency
from outcast.analysis.measure.queue import sojourn_spread
from outcast.analysis.measure.queue_levels import Capacity
from outcast.analysis.measure.repairs import (
    Silence,
    repairs,
    silence_remarks,
    silences,
    unrepaired,
)
from outcast.api import joining
from outcast.api.joining import Asked, parse_addresses, parse_max_sojourn_ns, parse_queue
from outcast.errors import ConfigError, InputError, UntrustedError, did_you_mean
from outcast.records.captures import ClockEstimate

if TYPE_CHECKING:
    import polars as pl

    from outcast.analysis.capture.pcap import PortCapture
    from outcast.analysis.join.join import Joined
    from outcast.analysis.measure.repairs import Repairs
    from outcast.api.runs import Run


@dataclass(frozen=True, eq=False, repr=False)
class Join(Found):
    """Joined captures, as `join_captures` returns them.

    Attributes:
        joined: the packets, their verdicts and the counts, as arrays.
        queue: the content of each output's queue, as arrays.
        chains: chains of consecutive drops of one input port, as arrays.
        remarks: what the reader should know: captures that were cut, clocks that were aligned.
        asked: what was joined, and how.
        clocks: for each capture, how far its clock was off; none if one clock stamped all.
        estimates: for each output, the rate and limit of its queue.
        drop_ranges: where captures lack packets, between which numbers the drops are.
    """

    asked: Asked
    drop_ranges: tuple[DropRange, ...]

    def __repr__(self) -> str:
        counts = self.joined.counts
        return (
            f"Join({counts.entered} packets in: {counts.forwarded} forwarded, "
            f"{counts.dropped} dropped)"
        )

    def save(self, directory: str | os.PathLike[str]) -> Run:
        """Writes all of it into a new folder, which `open_run` opens like that of a run.

        Args:
            directory: a new or empty folder. It appears whole, or not at all.

        Raises:
            ConfigError: the folder cannot be used.
            InputError: a capture is not there any more.
        """
        from outcast.api import captures

        return captures.save(self, directory)

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return sorted(self._makers)

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
        if name not in self._makers:
            near = did_you_mean(name, self.tables)
            raise InputError(f"table {name}: allowed are {', '.join(self.tables)}{near}")
        return self._makers[name]

    @property
    def _makers(self) -> Mapping[str, tuple[int, Callable[[slice], pl.DataFrame]]]:
        """For each table its rows, or 0 if they are always few, and what gives some of them."""
        from outcast.analysis import store

        joined, queue, numbers = self.joined, self.queue, store.flow_numbers(self.joined)
        return {
            "packets": (
                len(joined.arrivals),
                lambda rows: store.packet_table(joined, queue, numbers, rows),
            ),
            "queue": (queue.time_ns.size, lambda rows: store.queue_table(joined, queue, rows)),
            "blackouts": (0, lambda rows: store.chain_table(joined, self.chains)),
        }


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
    directions of its port. Which packets came in and which left is told by where they are seen, and
    clocks that differ or drift are corrected. If several ports have the same file, their names are
    those of its interfaces, and one clock stamped them all if there is no other file.

    Args:
        inputs: a name of yours for each input port, and the capture of what came in there.
        outputs: likewise, what left.
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
    max_sojourn_ns = parse_max_sojourn_ns(max_sojourn, "max_sojourn")
    known = parse_queue(rate, limit, "rate", "limit")
    request = Asked(
        joining.captures(inputs or {}, outputs or {}, ports or {}, file),
        parse_addresses(destinations),
        routed,
        one_clock,
        max_sojourn_ns,
        known.rate_bps,
        known.limit_bytes,
    )
    return join_files(request, shared_files(request.files))


def join_files(request: Asked, shared: Collection[Path], *, common: bool = False) -> Join:
    """Joins captures as `join_captures`, whose arguments have been checked.

    `shared` are files of several interfaces, of which each port is one. With `common` only flows
    take part that every capture has. What the captures themselves say of directions does not count
    then, because it is about another machine's ports.
    """
    files = request.files
    if len(files) == 1:
        raise ConfigError(
            f"{files[0][1]}: is the only capture; allowed are those of two ports or more. "
            "If it is of several interfaces, give the file alone, without a port's name. "
            "`outcast inspect FILE` shows the flows of one capture"
        )
    captures = dict(zip(files, read_captures(files, shared=shared), strict=True))
    joining.require_interfaces(captures.values(), shared)
    joining.require_different(
        [captures[one.port, one.path] for one in request.captures if one.direction == "in"]
    )
    aside = [line for capture in captures.values() for line in remove_few(capture, MOST_SHARE)]
    aside += _keep_common(list(captures.values())) if common else []
    units = {capture.port: grid_ns(capture.columns.stamp_ns) for capture in captures.values()}
    # All that left, by whatever interface, is no queue of its own.
    mixed = {
        capture.port
        for capture in captures.values()
        if capture.port == OUT_OF and capture.path in shared
        if (capture.columns.marks & OUTBOUND).all()
    }
    incoming, outgoing = (
        [captures[file.port, file.path] for file in request.captures if file.direction != other]
        for other in ("out", "in")
    )
    options = JoinOptions(
        max_sojourn_ns=request.max_sojourn_ns,
        routed=request.routed,
        one_clock=request.one_clock or len({path for _, path in files}) == 1,
        one_way=False,
        destinations=request.destinations,
        release=True,
    )
    joined = join(incoming, outgoing, options)
    read = list(captures.values())
    repaired, silent = repairs(joined), [*silences(joined)]
    refusals = doubts(joined, read, request.max_sojourn_ns)
    refusals = refusals or unrepaired(joined, repaired, silent)
    if refusals:
        raise RefusedJoin.of(refusals[0], port_counts(joined, read))
    # Ports of one file have the same to say of it.
    aside = [*dict.fromkeys(text for capture in read for text in capture.remarks), *aside]
    aside += [
        f"{name}: its packets left by several interfaces, and Linux cooked v1 does not say by "
        "which. So no rate and limit are estimated, and queues count as one. "
        "`tcpdump -y LINUX_SLL2` tells them apart"
        for name in mixed
    ]
    last = [*silence_remarks(joined, repaired, silent), *left_out(joined, read)]
    return _measured(request, joined, repaired, units, mixed, silent, (aside, last))


def _measured(
    request: Asked,
    joined: Joined,
    repaired: Repairs,
    units_ns: Mapping[str, int],
    mixed: Collection[str],
    silent: Sequence[Silence],
    remarks: tuple[Sequence[str], Sequence[str]],
) -> Join:
    """Measures queues and chains of joined captures, whose stamps have this unit.

    Outputs in `mixed` have packets that left by several interfaces. In `silent` their captures have
    nothing. The remarks begin and end with `remarks`, which are about the captures.
    """
    known = KnownQueue(request.rate_bps, request.limit_bytes)
    coarsest = max(units_ns, key=lambda port: units_ns[port])
    unit_ns = units_ns[coarsest]
    full = joined.all_left
    least = latency(full, unit_ns - 1)
    of_all = queue.replay(full, least.delay_ns(full))
    replayed = queue.of_own(joined, of_all)
    clocks = joined.sources.clocks
    longer = [*lost_by_length(joined, replayed)]
    explained = explained_drops(joined, replayed, least.busy, [rows for _, rows in longer])
    ranges = drop_ranges(joined, repaired, replayed, explained)
    for silence in silent:
        explained[silence.rows] = True
    of_all_explained = np.zeros(len(full.arrivals), np.bool_)
    of_all_explained[slice(None) if joined.whole is None else joined.whole.own] = explained
    doubtful = Doubtful.of(unit_ns, coarsest, clocks, least)
    related = relations(joined, replayed, explained)
    alike = dict(alike_remarks(joined))
    at_random = {
        output: loss
        for output, loss in random_losses(joined, repaired, replayed, related, explained).items()
        # Otherwise nothing tells what a packet found.
        if joined.outputs[output] not in alike
        and (
            unit_ns <= FINE_NS
            or ((waits := sojourn_spread(joined, output)) and waits.p50 > 2 * unit_ns)
        )
    }
    levels: dict[int, Capacity] = {}
    lossy = {joined.outputs[output] for output in at_random}
    for output, name in enumerate(joined.outputs):
        # Where interfaces cannot be told apart, several queues count as one.
        if name in mixed or name in alike or not joined.shows_service(output):
            related[output] = Relation.EMPTY
        elif joined.shows_content(output) and output not in at_random:
            found = level(full, of_all, output, doubtful, least, of_all_explained)
            levels |= {output: found} if found is not None else {}
    passed = level_remarks(joined, replayed, levels, explained)
    estimates = tuple(
        estimate(
            joined,
            output,
            doubtful,
            least,
            relation,
            None if output in passed else levels.get(output),
        )
        for output, relation in enumerate(related)
    )
    require_possible(joined, estimates, known)
    first, last = remarks
    return Join(
        joined,
        replayed,
        blackout.port_chains(joined),
        (
            *first,
            *joined.clocks,
            *joined.sources.notes,
            *(clocks.remarks if clocks else ()),
            *service_remarks(joined),
            *copy_remarks(joined, unit_ns),
            *doubtful.remarks(joined, known),
            *late_remarks(joined, request.max_sojourn_ns),
            *latency_remarks(full, least, known, doubtful, one_clock=clocks is None),
            *pause_remarks(full, least, doubtful, silent),
            *rate_remarks(full, least, doubtful),
            *alike.values(),
            *(loss.sentence for loss in at_random.values()),
            *(line for line, _ in longer),
            *passed.values(),
            *lost_on_several(joined),
            *marked_remarks(joined),
            *last,
            *(part.sentence for part in ranges if part.egress not in lossy),
        ),
        _clocks(joined),
        estimates,
        request,
        tuple(ranges),
    )


def _keep_common(captures: Sequence[PortCapture]) -> list[str]:
    """Leaves out the flows that not every capture has; says how many packets they are.

    Flows that are changed on the way, as by a NAT, are first given one name. Raises UntrustedError
    if there are none, but flows that could be the same.
    """
    united = identities.unite(captures, sample(captures), [None] * len(captures))
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
    if clocks is None:
        return ()
    return tuple(
        ClockEstimate(
            port=port,
            offset_ns=clock.offset_ns,
            low_ns=clock.low_ns,
            high_ns=clock.high_ns,
            drift_ppm=clock.drift * 1e6,
            drift_low_ppm=None if clock.drift_low is None else clock.drift_low * 1e6,
            drift_high_ppm=None if clock.drift_high is None else clock.drift_high * 1e6,
        )
        for port, clock in zip(joined.sources.ports, clocks.clocks, strict=True)
    )
