"""Named groups in the guest: the example says who starves whom, in every place that shows it."""

import re

import polars as pl
import pytest

import configs
from outcast import cli
from outcast.records.run import Run

EXAMPLE = configs.find("fig3c").parent / "examples" / "bbr-against-cubic.yaml"


@pytest.mark.usefixtures("drawn")
def test_bbr_against_cubic_by_port(tmp_path, capsys):
    folder = tmp_path / "run"
    short = ["--set", "duration=100ms", "--set", "analysis.windows=[50ms]"]
    short += ["--set", "noise.profile=jitter"]
    assert cli.invoke(["run", str(EXAMPLE), "--engine", "virtual", *short, "-o", str(folder)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    run = Run(folder)
    compare = run.summary.compare
    assert (compare.by, compare.groups) == ("name", ("bbr", "cubic"))
    # Who starves at this buffer is no draw with this noise: seeds 3 to 6 gave ratios from 39 to 61.
    assert compare.ratio > 3
    assert run.summary.outcast_ratio is None
    assert re.search("The bbr flow got [0-9.]+ times what the cubic flow got", text)
    # Groups by name, control, port and sender are the same two flows here.
    by_name = run.summary.groups["name"]
    for kind, of_cubic in (("congestion_control", "cubic"), ("port", "s1-eth2"), ("sender", "h2")):
        groups = run.summary.groups[kind]
        assert groups[of_cubic] == by_name["cubic"]
        assert len(groups) == 2
    flows = {flow.src: flow for flow in run.manifest.flows}
    assert {src: (flow.name, flow.congestion_control) for src, flow in flows.items()} == {
        "h2": ("cubic", "cubic"),
        "h3": ("bbr", "bbr"),
    }
    assert run.table("flows").sort("src")["name"].to_list() == ["cubic", "bbr"]
    bins = run.table("throughput").filter(pl.col("name").cast(pl.String) == "bbr")
    assert set(bins["flow"]) == {flows["h3"].flow}
    page = (folder / "report.html").read_text()
    assert "bbr over cubic" in page
    assert "s1-eth3 (bbr)" in page
