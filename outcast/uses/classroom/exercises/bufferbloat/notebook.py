# %% [markdown]
# # A call beside a download
#
# This is a notebook in percent format. Open it in VS Code, Spyder or Jupyter (with Jupytext), or
# run it as a program: `python notebook.py runs/deep`.

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

run = outcast.open_run(sys.argv[1] if sys.argv[1:2] and sys.argv[1][0] != "-" else "runs/deep")
start_ns = run.manifest.traffic.t_start_ns

# %% [markdown]
# ## How long packets waited at the modem
# One row per packet that came to the modem. The call's come from 10.0.0.1, the download's from
# 10.0.0.2. The download begins after 1 s.

# %%
packets = run.table("packets").with_columns(
    pl.col("src").cast(pl.String),
    second=(pl.col("t_in") - start_ns) // 1_000_000_000,
    wait_ms=(pl.col("t_out") - pl.col("t_in")) / 1e6,
)
call = packets.filter(pl.col("src") == "10.0.0.1")
print(
    call.group_by("second", maintain_order=True).agg(
        pl.median("wait_ms"), pl.max("wait_ms").alias("most")
    )
)
loaded = call.filter(pl.col("t_in") >= start_ns + 2_000_000_000)
wait_ms = loaded.select(pl.median("wait_ms")).item()
print(f"from 2 s on, the call's packets waited {wait_ms:.2f} ms in the median")

# %% [markdown]
# ## What the download's sender saw
# The kernel was asked every 10 ms: the window in packets, and the smoothed round-trip time.

# %%
sockets = run.table("sockets")
print(sockets.select("t", "cwnd", "srtt_us").gather_every(50))
loaded = sockets.filter(pl.col("t") >= 2_000_000_000)
rtt_ms = loaded.select(pl.median("srtt_us")).item() / 1e3
print(f"from 2 s on, the round-trip time was {rtt_ms:.2f} ms in the median")
goodput = pl.col("goodput_bps") / 1e6
print(run.table("flows").select("name", "packets", "dropped", goodput_mbps=goodput))
