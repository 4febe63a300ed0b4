"""Any captures of a switch's ports, joined."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from outcast.analysis.capture.pcap import read_captures
from outcast.analysis.join.directions import CAME, LEFT, UNTOLD
from outcast.analysis.join.doubts import doubts, left_out
from outcast.analysis.join.findings import ClockEstimate, QueueEstimate, Role
from outcast.analysis.join.join import JoinOptions, join
from outcast.analysis.measure import blackout, queue
from outcast.analysis.measure.repairs import unrepaired
from outcast.errors import ConfigError, InputError, UntrustedError, did_you_mean
from outcast.units import MOST_SPAN_NS, parse_rate_bps, parse_size_bytes, parse_time_ns

if TYPE_CHECKING:
    import polars as pl

    from outcast.analysis.join.join import Joined
    from outcast.analysis.measure.blackout import Chains
    from outcast.analysis.measure.queue import Queue
    from outcast.api.runs import Run


@dataclass(frozen=True, slots=True)
class AskedCapture:
    """The capture of a port: which packets it holds, and its file or the pattern of several."""

    port: str
    direction: Literal["in", "out", "any"]
    path: Path


@dataclass(frozen=True, slots=True)
class Asked:
    """What a join was asked to do, as `join_captures` has it."""

    captures: tuple[AskedCapture, ...]
    destinations: Collection[str]
    routed: bool
    max_sojourn_ns: int
    rate_bps: int | None
    limit_bytes: int | None


@dataclass(frozen=True, eq=False, repr=False)
class Join:
    """Joined captures, as `join_captures` returns them.

    Attributes:
        joined: the packets, their verdicts and the counts, as arrays.
        queue: the content of each output's queue, as arrays.
        chains: chains of consecutive drops of one input port, as arrays.
        remarks: what the reader should know: captures that were cut, clocks that were aligned.
        asked: what was joined, and how.
        roles: for each capture, which way its packets go.
        clocks: for each capture, how far its clock was off; none if one clock stamped all.
        estimates: for each output, the rate and limit of its queue.
    """

    joined: Joined
    queue: Queue
    chains: Chains
    remarks: tuple[str, ...]
    asked: Asked
    roles: tuple[Role, ...] = ()
    clocks: tuple[ClockEstimate, ...] = ()
    estimates: tuple[QueueEstimate, ...] = ()

    def __repr__(self) -> str:
        counts = self.joined.counts
        return (
            f"Join({counts.entered} packets in: {counts.forwarded} forwarded, "
            f"{counts.dropped} dropped)"
        )

    def save(self, directory: str | os.PathLike[str], *, copy: bool = False) -> Run:
        """Writes all of it into a new folder, which `open_run` opens like that of a run.

        Args:
            directory: a new or empty folder. It appears whole, or not at all.
            copy: whether to copy the captures into it. Otherwise it names their places.

        Raises:
            ConfigError: the folder cannot be used.
            InputError: a capture is not there any more.
        """
        from outcast.api import captures

        return captures.save(self, directory, copy=copy)

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return sorted(self._makers)

    def table(self, name: str) -> pl.DataFrame:
        """A table by its name, with the columns of the same table of a run.

        `packets` has a row for each packet that came in, `queue` one for each change of the queue,
        `blackouts` one for each chain of drops. Raises InputError for another name.
        """
        if name not in self._makers:
            near = did_you_mean(name, self.tables)
            raise InputError(f"table {name}: allowed are {', '.join(self.tables)}{near}")
        return self._makers[name]()

    def write(self, name: str, path: Path) -> None:
        """Writes a table, in blocks if it is large: CSV if the name ends in .csv, else Parquet.

        Raises InputError for another name, or if the file cannot be written.
        """
        # They import polars, which a join whose tables nobody wants does without.
        from outcast.analysis import store
        from outcast.records.tables import BLOCK_ROWS, write_blocks, write_table

        if name == "packets" and len(self.joined.arrivals) > BLOCK_ROWS:
            numbers = store.flow_numbers(self.joined)
            write_blocks(
                path,
                len(self.joined.arrivals),
                lambda rows: store.packet_table(self.joined, self.queue, numbers, rows),
            )
        elif name == "queue" and self.queue.time_ns.size > BLOCK_ROWS:
            write_blocks(
                path,
                self.queue.time_ns.size,
                lambda rows: store.queue_table(self.joined, self.queue, rows),
            )
        else:
            write_table(self.table(name), path)

    @property
    def _makers(self) -> Mapping[str, Callable[[], pl.DataFrame]]:
        from outcast.analysis import store

        joined = self.joined
        return {
            "packets": lambda: store.packet_table(joined, self.queue, store.flow_numbers(joined)),
            "queue": lambda: store.queue_table(joined, self.queue),
            "blackouts": lambda: store.chain_table(joined, self.chains),
        }


def join_captures(
    inputs: Mapping[str, str | os.PathLike[str]] | None = None,
    outputs: Mapping[str, str | os.PathLike[str]] | None = None,
    *,
    ports: Mapping[str, str | os.PathLike[str]] | None = None,
    destinations: Collection[str] = (),
    routed: bool = False,
    max_sojourn: str = "1s",
    rate: str | None = None,
    limit: str | None = None,
) -> Join:
    """Matches the packets that entered a switch with those that left it.

    A capture is a pcap or pcapng file, which gzip or zstd may have compressed. It may hold both
    directions of its port. Which packets came in and which left is told by where they are seen, and
    clocks that differ or drift are corrected.

    Args:
        inputs: a name of yours for each input port, and the capture of what came in there.
        outputs: likewise, what left.
        ports: likewise, ports that are inputs and outputs at once.
        destinations: only packets to these addresses; empty takes all that leave.
        routed: the switch is a router, so the TTL may change.
        max_sojourn: the longest time that a packet can spend in the switch, as `10ms`.
        rate: the rate of the outputs, as `50mbit`, if it is known. Otherwise it is estimated.
        limit: the limit of the outputs' queues, as `16KB`, if it is known.

    Raises:
        ConfigError: a name, a time or a size is refused.
        InputError: a capture is missing or broken, or nothing can be joined.
        UntrustedError: a capture is missing, cut or of another time, so that more than 1 % of the
            packets cannot be explained. The text says what is probably missing.
    """
    max_sojourn_ns = parse_max_sojourn_ns(max_sojourn, "max_sojourn")
    known = parse_queue(rate, limit, "rate", "limit")
    both = {_port_name(name): Path(path) for name, path in (ports or {}).items()}
    came = {_port_name(name): Path(path) for name, path in (inputs or {}).items()}
    left = {_port_name(name): Path(path) for name, path in (outputs or {}).items()}
    for name in both:
        if name in came or name in left:
            raise ConfigError(f"port {name} is given twice")
    wanted = frozenset(_address(address) for address in destinations)
    # A port's file that is given on both sides is read once.
    files = list(dict.fromkeys([*both.items(), *came.items(), *left.items()]))
    captures = dict(zip(files, read_captures(files), strict=True))
    in_captures = [captures[port] for port in [*both.items(), *came.items()]]
    out_captures = [captures[port] for port in [*both.items(), *left.items()]]
    joined = join(
        in_captures,
        out_captures,
        JoinOptions(
            max_sojourn_ns=max_sojourn_ns,
            routed=routed,
            one_way=False,
            destinations=wanted,
            release=True,
        ),
    )
    read = list(captures.values())
    refusals = doubts(joined, read, max_sojourn_ns) or unrepaired(joined, read)
    if refusals:
        raise UntrustedError(refusals[0].sentence)
    replayed = queue.replay(joined)
    return Join(
        joined,
        replayed,
        blackout.port_chains(joined),
        (
            *(text for capture in read for text in capture.remarks),
            *joined.clocks,
            *_not_estimated(joined, known),
            *left_out(joined, read),
        ),
        Asked(
            _asked("any", both) + _asked("in", came) + _asked("out", left),
            wanted,
            routed,
            max_sojourn_ns,
            known.rate_bps,
            known.limit_bytes,
        ),
        _roles(joined),
        _clocks(joined),
        tuple(_estimate(joined, replayed, output, known) for output in range(len(joined.outputs))),
    )


def _asked(
    direction: Literal["in", "out", "any"], side: Mapping[str, Path]
) -> tuple[AskedCapture, ...]:
    return tuple(AskedCapture(port, direction, path) for port, path in side.items())


@dataclass(frozen=True, slots=True)
class KnownQueue:
    """What the caller knows of the outputs' queues."""

    rate_bps: int | None
    limit_bytes: int | None


