"""Late starts: a flow that waits for its own neither fails nor holds others back."""

import polars as pl
import pytest

from tests import guest_runs

CONFIG = """
name: late
topology: {{kind: star, hosts: 3}}
links: {{rate: 10mbit, delay: 1ms}}
queue: {{kind: tbf, limit: 32KB}}
flows:
  - {{from: h2, to: h1, start: {starts[0]}}}
  - {{from: h3, to: h1, start: {starts[1]}}}
duration: 5s
"""


@pytest.mark.parametrize(("starts", "early"), [(("4.505s", "5ms"), 1), (("5ms", "4.505s"), 0)])
def test_a_late_flow_holds_no_other_back(starts, early, tmp_path):
    """Our own sender sends both; iperf's server would wait for one, and give it up after 4 s."""
    config = tmp_path / "late.yaml"
    config.write_text(CONFIG.format(starts=starts))
    guest_runs.run(config, tmp_path / "run")
    t_start_ns = guest_runs.manifest_of(tmp_path / "run")["traffic"]["t_start_ns"]
    times_s = (pl.col("t_in") - t_start_ns) / 1e9
    packets = pl.read_parquet(tmp_path / "run/packets.parquet").with_columns(s=times_s)
    sent = packets.filter(pl.col("s").is_between(0, 4), pl.col("payload") > 0)
    assert set(sent["flow"]) == {early}
    # 10 Mbps are 812 frames of 1,538 bytes a second.
    assert sent.height > 0.95 * 4 * 812
