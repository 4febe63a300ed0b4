# %% [markdown]
# # A run's tables
#
# This is a notebook in percent format. Open it in VS Code, Spyder or Jupyter (with Jupytext), or
# run it as a program: `python notebook.py runs/unfair`.

# %%
import os
import shutil
import sys

try:
    import polars as pl

    import outcast
except ModuleNotFoundError:  # in this Python; the one of the command `outcast` knows them
    command = os.path.realpath(shutil.which("outcast") or sys.exit("no command outcast in PATH"))
    python = os.path.join(os.path.dirname(command), "python")
    os.execv(python, [python, *sys.argv])

pl.Config.set_tbl_rows(20)
run = outcast.open_run(sys.argv[1] if sys.argv[1:2] and sys.argv[1][0] != "-" else "runs/unfair")
flows, packets = run.table("flows"), run.table("packets")
start_ns = run.manifest.traffic.t_start_ns

# %% [markdown]
# ## Goodput by sender
# One row per sender: how many flows, by which port they came in, and a flow's mean goodput.

# %%
print(
    flows.group_by("src", "hops", "ingress", maintain_order=True).agg(
        pl.len().alias("flows"), (pl.mean("goodput_bps") / 1e6).alias("mean_goodput_mbps")
    )
)

# %% [markdown]
# ## Packets by port
# One row per packet that came in at the bottleneck. Times are in ns.

# %%
lone_port = flows.group_by("ingress").len().sort("len")["ingress"][0]
came = packets.select(
    (pl.col("ingress").cast(pl.String) == lone_port).alias("lone"),
    (pl.col("verdict") == "forwarded").alias("forwarded"),
    ((pl.col("t_in") - start_ns) / 1e6).alias("t_in_ms"),
    (pl.col("t_in") + 5000).alias("t_queue"),  # a packet reaches the queue 5 us after it came in
    "t_out",
    ((pl.col("queue_bytes") >= 13_356) & (pl.col("frame") >= 1514)).alias("met_full_queue"),
)
print(came.group_by("lone").agg(pl.len(), pl.mean("forwarded")))

# %% [markdown]
# ## Who came second?
# `packet_time` counts the departures before a packet reached the queue. So packets with the same
# number came between the same two departures. A packet came *second* if a packet of the other port
# had got a place in the same packet time.

# %%
departures = came["t_out"].drop_nulls().sort()
arrivals = came.sort("t_queue").with_columns(
    packet_time=departures.search_sorted(came.sort("t_queue")["t_queue"], side="right")
)


def share_that_came_second(of_lone: bool) -> float:
    """The percentage of a port's packets that came second, of those that met a full queue."""
    taken_by_other = (pl.col("lone") != of_lone) & pl.col("forwarded")
    counted = arrivals.with_columns(
        second=taken_by_other.cast(pl.Int64).cum_sum().over("packet_time") > 0
    ).filter((pl.col("lone") == of_lone) & pl.col("met_full_queue"))
    return float(100 * counted.select(pl.mean("second")).item())


if run.summary.outcast_ratio:
    print(f"{share_that_came_second(of_lone=False):.1f} % of the rivals' packets came second")
