"""Queues over time, from the kernel's statistics that `outcast.emulation.sampling` stored."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

import polars as pl

from outcast.errors import InputError, ReadBackError
from outcast.records.queue_statistics import read_message, statistics
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

    `t` is in nanoseconds after the traffic's start.

    Returns:
        `t`, `port`, and the columns of `outcast.records.queue_statistics`: what is queued at that
        time, and how many packets were dropped, marked and sent since the queue was made.

    Raises InputError if the file cannot be read, or if a sample is cut off, lacks a counter or
    is of another kind of queue.
    """
    file = read_samples(path)
    samples: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    for sample in file.samples:
        samples[sample.t_ns - t_start_ns, sample.source].append(sample.message)
    rows: list[dict[str, int | str]] = []
    for (t_ns, number), messages in samples.items():
        source = file.sources[number]
        try:
            numbers = statistics([read_message(message) for message in messages])
        except struct.error:
            raise InputError(f"{path}: {source}: a message of the kernel is cut off") from None
        except (ReadBackError, ValueError) as error:
            raise InputError(f"{path}: {source}: {error}") from None
        rows.append({"t": t_ns, "port": source, **numbers})
    schema = {"t": pl.Int64, "port": pl.String, **dict.fromkeys(_COLUMNS, pl.Int64)}
    return pl.DataFrame(rows, schema=schema)
