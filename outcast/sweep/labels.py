"""Swept keys and their values in words: on axes, in legends and in tables for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outcast import units
from outcast.experiment import Experiment
from outcast.sweep.points import as_text
from outcast.view.report.experiment import spaced

_NAMES = {
    "links.rate": "link rate",
    "links.delay": "link delay",
    "links.jitter": "link jitter",
    "links.clock_offset_ppm": "clock offset (ppm)",
    "noise.profile": "noise",
    "queue": "queue",
    "queue.kind": "queue",
    "routing.kind": "routing",
    "topology.kind": "topology",
    "topology.k": "k of the fat-tree",
    "transport.min_rto": "minimum RTO",
    "transport.ecn": "ECN",
    "transport.sack": "SACK",
    "transport.mptcp": "MPTCP",
    "transport.tcprand": "TCPRand",
}
"""Keys whose name alone is not how people call them."""
_SILENT = ("topology", "transport", "routing")
"""Parts whose keys are clear without them: `transport.congestion_control` is enough as it is."""
_SCALES: dict[str, tuple[tuple[str, float], ...]] = {
    "size": (("MB", 1024.0**2), ("KB", 1024.0), ("bytes", 1.0)),
    "rate": (("Mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)),
    "time": (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)),
    "packets": (("packets", 1.0),),
    "bdp": (("BDP", 1.0),),
    "number": (("", 1.0),),
}
"""The units of each kind of amount, the largest first, with what a base unit is divided by."""


@dataclass(frozen=True)
class Axis:
    """The axis of a swept key; `amounts` is None if one of the values is no number, as a name."""

    label: str
    ticks: tuple[str, ...]
    amounts: tuple[float, ...] | None


class Labels:
    """How the keys of a sweep are called: by its `labels`, or by what the keys mean."""

    def __init__(self, experiment: Experiment) -> None:
        self._groups = [flow.name for flow in experiment.flows]
        self._own = experiment.sweep.labels if experiment.sweep is not None else {}

    def key(self, key: str) -> str:
        """A key in words: `queue limit`, `hosts of flows 1`."""
        own = self._own.get(key) or _NAMES.get(key)
        if own is not None:
            return own
        first, *rest = key.split(".")
        if rest and rest[0].isdigit():
            return f"{_words(rest[1:])} of {self._part(first, int(rest[0]))}".removeprefix(" of ")
        if rest and first in _SILENT:
            return _words(rest)
        return _words([first, *rest])

    def _part(self, part: str, place: int) -> str:
        """One of the items of a list, as `flows 1`; by its name if it has one."""
        name = self._groups[place] if part == "flows" and place < len(self._groups) else None
        return name or f"{part.removesuffix('s') if part != 'flows' else part} {place}"

    def value(self, key: str, value: object) -> str:
        """A value in words: `16 KB`, `tbf, 64 KB`, `cubic`, `on`."""
        if value is None:
            return "as configured"
        if isinstance(value, bool) or value in ("true", "false"):
            return "on" if value in (True, "true") else "off"
        text = as_text(value)
        if "=" in text:
            return _mapping(text)
        return spaced(text) if amount(text) is not None else text

    def axis(self, key: str, values: Sequence[object]) -> Axis:
        """The axis for these values of a key, in this order."""
        found = [amount(value) for value in values]
        kinds = {part[0] for part in found if part is not None}
        if None in found or len(kinds) != 1:
            return Axis(self.key(key), tuple(self.value(key, value) for value in values), None)
        amounts = [part[1] for part in found if part is not None]
        unit, divisor = _unit(kinds.pop(), amounts)
        label = f"{self.key(key)} ({unit})" if unit else self.key(key)
        return Axis(label, tuple(f"{part / divisor:.6g}" for part in amounts), tuple(amounts))


def _words(parts: Sequence[str]) -> str:
    return " ".join(parts).replace("_", " ")


def _mapping(text: str) -> str:
    """`tbf limit=64KB` is `tbf, 64 KB`: the unit of a limit or a rate says what it is."""
    # A value can hold a space, as `11 packets`, so a pair ends where the next one begins.
    parts = re.split(r"\s+(?=[\w.]+=)", text)
    words = []
    for part in parts:
        key, separator, value = part.partition("=")
        if not separator:
            words.append(part)
        elif key in ("limit", "rate"):
            words.append(spaced(value))
        else:
            words.append(f"{key.replace('_', ' ')} {spaced(value)}")
    return ", ".join(words)


def amount(value: object) -> tuple[str, float] | None:
    """The kind and the number of `16KB`, `1gbit`, `2ms`, `11 packets`, `1 bdp` or a number.

    Sizes are in bytes, rates in bit/s, times in nanoseconds. None of all else.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return "number", float(value)
    text = str(value)
    first, _, rest = text.partition(" ")
    if rest in ("packets", "packet", "p") and first.isdigit():
        return "packets", float(first)
    if products := re.fullmatch(r"\s*([0-9.]+)\s*bdp\s*", text, re.IGNORECASE):
        return "bdp", float(products[1])
    parsers: tuple[tuple[str, Any], ...] = (
        ("size", units.parse_size_bytes),
        ("rate", units.parse_rate_bps),
        ("time", units.parse_time_ns),
    )
    for kind, parse in parsers:
        try:
            return kind, float(parse(text))
        except ValueError:
            continue
    return None


def _unit(kind: str, amounts: Sequence[float]) -> tuple[str, float]:
    """The largest unit in which no amount above zero is below 1; else the smallest."""
    above = [part for part in amounts if part > 0]
    for unit, divisor in _SCALES[kind]:
        if above and min(above) >= divisor:
            return unit, divisor
    return _SCALES[kind][-1]