def parse_queue(rate: object, limit: object, rate_at: str, limit_at: str) -> KnownQueue:
    """Parses a rate and a limit. Raises ConfigError, which begins with where it is."""
    try:
        rate_bps = None if rate is None else parse_rate_bps(rate)
    except ValueError as error:
        raise ConfigError(f"{rate_at}: {error}") from None
    try:
        limit_bytes = None if limit is None else parse_size_bytes(limit)
    except ValueError as error:
        raise ConfigError(f"{limit_at}: {error}") from None
    return KnownQueue(rate_bps, limit_bytes)


def _address(text: str) -> str:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, text))
    except OSError:
        raise InputError(f"{text!r} is not an IP address; allowed is one as 10.0.0.1") from None


def _roles(joined: Joined) -> tuple[Role, ...]:
    sources = joined.sources
    told = sources.directions
    if told is None:
        return ()
    return tuple(
        Role(
            port,
            told.packets(index, CAME),
            told.packets(index, LEFT),
            told.packets(index, UNTOLD),
            tuple(sorted(address for address, place in told.place.items() if place == index)),
        )
        for index, port in enumerate(sources.ports)
    )


def _clocks(joined: Joined) -> tuple[ClockEstimate, ...]:
    clocks = joined.sources.clocks
    if clocks is None:
        return ()
    return tuple(
        ClockEstimate(
            port,
            offset.offset_ns,
            offset.low_ns,
            offset.high_ns,
            offset.drift * 1e6,
            None if offset.drift_low is None else offset.drift_low * 1e6,
            None if offset.drift_high is None else offset.drift_high * 1e6,
        )
        for port, offset in zip(joined.sources.ports, clocks.offsets, strict=True)
    )


