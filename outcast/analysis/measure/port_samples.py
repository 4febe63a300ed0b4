"""Queues over time, from the kernel's statistics that `outcast.emulation.sampling` stored."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl

from outcast import netlink
from outcast.errors import InputError, ReadBackError
from outcast.records.queue_statistics import statistics
from outcast.records.samples import read_samples

_COLUMNS = (
    "backlog_bytes",
    "backlog_packets",
    "drops",
    "marks",
    "sent_packets",
    "sent_bytes",
    "overlimits",
)

_MESSAGE = struct.Struct("=I12x B3xiI8x")
"""struct nlmsghdr, of which its length is read, and struct tcmsg (rtnetlink(7)) to the handle."""
_TCA_KIND, _TCA_STATS2 = 1, 7
_COUNTERS = {
    "TCA_STATS_BASIC": (1, struct.Struct("=QI"), ("bytes", "packets")),
    "TCA_STATS_QUEUE": (
        3,
        struct.Struct("=5I"),
        ("qlen", "backlog", "drops", "requeues", "overlimits"),
    ),
}
"""Attributes of TCA_STATS2 with their types, layouts and fields (uapi/linux/gen_stats.h)."""
_TCA_STATS_APP = 4
_MOST = 2**63 - 1


def port_table(path: Path, t_start_ns: int) -> pl.DataFrame:
    """One row per sample of a port's queue, in the order of time.

    Args:
        path: the file of samples.
        t_start_ns: the traffic's start. `t` is in nanoseconds after it.

    Returns:
        `t`, `port`, and the columns of `outcast.records.queue_statistics`: what is queued at that
        time, and how many packets were dropped, marked and sent since the queue was made.

    Raises:
        InputError: if the file cannot be read, or if a sample is cut off, lacks a counter or is of
            another kind of queue.
    """
    file = read_samples(path)
    shown: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    for sample in file.samples:
        shown[sample.t_ns - t_start_ns, sample.source].append(sample.message)
    rows: list[dict[str, int | str]] = []
    for (t_ns, number), messages in shown.items():
        source = file.sources[number]
        try:
            numbers = statistics([_shown(message) for message in messages])
        except struct.error:
            raise InputError(f"{path}: {source}: a message of the kernel is cut off") from None
        except (ReadBackError, ValueError) as error:
            raise InputError(f"{path}: {source}: {error}") from None
        rows.append({"t": t_ns, "port": source, **numbers})
    schema = {"t": pl.Int64, "port": pl.String, **dict.fromkeys(_COLUMNS, pl.Int64)}
    return pl.DataFrame(rows, schema=schema)


class _Shown(dict[str, Any]):
    """A qdisc's message, as far as its statistics are read, in the form of pyroute2's.

    pyroute2 itself would take a tenth of an analysis of a small run, most of it to be imported.
    """

    def get_attr(self, name: str) -> Any:
        """An attribute by its name; None where there is none."""
        return self.get(name)


def _shown(message: bytes) -> _Shown:
    """What a message of RTM_NEWQDISC says.

    Raises:
        struct.error: it is cut off.
        ValueError: it lacks its kind or a counter, or a counter is beyond what a table holds.
    """
    length, _, _, handle = _MESSAGE.unpack_from(message)
    if length > len(message):
        raise struct.error
    of_qdisc = message[_MESSAGE.size :]
    kind = _required(of_qdisc, _TCA_KIND, "TCA_KIND").rstrip(b"\0").decode("ascii", "replace")
    counted = _of_statistics(_required(of_qdisc, _TCA_STATS2, "TCA_STATS2"))
    return _Shown(event="RTM_NEWQDISC", handle=handle, TCA_KIND=kind, TCA_STATS2=counted)


def _of_statistics(raw: bytes) -> _Shown:
    """The attributes of TCA_STATS2. Raises what `_shown` does."""
    shown = _Shown()
    for name, (kind, form, fields) in _COUNTERS.items():
        counters = form.unpack_from(_required(raw, kind, name))
        if max(counters) > _MOST:
            raise ValueError(f"{name} counts {max(counters)}; allowed is what 63 bits hold")
        shown[name] = dict(zip(fields, counters, strict=True))
    if (own := netlink.attribute(raw, _TCA_STATS_APP)) is not None:
        shown["TCA_STATS_APP"] = own.hex(":")
    return shown


def _required(raw: bytes, kind: int, name: str) -> bytes:
    value = netlink.attribute(raw, kind)
    if value is None:
        raise ValueError(f"a message of the kernel lacks {name}")
    return value
