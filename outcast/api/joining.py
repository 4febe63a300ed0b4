"""The request of a join: its captures and ports, and what is known of the queue."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np

from outcast.analysis.capture.pcap import PortCapture, interfaces_of
from outcast.analysis.capture.records import INTO, OUT_OF, shown_name
from outcast.analysis.measure.estimates import KnownQueue
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.units import MOST_SPAN_NS, parse_rate_bps, parse_size_bytes, parse_time_ns

SAMPLED = 64
"""The number of packets of a capture that are compared with another capture."""
LEAST_SAME = 8
"""Fewer may be alike by chance."""


@dataclass(frozen=True, slots=True)
class AskedCapture:
    """The capture of a port: which packets it holds, and its file or the pattern of several."""

    port: str
    direction: Literal["in", "out", "any"]
    path: Path


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of a join, as `join_captures` has it."""

    captures: tuple[AskedCapture, ...]
    destinations: frozenset[str]
    routed: bool
    one_clock: bool
    max_sojourn_ns: int
    rate_bps: int | None = None
    limit_bytes: int | None = None

    @property
    def files(self) -> list[tuple[str, Path]]:
        """Each port with its file. A port's file that is given on both sides is read once."""
        return list(dict.fromkeys((capture.port, capture.path) for capture in self.captures))


def captures(
    inputs: Mapping[str, str | os.PathLike[str]],
    outputs: Mapping[str, str | os.PathLike[str]],
    ports: Mapping[str, str | os.PathLike[str]],
    file: str | os.PathLike[str] | None,
) -> tuple[AskedCapture, ...]:
    """The captures that `join_captures` is given. Raises ConfigError."""
    incoming, outgoing, both = (
        {_port_name(name): Path(path) for name, path in side.items()}
        for side in (inputs, outputs, ports)
    )
    if file is not None:
        if both or incoming or outgoing:
            raise ConfigError(f"{file}: not together with ports; allowed is one of them")
        both, incoming, outgoing = _ports_of(Path(file))
    for name in both:
        if name in incoming or name in outgoing:
            raise ConfigError(f"port {name} is given twice")
    return captures_of("any", both) + captures_of("in", incoming) + captures_of("out", outgoing)


def _ports_of(path: Path) -> tuple[dict[str, Path], dict[str, Path], dict[str, Path]]:
    """The interfaces of a capture as ports: of both directions, inputs, outputs.

    Raises ConfigError if it has packets of one interface only, InputError if it is a folder.
    """
    if path.is_dir():
        raise InputError(
            f"{path}: is a folder; allowed is a capture for each port, as "
            "`--in NAME=PCAP ... --out NAME=PCAP`, or one capture of several interfaces"
        )
    counts = interfaces_of(path)
    if counts.keys() == {INTO, OUT_OF}:
        return {}, {INTO: path}, {OUT_OF: path}
    if len(counts) < 2 or "" in counts:
        raise ConfigError(
            f"{path}: its packets are of one interface; allowed are captures of several, as "
            "`tcpdump -i any` and `dumpcap -i eth1 -i eth2` make, or PORT=FILE for each port. "
            f"`outcast inspect {path}` shows the flows of one capture"
        )
    return {_port_name(name): path for name in counts}, {}, {}


def require_interfaces(captures: Collection[PortCapture], shared: Collection[Path]) -> None:
    """Raises ConfigError if a port of a file that several have is not one of its interfaces."""
    for capture in captures:
        if capture.path in shared and not capture.records:
            counts = interfaces_of(capture.path)
            if len(counts) < 2:
                ports = [other.port for other in captures if other.path == capture.path]
                raise ConfigError(
                    f"{capture.path}: is given for {' and '.join(ports)}, but its packets are of "
                    "one interface; allowed is a file for each port"
                )
            if capture.port not in counts:
                there = ", ".join(
                    f"{name or 'one without a name'} ({packets:,} packets)"
                    for name, packets in counts.items()
                )
                near = did_you_mean(capture.port, counts)
                raise ConfigError(
                    f"{capture.path}: has no packets of an interface {capture.port}, but of "
                    f"{there}{near}"
                )


def require_different(captures: Sequence[PortCapture]) -> None:
    """Raises InputError if two inputs have the same packets at the same instants, as copies do."""
    for pair in combinations(captures, 2):
        few, many = sorted(pair, key=lambda capture: capture.columns.stamp_ns.size)
        if few.port == many.port or few.path == many.path or not few.columns.stamp_ns.size:
            continue
        rows = np.arange(0, few.columns.stamp_ns.size, 1 + few.columns.stamp_ns.size // SAMPLED)
        hosts = [few.flows[flow].dst for flow in few.columns.flow[rows].tolist()]
        # What goes to a group may come in by both, of a switch before.
        rows = rows[[not ip_address(host).is_multicast for host in hosts]]
        stamps = few.columns.stamp_ns[rows]
        there = np.searchsorted(many.columns.stamp_ns, stamps).clip(max=many.columns.flow.size - 1)
        same = (many.columns.stamp_ns[there] == stamps) & (
            many.columns.identity[there] == few.columns.identity[rows]
        )
        if 2 * int(same.sum()) > max(rows.size, LEAST_SAME):
            raise InputError(
                f"{few.path}: has packets of {many.path} at the same instants, so it is a copy or "
                f"a part of it; {few.port} and {many.port} cannot both be inputs with them"
            )


def captures_of(
    direction: Literal["in", "out", "any"], side: Mapping[str, Path]
) -> tuple[AskedCapture, ...]:
    """The captures of ports that hold such packets."""
    return tuple(AskedCapture(port, direction, path) for port, path in side.items())


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


def parse_addresses(texts: Collection[str]) -> frozenset[str]:
    """Parses IP addresses. Raises InputError."""
    return frozenset(_address(text) for text in texts)


def _address(text: str) -> str:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, text))
    except OSError:
        raise InputError(f"{text!r} is not an IP address; allowed is one as 10.0.0.1") from None


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
    """Returns the name of a port. Raises ConfigError if it cannot be shown."""
    # A table of the packets has the name in it.
    if not name.isprintable() or not name.strip():
        raise ConfigError(f"{name!a}: allowed as a port's name is text that can be shown")
    return shown_name(name)
