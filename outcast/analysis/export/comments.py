"""What the comment of a packet says: whether it was forwarded or dropped, where and why."""

from __future__ import annotations

from typing import Any

import polars as pl

from outcast.analysis.selection import Source

_NEW = ("chain_drops", "drop", "blackout")


def with_drops(source: Source, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds to each dropped packet its chain of drops; null for all others, and in a table alone.

    Columns: `chain_drops`, how many drops the chain has; `drop`, which of them this is, from 1;
    `blackout`, the chain's number if it is a blackout. The rows keep their order.
    """
    if source.run is None or not source.chains.height:
        return rows.with_columns(pl.lit(None, pl.Int64).alias(name) for name in _NEW)
    ports = [pl.col(name).cast(pl.String) for name in ("ingress", "egress")]
    chains = source.chains.with_columns(ports).with_row_index("chain").sort("t_start")
    nth = pl.int_range(pl.len()).over("chain") + 1
    dropped = (
        rows.filter(pl.col("verdict").cast(pl.String) == "dropped")
        .select("packet", "t_in", *ports)
        .sort("t_in", maintain_order=True)
        .join_asof(
            chains.select("chain", "ingress", "egress", "t_start", "others_through", "drops"),
            left_on="t_in",
            right_on="t_start",
            by=["ingress", "egress"],
            check_sortedness=False,
        )
        .select(
            "packet",
            pl.col("drops").cast(pl.Int64).alias("chain_drops"),
            pl.when(pl.col("chain").is_not_null()).then(nth).alias("drop"),
            pl.when(pl.col("others_through") > 0).then("chain").cast(pl.Int64).alias("blackout"),
        )
    )
    return rows.join(dropped, on="packet", how="left", maintain_order="left")


def comment(row: dict[str, Any], left: bool) -> str:
    """What became of a packet of the table, said where it came in, or where it `left`.

    The row has the columns of `with_drops`, and `limit_bytes` and `limit_packets` of its output.
    """
    if row["verdict"] == "unknown":
        return f"fate unknown: {row['note']}"
    if row["verdict"] == "forwarded":
        stayed = f"{(row['t_out'] - row['t_in']) / 1000:,.1f} us"
        if left:
            return f"left {stayed} after it came in at {row['ingress']}"
        return f"forwarded after {stayed} to {row['egress']}"
    unit = "packets" if row["limit_bytes"] is None and row["limit_packets"] is not None else "bytes"
    held, limit, parts = row[f"queue_{unit}"], row[f"limit_{unit}"], []
    if held is not None:
        parts.append(f"queue held {held:,}{f' of {limit:,}' if limit is not None else ''} {unit}")
    if row["blackout"] is not None:
        parts.append(f"blackout {row['blackout']}, drop {row['drop']} of {row['chain_drops']}")
    elif (row["chain_drops"] or 0) > 1:
        parts.append(f"drop {row['drop']} of {row['chain_drops']} in a row")
    where = f"dropped at {row['egress']}" if row["egress"] else "dropped"
    return f"{where}: {'; '.join(parts)}" if parts else where
