# %% [markdown]
# # Reading a run's tables
#
# This is a notebook in percent format. Open it in VS Code, Spyder or Jupyter (with Jupytext), or
# run it as a program: `python notebook.py runs/unfair`. It needs only polars and matplotlib.

# %%
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl

pl.Config.set_tbl_rows(40)
RUN = Path(sys.argv[1] if len(sys.argv) > 1 and Path(sys.argv[1]).is_dir() else "runs/unfair")

# %% [markdown]
# ## The flows
# One row per flow: its sender, the port it came in by, its goodput and its drops.

# %%
flows = pl.read_parquet(RUN / "flows.parquet", glob=False)
mbps = (pl.col("goodput_bps") / 1e6).alias("goodput_mbps")
print(flows.select("flow", "src", "hops", "ingress", mbps, "packets", "dropped"))
by_sender = flows.group_by("src", maintain_order=True).agg(
    pl.len().alias("flows"), (pl.mean("goodput_bps") / 1e6).alias("mean_goodput_mbps")
)
print(by_sender)

# %% [markdown]
# ## The packets
# One row per packet that came into the bottleneck. Times are in nanoseconds.

# %%
packets = pl.read_parquet(RUN / "packets.parquet", glob=False)
start_ns = json.loads((RUN / "manifest.json").read_text())["traffic"]["t_start_ns"]
lost = packets.group_by(pl.col("ingress").cast(pl.String)).agg(
    pl.len().alias("packets"), (pl.col("verdict") == "dropped").sum().alias("dropped")
)
print(lost.with_columns((100 * pl.col("dropped") / pl.col("packets")).alias("lost_percent")))

# %% [markdown]
# ## The blackouts
# One row per chain of consecutive drops of one port. The chain is a blackout if packets of other
# ports got through meanwhile. The lone flow's port is the port with the fewest flows. A chain that
# lasts longer than a millisecond spans timeouts: one retransmission after another was lost.

# %%
lone_port = flows.group_by("ingress").len().sort("len")["ingress"][0]
blackouts = (
    pl.read_parquet(RUN / "blackouts.parquet", glob=False)
    .with_columns(
        pl.col("ingress").cast(pl.String), ((pl.col("t_start") - start_ns) / 1e6).alias("start_ms")
    )
    .filter((pl.col("ingress") == lone_port) & (pl.col("others_through") > 0))
    .filter(pl.col("t_end") - pl.col("t_start") < 1_000_000)
    .sort("drops", descending=True)
)
print(blackouts.select("start_ms", "drops", "flows", "others_through").head(5))

# %% [markdown]
# ## The queue around the longest blackout

# %%
queue = pl.read_parquet(RUN / "queue.parquet", glob=False)
if blackouts.height:
    begin_ns, end_ns = blackouts["t_start"][0] - 100_000, blackouts["t_end"][0] + 100_000
else:
    begin_ns, end_ns = start_ns, start_ns + 1_000_000
shown = queue.filter(pl.col("t").is_between(begin_ns, end_ns))
dropped = packets.filter(
    pl.col("t_in").is_between(begin_ns, end_ns) & (pl.col("verdict") == "dropped")
)
figure, axes = plt.subplots(figsize=(9, 4))
axes.step((shown["t"] - start_ns) / 1e6, shown["queue_bytes"] / 1024, where="post", label="queue")
for port, rows in dropped.group_by(pl.col("ingress").cast(pl.String)):
    axes.plot(
        (rows["t_in"] - start_ns) / 1e6, rows["queue_bytes"] / 1024, "x", label=f"lost, {port[0]}"
    )
axes.set(xlabel="ms after the traffic's start", ylabel="queue (KB)", ylim=(0, None))
axes.legend()
figure.savefig(RUN / "longest_blackout.png", dpi=150)
