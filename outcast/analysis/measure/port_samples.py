"""Queues over time, from the kernel's statistics that `outcast.emulation.sampling` stored."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
from pyroute2.netlink.rtnl.tcmsg import tcmsg

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


def port_table(path: Path, t_start_ns: int) -> pl.DataFrame:
    """One row per sample of a port's queue, in the order of time.

    Args:
        path: the file of samples.
        t_start_ns: the traffic's start. `t` is in nanoseconds after it.

    Returns:
        `t`, `port`, and the columns of `outcast.records.queue_statistics`: what is queued at that
        time, and how many packets were dropped, marked and sent since the queue was made.

    Raises:
        InputError: if the file cannot be read, or if a sample is of another kind of queue.
    """
    file = read_samples(path)
    shown: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for sample in file.samples:
        message = tcmsg(sample.message)
        message.decode()
        message["event"] = "RTM_NEWQDISC"
        shown[sample.t_ns - t_start_ns, sample.source].append(message)
    rows = []
    for (t_ns, source), messages in shown.items():
        try:
            numbers = statistics(messages)
        except ReadBackError as error:
            raise InputError(f"{path}: {file.sources[source]}: {error}") from None
        rows.append({"t": t_ns, "port": file.sources[source], **numbers})
    schema = {"t": pl.Int64, "port": pl.String, **dict.fromkeys(_COLUMNS, pl.Int64)}
    return pl.DataFrame(rows, schema=schema)
