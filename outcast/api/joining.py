"""The arguments of a join, checked: captures, ports, addresses and times."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np

from outcast.analysis.capture.pcap import PortCapture, interfaces_of
from outcast.analysis.capture.records import INTO, OUT_OF, shown_name
from outcast.errors import ConfigError, InputError, did_you_mean
from outcast.records.captures import CapturedFile, CapturedPort, JoinRequest
from outcast.units import MOST_SPAN_NS, parse_rate_bps, parse_size_bytes, parse_time_ns

Paths = Mapping[str, str | os.PathLike[str]]
"""The capture of each port by its name."""

SAMPLED = 64
"""The number of packets of a capture that are compared with another capture."""
LEAST_SAME = 8
"""Fewer may be alike by chance."""


def captures_of(
    inputs: Paths, outputs: Paths, ports: Paths, file: str | os.PathLike[str] | None = None
) -> list[CapturedPort]:
    """The captures of a join, as `join_captures` is given them."""
    incoming, outgoing, both = (
        {port_name(name): Path(path) for name, path in side.items()}
        for side in (inputs, outputs, ports)
    )
    if file is not None:
        if both or incoming or outgoing:
            raise ConfigError(f"{file}: not together with ports; allowed is one of them")
        both, incoming, outgoing = _ports_of(Path(file))
    for name in both:
        if name in incoming or name in outgoing:
            raise ConfigError(f"port {name} is given twice")
    sides: list[tuple[Literal["in", "out", "any"], dict[str, Path]]]
    sides = [("any", both), ("in", incoming), ("out", outgoing)]
    return [
        CapturedPort(port=port, direction=way, file=CapturedFile(path=str(path)))
        for way, side in sides
        for port, path in side.items()
    ]


def files_of(request: JoinRequest) -> list[tuple[str, Path]]:
    """Each port with its file, once also if the file is an input and an output."""
    return list(dict.fromkeys((each.port, Path(each.file.path)) for each in request.captures))


def requested(
    captures: list[CapturedPort],
    destinations: Collection[str],
    max_sojourn: str,
    rate: str | None = None,
    limit: str | None = None,
    *,
    routed: bool,
    one_clock: bool,
) -> JoinRequest:
    longest_ns = _parsed("max-sojourn", max_sojourn, parse_time_ns) or 0
    # Within 0 ns every packet would count as dropped. The join adds this to a packet's time.
    if not 0 < longest_ns <= MOST_SPAN_NS:
        raise ConfigError(
            f"--max-sojourn: {max_sojourn}; allowed is 1ns to {MOST_SPAN_NS // 10**9}s"
        )
    return JoinRequest(
        captures=captures,
        destinations=sorted({_address(text) for text in destinations}),
        routed=routed,
        one_clock=one_clock,
        max_sojourn_ns=longest_ns,
        rate_bps=_parsed("rate", rate, parse_rate_bps),
        limit_bytes=_parsed("limit", limit, parse_size_bytes),
    )


def _parsed(option: str, text: str | None, parse: Callable[[object], int]) -> int | None:
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise ConfigError(f"--{option}: {error}") from None


def _ports_of(path: Path) -> tuple[dict[str, Path], dict[str, Path], dict[str, Path]]:
    """The interfaces of a capture as ports of both directions, inputs and outputs."""
    counts = interfaces_of(path)
    if counts.keys() == {INTO, OUT_OF}:
        return {}, {INTO: path}, {OUT_OF: path}
    if len(counts) < 2 or "" in counts:
        raise ConfigError(
            f"{path}: its packets are of one interface; allowed are captures of several, as "
            "`tcpdump -i any` and `dumpcap -i eth1 -i eth2` make, or PORT=FILE for each port. "
            f"`outcast inspect {path}` shows the flows of one capture"
        )
    return {port_name(name): path for name in counts}, {}, {}


def require_interfaces(captures: Collection[PortCapture], shared: Collection[Path]) -> None:
    """Raises ConfigError if a port of a shared file is not one of its interfaces."""
    for capture in captures:
        if capture.path in shared and not capture.records:
            names = [name for name in interfaces_of(capture.path) if name]
            what = "its packets are of one interface; allowed is a file for each port"
            if len(names) > 1:
                what = f"has no packets of an interface {capture.port}, but of {', '.join(names)}"
                what += did_you_mean(capture.port, names)
            raise ConfigError(f"{capture.path}: {what}")


def require_different(captures: Sequence[PortCapture]) -> None:
    """Raises InputError if two inputs have the same packets at the same instants, as copies do."""
    for pair in combinations(captures, 2):
        few, many = sorted(pair, key=lambda capture: capture.columns.stamp_ns.size)
        if few.port == many.port or few.path == many.path or not few.columns.stamp_ns.size:
            continue
        rows = np.arange(0, few.columns.stamp_ns.size, 1 + few.columns.stamp_ns.size // SAMPLED)
        hosts = [few.flows[flow].dst for flow in few.columns.flow[rows].tolist()]
        # A switch before the ports may have flooded multicast to both.
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


def _address(text: str) -> str:
    """An address in the form that captures have it."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, text))
    except OSError:
        raise InputError(f"{text!r} is not an IP address; allowed is one as 10.0.0.1") from None


def port_name(name: str) -> str:
    if not name.isprintable() or not name.strip():
        raise ConfigError(f"{name!a}: allowed as a port's name is text that can be shown")
    return shown_name(name)
