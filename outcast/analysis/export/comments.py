"""What the comment of a packet says: whether it was forwarded or dropped, where and why."""

from __future__ import annotations

from typing import Any

import polars as pl

from outcast.analysis.selection import Source

Row = dict[str, Any]
"""A packet of the table, with the columns of `with_drops` and `queue_limit` and `limit_unit`."""


_OF_CHAIN = ("ingress", "egress", "t_start", "others_through")


def with_drops(source: Source, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds to each dropped packet its chain of drops; null for all others, and in a table alone.

    Columns: `chain_drops`, how many drops the chain has; `drop`, which of them this is, from 1;
    `blackout`, the chain's number if it is a blackout. The rows keep their order.
    """
    empty = [pl.lit(None, pl.Int64).alias(name) for name in ("chain_drops", "drop", "blackout")]
    if source.run is None:
        return rows.with_columns(empty)
    ports = [pl.col(name).cast(pl.String) for name in ("ingress", "egress")]
    chains = (
        source.run.table("blackouts", whole=True)
        .with_columns(ports)
        .with_row_index("chain")
        .select("chain", *_OF_CHAIN, pl.col("drops").cast(pl.Int64))
        .sort("t_start", maintain_order=True)
    )
    if not chains.height:
        return rows.with_columns(empty)
    dropped = (
        rows.filter(pl.col("verdict").cast(pl.String) == "dropped")
        .select("packet", "t_in", *ports)
        .sort("t_in", maintain_order=True)
        .join_asof(
            chains,
            left_on="t_in",
            right_on="t_start",
            by=["ingress", "egress"],
            check_sortedness=False,
        )
        .select(
            "packet",
            pl.col("drops").alias("chain_drops"),
            pl.when(pl.col("chain").is_not_null())
            .then(pl.int_range(pl.len()).over("chain") + 1)
            .alias("drop"),
            pl.when(pl.col("others_through") > 0).then("chain").cast(pl.Int64).alias("blackout"),
        )
    )
    return rows.join(dropped, on="packet", how="left", maintain_order="left")


def duration(time_ns: int) -> str:
    """A time as comments tell it: `121.2 us` or `12.34 ms`."""
    if time_ns < 1_000_000:
        return f"{time_ns / 1e3:.1f} us"
    return f"{time_ns / 1e6:.2f} ms" if time_ns < 10**9 else f"{time_ns / 1e9:.3f} s"


def came(row: Row, number_there: int | None) -> str:
    """The comment of a packet where it came in; `number_there` is its number at the output."""
    match row["verdict"]:
        case "dropped":
            return _dropped(row)
        case "forwarded":
            sojourn = duration(row["t_out"] - row["t_in"])
            there = "" if number_there is None else f", packet {number_there} there"
            return f"forwarded after {sojourn} to {row['egress']}{there}"
        case _:
            port = row["egress"] or "the output"
            if row["note"] == "before output":
                return f"fate unknown: came in before the capture of {port} began"
            return f"fate unknown: still queued when the capture of {port} ended"


def _dropped(row: Row) -> str:
    held, unit, limit = row["queue_bytes"], "bytes", row["limit_bytes"]
    if row["limit_bytes"] is None and row["limit_packets"] is not None:
        held, unit, limit = row["queue_packets"], "packets", row["limit_packets"]
    parts = []
    if held is not None:
        parts.append(f"queue held {held:,}{f' of {limit:,}' if limit is not None else ''} {unit}")
    if row["drop"] is not None:
        chain = f"drop {row['drop']} of {row['chain_drops']}"
        if row["blackout"] is not None:
            parts.append(f"blackout {row['blackout']}, {chain}")
        elif row["chain_drops"] > 1:
            parts.append(f"{chain} in a row")
    where = f"dropped at {row['egress']}" if row["egress"] else "dropped"
    return f"{where}: {'; '.join(parts)}" if parts else where


def left(row: Row, number_there: int | None) -> str:
    """The comment of a packet where it left; `number_there` is its number at the input."""
    there = "" if number_there is None else f", packet {number_there} there"
    sojourn = duration(row["t_out"] - row["t_in"])
    return f"left {sojourn} after it came in at {row['ingress']}{there}"


def not_joined(direction: str, dst: str | None, is_joined: bool, is_output: bool) -> str:
    """The comment of a packet that the table does not have, by its capture's direction.

    `dst` is None if it is no IP packet or its headers were not captured. `is_joined` says whether
    packets of the table go there too, and `is_output` whether the port's queue was studied.
    """
    if dst is None:
        return "not joined: no IP packet with all its headers"
    if not is_joined:
        return f"not joined: to {dst}, away from the queue"
    if is_output and direction != "in":
        return "not joined: nobody saw it come in"
    return "not joined: this capture has no part in the join"
