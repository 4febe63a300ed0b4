"""Any captures of a switch's ports, joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outcast.analysis import store
from outcast.analysis.capture.pcap import read_captures
from outcast.analysis.join.join import JoinOptions, join
from outcast.analysis.measure import blackout, queue
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.records.run_directory import MOST_SPAN_NS
from outcast.units import parse_time_ns

if TYPE_CHECKING:
    import polars as pl

    from outcast.analysis.join.findings import ClockEstimate, QueueEstimate, Role
    from outcast.analysis.join.join import Joined
    from outcast.analysis.measure.blackout import Chains
    from outcast.analysis.measure.queue import Queue


@dataclass(frozen=True, eq=False, repr=False)
class Join:
    """Joined captures, as `join_captures` returns them.

    Attributes:
        joined: the packets, their verdicts and the counts, as arrays.
        queue: the content of each output's queue, as arrays.
        chains: chains of consecutive drops of one input port, as arrays.
        remarks: what the reader should know: captures that were cut, clocks that were aligned.
        roles: for each capture, which way its packets go.
        clocks: for each capture, how far its clock was off; none if one clock stamped all.
        estimates: for each output, the rate and limit of its queue.
    """

    joined: Joined
    queue: Queue
    chains: Chains
    remarks: tuple[str, ...]
    roles: tuple[Role, ...] = ()
    clocks: tuple[ClockEstimate, ...] = ()
    estimates: tuple[QueueEstimate, ...] = ()

    def __repr__(self) -> str:
        counts = self.joined.counts
        return (
            f"Join({counts.entered} packets in: {counts.forwarded} forwarded, "
            f"{counts.dropped} dropped)"
        )

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

    @property
    def _makers(self) -> Mapping[str, Callable[[], pl.DataFrame]]:
        joined = self.joined
        return {
            "packets": lambda: store.packet_table(joined, self.queue, store.flow_numbers(joined)),
            "queue": lambda: store.queue_table(joined, self.queue),
            "blackouts": lambda: store.chain_table(joined, self.chains),
        }


def join_captures(
    inputs: Mapping[str, str | os.PathLike[str]],
    outputs: Mapping[str, str | os.PathLike[str]],
    *,
    destinations: Collection[str] = (),
    routed: bool = False,
    max_sojourn: str = "1s",
) -> Join:
    """Matches the packets that entered a switch with those that left it.

    A capture is a pcap or pcapng file, which gzip or zstd may have compressed.

    Args:
        inputs: a name of yours for each input port, and the capture of what came in there.
        outputs: likewise, what left.
        destinations: only packets to these addresses; empty takes all that the outputs have.
        routed: the switch is a router, so the TTL may change.
        max_sojourn: the longest time that a packet can spend in the switch, as `10ms`.

    Raises:
        ConfigError: a name or a time is refused.
        InputError: a capture is missing or broken, or nothing can be joined.
    """
    max_sojourn_ns = parse_max_sojourn_ns(max_sojourn, "max_sojourn")
    ports = [
        (_port_name(name), Path(path)) for side in (inputs, outputs) for name, path in side.items()
    ]
    captures = read_captures(ports, frozenset(destinations) or None)
    joined = join(
        captures[: len(inputs)],
        captures[len(inputs) :],
        JoinOptions(max_sojourn_ns=max_sojourn_ns, routed=routed, release=True),
    )
    return Join(
        joined,
        queue.replay(joined),
        blackout.port_chains(joined),
        (*(text for capture in captures for text in capture.remarks), *joined.clocks),
    )


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
