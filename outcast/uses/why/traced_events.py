"""Lists the kernel's events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from outcast.records import Run
from outcast.uses.why.recorded_events import Wanted, own_fields, require_some, rows
from outcast.view import forms

_COLUMNS = ("t_ns", "event", "host", "port", "flow", "packet")


_FORMS = ("{:>14}", "{:28}", "{:9}", "{:10}", "{:>4}", "{:>7}")


_LEFT_OUT = (
    *("dev", "ifindex", "txq_state", "saddr_v6", "daddr_v6", "family", "mark", "protocol"),
    *("saddr", "sport", "daddr", "dport"),
)
"""Fields that a table for people leaves out: the columns and the addresses say the same."""


def lines(run: Run, wanted: Wanted, form: str) -> Iterator[str]:
    """Gives the events as lines of text. Raises as `rows`, and ConfigError if no event fits."""
    require_some(run, wanted)
    if form == "table":
        yield _line(("time (ms)", "event", "host", "port", "flow", "packet"), "what")
    if form == "csv":
        yield forms.csv_line([*_COLUMNS, "fields"])
    for event, row in rows(run, wanted):
        if form == "json":
            own = {name: value for name, value in row.items() if not isinstance(value, bytes)}
            yield json.dumps({"event": event, **own})
        elif form == "csv":
            first = {"event": event, **row}
            yield forms.csv_line([*(first[name] for name in _COLUMNS), json.dumps(own_fields(row))])
        else:
            first = {**row, "event": event, "t_ns": f"{row['t_ns'] / 1e6:.6f}"}
            yield _line(tuple(first[name] for name in _COLUMNS), _what(row))


def _what(row: dict[str, Any]) -> str:
    fields = own_fields(row)
    ends = [fields.get(name) for name in ("saddr", "sport", "daddr", "dport")]
    between = [] if None in ends else ["{}:{}>{}:{}".format(*ends)]
    for name in ("handle", "parent"):
        if name in fields:
            fields[name] = _handle(fields[name])
    rest = [f"{name}={value}" for name, value in fields.items() if name not in _LEFT_OUT]
    return " ".join([*between, *rest])


def _handle(number: int) -> str:
    """A qdisc's handle as tc(8) writes it."""
    major, minor = divmod(number, 1 << 16)
    if number == 0xFFFF_FFFF:
        return "root"
    return f"{major:x}:{minor:x}" if minor else f"{major:x}:"


def _line(cells: tuple[Any, ...], last: str) -> str:
    texts = ["" if cell is None else str(cell) for cell in cells]
    padded = [form.format(text) for form, text in zip(_FORMS, texts, strict=True)]
    return "  ".join([*padded, last]).rstrip()
