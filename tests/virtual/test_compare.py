"""Two experiments compared for real: a planted difference of three percent, as a test in CI."""

import json

from outcast.cli import invoke
from tests.virtual.test_sweep import CONFIG


def test_a_rate_three_percent_lower_is_worse(tmp_path, capsys):
    config = tmp_path / "small.yaml"
    config.write_text(CONFIG.partition("sweep:")[0])
    words = ["compare", str(config), "--against", "links.rate=97mbit", "--seeds", "6"]
    words += ["--value", "total_goodput_bps", "-o", str(tmp_path / "compare")]
    assert invoke(words) == 4
    assert "links.rate 100mbit (A) and 97mbit (B)" in capsys.readouterr().out
    record = json.loads((tmp_path / "compare/compare.json").read_text())
    (found,) = record["differences"]
    assert -0.04 < found["mean"] / found["mean_a"] < -0.02
    # What B may lose is part of the question; all runs are there already.
    assert invoke([*words, "--resume", "--margin", "5%"]) == 0