def _stepped(joined: Joined) -> bool:
    clocks = joined.sources.clocks
    return clocks is not None and clocks.stepped


def _not_estimated(joined: Joined, known: KnownQueue) -> tuple[str, ...]:
    if not _stepped(joined) or (known.rate_bps is not None and known.limit_bytes is not None):
        return ()
    return (
        "rates and limits of queues are not estimated, and times in the switch may be wrong by "
        "some ms, because by how much a clock stepped is known no better",
    )


def _estimate(joined: Joined, replayed: Queue, output: int, known: KnownQueue) -> QueueEstimate:
    """The rate and limit of an output, as known or as its packets show them."""
    estimate = QueueEstimate(joined.outputs[output])
    stepped = _stepped(joined)
    rate = None if stepped else queue.service_rate(joined, output)
    if known.rate_bps is not None:
        exact = float(known.rate_bps)
        rate = queue.Rate(exact, exact, exact)
    if rate is not None:
        estimate = replace(
            estimate, rate_bps=rate.bps, rate_low_bps=rate.low_bps, rate_high_bps=rate.high_bps
        )
    level = None if stepped else queue.capacity(joined, replayed, output)
    if known.limit_bytes is not None:
        level = queue.Capacity("bytes", known.limit_bytes, known.limit_bytes + 1, 1.0)
    if level is not None:
        estimate = replace(
            estimate,
            limit_unit=level.unit,
            limit_at_least=level.at_least,
            limit_below=level.below,
            limit_explains=level.confidence,
        )
    return estimate


def parse_max_sojourn_ns(text: object, where: str) -> int:
    """Parses the longest sojourn time. Raises ConfigError, which begins with `where`."""
    try:
        longest_ns = parse_time_ns(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    # Within no time every packet would count as dropped. The join adds this to a packet's time.
    if not 0 < longest_ns <= MOST_SPAN_NS:
        raise ConfigError(f"{where}: {text}; allowed is 1ns to {MOST_SPAN_NS // 10**9}s")
    return longest_ns


def _port_name(name: str) -> str:
    # A table of the packets has the name in it.
    if not name.isprintable():
        raise ConfigError(f"{name!a}: allowed as a port's name is text that can be shown")
    return name
