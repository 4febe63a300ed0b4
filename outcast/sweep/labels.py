"""What swept keys and their values are called: on axes, in legends and in tables for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outcast import units
from outcast.experiment import Experiment
from outcast.sweep.points import as_text

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
    """What the keys of a sweep are called: by its `labels`, or as they are."""

    def __init__(self, experiment: Experiment) -> None:
        self._own = experiment.sweep.labels if experiment.sweep is not None else {}

    def key(self, key: str) -> str:
        """What a key is called."""
        return self._own.get(key, key)

    def axis(self, key: str, values: Sequence[object]) -> Axis:
        """The axis for these values of a key, in this order."""
        found = [amount(value) for value in values]
        kinds = {part[0] for part in found if part is not None}
        if None in found or len(kinds) != 1:
            return Axis(self.key(key), tuple(map(value_text, values)), None)
        amounts = [part[1] for part in found if part is not None]
        unit, divisor = _unit(kinds.pop(), amounts)
        label = f"{self.key(key)} ({unit})" if unit else self.key(key)
        return Axis(label, tuple(f"{part / divisor:.6g}" for part in amounts), tuple(amounts))


def value_text(value: object) -> str:
    """A value as text; a point that does not set the key leaves it as configured."""
    return "as configured" if value is None else as_text(value)


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
