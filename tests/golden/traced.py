"""The tables that the kernel's events of a run give, made up for a run of the reference switch."""

import numpy as np
import polars as pl

from outcast.analysis.measure.segments import segments
from outcast.records.run_directory import RunDirectory
from outcast.records.trace import FOLDER
from outcast.uses.why.sender_tables import write_sender_table

ON_THE_WAY_NS = 20_000
"""From a sender to the switch."""


def write_trace(directory: RunDirectory) -> None:
    """Writes trace/tcp, retransmissions and drops of an analysed run.

    Each packet sent again has its cause by turns. A window grows by one with each packet of its
    flow, and is halved by each retransmission.
    """
    folder = directory.path / FOLDER
    folder.mkdir(exist_ok=True)
    start_ns = directory.read_manifest().traffic.t_start_ns
    packets = pl.read_parquet(directory.path / "packets.parquet").with_row_index("packet")
    packets = packets.with_columns(t_ns=pl.col("t_in") - start_ns)
    dropped = packets.filter(pl.col("verdict") == "dropped")
    write_sender_table(
        folder,
        "drops",
        dropped.select(
            "t_ns",
            pl.lit("s1").alias("host"),
            pl.col("egress").cast(pl.String).alias("port"),
            pl.col("flow").cast(pl.Int64),
            pl.col("seq").cast(pl.Int64),
            pl.lit("QDISC_DROP").alias("reason"),
            pl.lit("tbf_enqueue").alias("where"),
            pl.lit("tbf").alias("qdisc"),
            "packet",
        ),
    )
    lost = (packets["verdict"] == "dropped").to_numpy()
    fields = ("seq", "payload", "flags", "ip_id")
    seq, payload, flags, ip_id = (packets[name].to_numpy() for name in fields)
    following = segments(packets["flow"].to_numpy(), seq, payload, flags, lost, ip_id).following
    earlier = np.flatnonzero(following >= 0)
    later = following[earlier]
    order = np.argsort(later, kind="stable")
    earlier, later = earlier[order], later[order]
    by_turns = np.arange(later.size) % 3
    sent_ns = packets["t_ns"].to_numpy()[later] - ON_THE_WAY_NS
    causes = np.array(["rto", "rack", "tlp"])[by_turns]
    write_sender_table(
        folder,
        "retransmissions",
        pl.DataFrame(
            {
                "t_ns": sent_ns,
                "flow": packets["flow"].to_numpy()[later].astype(np.int64),
                "seq": seq[later].astype(np.int64),
                "cause": causes,
                "t_drop_ns": packets["t_ns"].to_numpy()[earlier],
                "drop_packet": pl.Series(earlier.astype(np.uint32)).set(
                    pl.Series(~lost[earlier]), None
                ),
                "t_detect_ns": sent_ns - 1_000,
                "state_before": np.array(["open", "disorder", "open"])[by_turns],
                "state_after": np.array(["loss", "recovery", "open"])[by_turns],
                "timer": np.array(["rto", None, "tlp"], dtype=object)[by_turns],
                "rto_ns": np.full(later.size, 2_000_000),
                "undone": ~lost[earlier],
                "end_seq": (seq[later].astype(np.int64) + payload[later]) % (1 << 32),
                "segments": 1,
                "counter": None,
                "detected_by": np.array(["tcp_retransmit_timer", "rack", None], dtype=object)[
                    by_turns
                ],
                "error": 0,
            }
        ),
    )
    resent = np.zeros(packets.height, np.bool_)
    resent[later] = True
    rows = []
    for (flow,), part in packets.with_columns(resent=pl.Series(resent)).group_by(
        ["flow"], maintain_order=True
    ):
        window, threshold = 10, None
        for t_ns, again in part.select("t_ns", "resent").iter_rows():
            window += 1
            if again:
                window = threshold = max(2, window // 2)
            state = "recovery" if again else "open"
            rows.append((t_ns, flow, window, threshold, 300, 2_300, window - 1, state))
    names = ("t_ns", "flow", "cwnd", "ssthresh", "srtt_us", "rto_us", "in_flight", "state")
    series = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    write_sender_table(folder, "tcp", series)
