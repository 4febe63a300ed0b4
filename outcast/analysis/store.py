"""The tables of an analysis, in Parquet or CSV, each written whole or not at all; and their reader.

Nothing else opens a table: polars takes `[`, `*`, `?`, `~` and `=` in a name for patterns, the
home folder and columns, and would answer with another file's rows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from outcast import files, handed_in
from outcast.analysis.compiled import Array
from outcast.analysis.join.join import Joined
from outcast.analysis.measure.blackout import Chains
from outcast.analysis.measure.queue import Queue
from outcast.errors import InputError

VERDICTS = ("forwarded", "dropped", "unknown")
NOTES = ("", "reordered", "in flight", "before output")
EVENTS = ("enqueue", "drop", "dequeue")


def names(codes: Array, texts: Sequence[str]) -> pl.Series:
    """Codes as an enumeration of texts; a negative code is null."""
    distinct = sorted(set(texts))
    place = np.array([*(distinct.index(text) for text in texts), 0], np.uint32)
    values = pl.Series(distinct or [""], dtype=pl.Enum(distinct or [""])).gather(place[codes])
    if not (codes < 0).any():
        return values
    return values.set(pl.Series(codes < 0), None)


def nullable(values: Array) -> pl.Series:
    """Integers of which the negative ones stand for null."""
    series = pl.Series(values)
    return series if not (values < 0).any() else series.set(pl.Series(values < 0), None)


def flow_numbers(joined: Joined) -> list[int]:
    """Numbers for the flows of a join, from 0, in the order in which they first came in."""
    flow = joined.arrivals.flow
    first = np.full(len(joined.flows), flow.size, np.int64)
    first[flow[::-1]] = np.arange(flow.size)[::-1]
    numbers = np.empty(first.size, np.int64)
    numbers[np.argsort(first, kind="stable")] = np.arange(first.size)
    return [int(number) for number in numbers]


def packet_table(joined: Joined, queue: Queue, flow_numbers: Sequence[int]) -> pl.DataFrame:
    """A row per packet that entered, in the order of entering; times in nanoseconds."""
    arrivals = joined.arrivals
    numbers = np.array(flow_numbers, np.int32)

    def per_flow(values: Sequence[int]) -> Array:
        return np.array(values, np.uint16)[arrivals.flow]

    return pl.DataFrame(
        {
            "flow": numbers[arrivals.flow],
            "src": names(arrivals.flow, [flow.src for flow in joined.flows]),
            "sport": per_flow([flow.sport for flow in joined.flows]),
            "dst": names(arrivals.flow, [flow.dst for flow in joined.flows]),
            "dport": per_flow([flow.dport for flow in joined.flows]),
            "ip_id": arrivals.ip_id,
            "seq": arrivals.seq,
            "payload": arrivals.payload_bytes,
            "ingress": names(arrivals.port, joined.inputs),
            "t_in": arrivals.stamp_ns,
            "verdict": names(joined.verdict, VERDICTS),
            "egress": names(joined.egress, joined.outputs),
            "t_out": nullable(joined.t_out_ns),
            "queue_bytes": nullable(queue.found_bytes),
            "queue_packets": nullable(queue.found_packets),
            "frame": arrivals.frame_bytes,
            "flags": arrivals.flags,
            "note": names(joined.note, NOTES),
        }
    )


def queue_table(joined: Joined, queue: Queue) -> pl.DataFrame:
    """A row per change of a queue: `packet` is the row in the packets' table, null for those
    that were queued when the capture began; `queue_bytes` and `queue_packets` are afterwards.
    """
    return pl.DataFrame(
        {
            "t": queue.time_ns,
            "egress": names(queue.egress, joined.outputs),
            "event": names(queue.event, EVENTS),
            "packet": nullable(queue.packet),
            "queue_bytes": queue.bytes,
            "queue_packets": queue.packets,
        }
    )


def chain_table(joined: Joined, chains: Chains) -> pl.DataFrame:
    """A row per chain of drops of one input port."""
    return pl.DataFrame(
        {
            "ingress": names(chains.ingress, joined.inputs),
            "egress": names(chains.egress, joined.outputs),
            "t_start": chains.t_start_ns,
            "t_end": chains.t_end_ns,
            "drops": chains.drops,
            "flows": chains.flows,
            "others_through": chains.others_through,
        }
    )


def write(frame: pl.DataFrame, path: Path) -> None:
    """Writes Parquet or, for a name ending in .csv, CSV. Raises InputError where it cannot."""
    try:
        with files.writing(path) as stream:
            if path.suffix == ".csv":
                frame.write_csv(stream)
            else:
                frame.write_parquet(stream, compression="snappy", statistics=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


MOST_EXPANSION = 1000
"""How many bytes of values one byte of a file may stand for; ten is usual."""
_ALWAYS_BYTES = 1 << 30
_VALUE_BYTES = 8


def read(path: Path) -> pl.DataFrame:
    """A whole table. Raises as `scan`, and where it is broken or does not fit into memory."""
    table = scan(path)
    with refusing(f"{path}: cannot be read as a table"):
        needed = _value_bytes(table)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > memory:
            raise InputError(f"{path}: needs {needed} bytes of memory; this machine has {memory}")
        return table.collect()


def scan(path: Path) -> pl.LazyFrame:
    """A table, read when it is needed; CSV where the name ends so, else Parquet.

    Raises:
        InputError: it is missing, is no table, or would expand to a multiple of its size.
    """
    with refusing(f"{path}: cannot be read as a table"):
        with handed_in.opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
        # `~` is a name here, and the home folder for polars.
        whole = path.absolute()
        if path.suffix == ".csv":
            return pl.scan_csv(whole, glob=False)
        table = pl.scan_parquet(whole, glob=False, hive_partitioning=False)
        needed = _value_bytes(table)
        if needed > max(_ALWAYS_BYTES, MOST_EXPANSION * size):
            raise InputError(
                f"{path}: {size} bytes that stand for {needed}; allowed is a factor of "
                f"{MOST_EXPANSION}"
            )
        return table


def _value_bytes(table: pl.LazyFrame) -> int:
    rows: int = table.select(pl.len()).collect().item()
    return rows * len(table.collect_schema()) * _VALUE_BYTES


BROKEN = (
    *(ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError),
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
)
"""What code raises that was given a table, or records, that are not what they say they are."""


@contextmanager
def refusing(what: str, remedy: str = "") -> Iterator[None]:
    """Around whatever uses tables or records that were handed in: InputError, saying `what`.

    They can be whole, and lack a column, or hold text where numbers are needed.
    """
    try:
        with _panics_untold():
            yield
    except InputError:
        raise
    except FileNotFoundError as error:
        name = error.filename or what
        raise InputError(f"{name}: there is no such file{remedy}") from error
    except BROKEN as error:
        first = (str(error).splitlines() or [""])[0]
        told = isinstance(error, (OSError, pl.exceptions.PolarsError))
        why = first if told else f"{type(error).__name__}: {first}"
        raise InputError(f"{what}: {why}{remedy}") from error


@contextmanager
def _panics_untold() -> Iterator[None]:
    """Keeps the stack that polars prints for a broken file off standard error."""
    # Two threads that exchange the descriptor would not put it back in the right order.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        outside = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with os.fdopen(os.memfd_create("stderr"), "r+b", buffering=0) as kept:
        panicked = False
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except pl.exceptions.PanicException:
            panicked = True
            raise
        finally:
            os.dup2(outside, 2)
            os.close(outside)
            kept.seek(0)
            if not panicked and (told := kept.read()):
                os.write(2, told)
