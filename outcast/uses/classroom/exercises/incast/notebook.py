# %% [markdown]
# # Rounds of an incast
#
# This is a notebook in percent format. Open it in VS Code, Spyder or Jupyter (with Jupytext), or
# run it as a program: `python notebook.py runs/many`.

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

run = outcast.open_run(sys.argv[1] if sys.argv[1:2] and sys.argv[1][0] != "-" else "runs/many")

# %% [markdown]
# ## Rounds
# One row per block in `completions`: the round, the server, when it was requested and when its last
# byte arrived, in ns after the traffic's start.

# %%
blocks = run.table("completions").sort("t_end")
rounds = blocks.group_by("round").agg(
    pl.len().alias("blocks"),
    (pl.min("t_start") / 1e6).alias("asked_ms"),
    ((pl.max("t_end") - pl.min("t_start")) / 1e6).alias("took_ms"),
    pl.last("src").alias("last_server"),
)
print(rounds.sort("round"))
print(f"a round took {rounds.select(pl.mean('took_ms')).item():.2f} ms on average")

# %% [markdown]
# ## Goodput
# From the first request to the last byte.

# %%
took_s = blocks.select((pl.max("t_end") - pl.min("t_start")) / 1e9).item()
size_bytes = blocks.select(pl.sum("size_bytes")).item()
print(f"goodput: {8 * size_bytes / took_s / 1e6:.1f} Mbps in {took_s:.3f} s")

# %% [markdown]
# ## Packets at the switch
# One row per packet on the way to the reader; `frame` is its length on the link in bytes.

# %%
packets = run.table("packets")
print(
    packets.group_by(pl.col("verdict").cast(pl.String)).agg(
        pl.len(), pl.col("frame").sum().alias("frame_bytes")
    )
)

# %% [markdown]
# ## When packets left for the reader
# In ms after the traffic's start. `diff` of a column is the time since the row before.

# %%
start_ns = run.manifest.traffic.t_start_ns
departures = packets.select(left_ms=(pl.col("t_out") - start_ns) / 1e6).drop_nulls().sort("left_ms")
print(departures.filter(pl.col("left_ms") > 0).head(5))
