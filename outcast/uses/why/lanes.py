"""Prepares the viewer's lanes of the senders: windows, congestion states, causes.

They come from the kernel's events of the run (`outcast trace`). A run without them has no lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from outcast.analysis import Array
from outcast.records import FOLDER, Run
from outcast.uses.why import sender_tables
from outcast.view import Columns, numbers, thin


@dataclass(frozen=True)
class Senders:
    """The senders' tables of the folder trace/. Times count from the traffic's start.

    Attributes:
        series: a row per acknowledgement, in the order of flows and times.
        retransmissions: a row per segment sent again, in the order of time. `packet` is its row in
            packets.parquet, or -1 if it did not come in.
        drops: a row per packet of a flow that was dropped, anywhere, in the order of time.
    """

    series: pl.DataFrame
    retransmissions: pl.DataFrame
    drops: pl.DataFrame

    def pairs(self) -> tuple[Array, Array]:
        """The rows in packets.parquet of dropped packets, and of their retransmissions."""
        known = self.retransmissions.filter(
            pl.col("drop_packet").is_not_null(), pl.col("packet") >= 0
        )
        return known["drop_packet"].to_numpy().astype(np.int64), known["packet"].to_numpy()

    def packed(
        self, flows: Sequence[int], place: Array, most: int
    ) -> tuple[dict[str, Any], dict[str, Columns]]:
        """A part of the header, and columns; `place` has each packet's row in the page, or -1."""
        keep, every = thin(self.series, most)
        series = self.series.filter(keep)
        texts = _Texts()
        number = {flow: at for at, flow in enumerate(flows)}

        def of_flow(frame: pl.DataFrame) -> Array:
            return frame["flow"].replace_strict(number, return_dtype=pl.Int64).to_numpy()

        def in_page(rows: pl.Series) -> Array:
            values = rows.cast(pl.Int64).fill_null(-1).to_numpy()
            return np.where(values >= 0, place[values], -1) + 1

        sent, lost = self.retransmissions, self.drops
        fired = sent.select(pl.when(pl.col("timer").is_not_null()).then("rto_ns"))
        columns: dict[str, Columns] = {
            "series": {
                "flow": ("delta", of_flow(series)),
                "t_ns": ("delta", series["t_ns"].to_numpy()),
                **{
                    name: ("delta", numbers(series[name]))
                    for name in ("cwnd", "ssthresh", "in_flight", "srtt_us", "rto_us")
                },
                "state": ("plain", texts.codes(series["state"])),
            },
            "resent": {
                "t_ns": ("delta", sent["t_ns"].to_numpy()),
                "flow": ("plain", of_flow(sent)),
                "packet": ("plain", in_page(sent["packet"])),
                "drop": ("plain", in_page(sent["drop_packet"])),
                "cause": ("plain", texts.codes(sent["cause"])),
                "lost": ("plain", _before(sent, "t_drop_ns")),
                "waited": ("plain", _before(sent, "t_detect_ns")),
                "before": ("plain", texts.codes(sent["state_before"])),
                "after": ("plain", texts.codes(sent["state_after"])),
                "detected_by": ("plain", texts.codes(sent["detected_by"])),
                "rto_ns": ("plain", numbers(fired["rto_ns"]) + 1),
                "undone": ("plain", sent["undone"].fill_null(False).cast(pl.Int64).to_numpy()),
            },
            "lost": {
                "t_ns": ("delta", lost["t_ns"].to_numpy()),
                "flow": ("plain", of_flow(lost)),
                "packet": ("plain", in_page(lost["packet"])),
                **{
                    name: ("plain", texts.codes(lost[name]))
                    for name in ("host", "port", "reason", "where", "qdisc")
                },
            },
        }
        points = {"points": self.series.height, "every": every, "texts": texts.listed}
        return points, columns


def of_run(run: Run, packets: pl.DataFrame) -> Senders | None:
    """Reads the tables; None if the run has no events of flows with packets."""
    if not {f"{FOLDER}/{name}" for name in sender_tables.TABLES} <= set(run.tables):
        return None
    flows = packets["flow"].unique()
    series, retransmissions, drops = (
        run.table(f"{FOLDER}/{name}")
        .with_columns(pl.col("flow").cast(flows.dtype))
        .filter(pl.col("flow").is_in(flows.implode()))
        for name in sender_tables.TABLES
    )
    if not series.height:
        return None
    start_ns = run.manifest.traffic.t_start_ns
    # A call that failed sent nothing.
    sent = retransmissions.filter(pl.col("error") == 0).sort("t_ns", maintain_order=True)
    return Senders(
        series.sort("flow", "t_ns", maintain_order=True),
        _located(sent, packets, start_ns),
        _at_the_queue(drops, packets, start_ns).sort("t_ns", maintain_order=True),
    )


def _located(sent: pl.DataFrame, packets: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Adds `packet`: the first with a retransmission's first byte before the next was sent."""
    arrived = packets.select(
        "flow",
        pl.col("seq").cast(pl.Int64),
        t_ns=pl.col("t_in") - start_ns,
        packet=pl.int_range(pl.len()),
    ).filter(packets["payload"] > 0)
    numbered = sent.select("flow", pl.col("seq").cast(pl.Int64), "t_ns").with_row_index("sent")
    first = (
        arrived.sort("t_ns", maintain_order=True)
        .join_asof(numbered, on="t_ns", by=["flow", "seq"], check_sortedness=False)
        .drop_nulls("sent")
        .group_by("sent")
        .agg(pl.col("packet").min())
    )
    found = sent.with_row_index("sent").join(first, on="sent", how="left", maintain_order="left")
    return found.drop("sent").with_columns(pl.col("packet").fill_null(-1))


def _at_the_queue(drops: pl.DataFrame, packets: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Gives drops at the bottleneck the packet's time, because the kernel frees it later."""
    came = packets.select(
        packet=pl.int_range(pl.len()), came_ns=pl.col("t_in") - start_ns, verdict="verdict"
    ).filter(pl.col("verdict") == "dropped")
    known = drops.with_columns(pl.col("packet").cast(pl.Int64)).join(
        came.drop("verdict"), on="packet", how="left", maintain_order="left"
    )
    return known.with_columns(t_ns=pl.coalesce("came_ns", "t_ns")).drop("came_ns")


def _before(sent: pl.DataFrame, column: str) -> Array:
    """The time from an event to each retransmission, plus 1; 0 stands for unknown."""
    return (sent["t_ns"] - sent[column] + 1).fill_null(0).clip(0).to_numpy()


class _Texts:
    """Distinct texts in the order of their first use. Code 0 stands for none."""

    def __init__(self) -> None:
        self.listed = [""]

    def codes(self, column: pl.Series) -> Array:
        texts = column.cast(pl.String).fill_null("")
        new = texts.unique(maintain_order=True).to_list()
        self.listed += [text for text in new if text not in self.listed]
        codes = {text: self.listed.index(text) for text in new}
        return texts.replace_strict(codes, return_dtype=pl.Int64).to_numpy()
