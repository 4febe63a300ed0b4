"""The analysis of a run directory: what is stored, what is refused, what does not agree."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from outcast.analysis import analyze, compute, require_agreement, write
from outcast.analysis.measure.flows import tcp_of_flow
from outcast.analysis.run_analysis import Interval
from outcast.cli import invoke as outcast
from outcast.errors import UntrustedError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.view import report
from tests.golden import model
from tests.golden.run_directory import write_run
from tests.json_files import edit

DURATION_NS = 100_000_000


@pytest.fixture(scope="module")
def traffic() -> model.Traffic:
    return model.drop_tail(model.make_traffic(7, 8_000), 16_384, 10**9)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory, traffic) -> RunDirectory:
    return write_run(tmp_path_factory.mktemp("pristine") / "run", traffic, DURATION_NS)


@pytest.fixture
def run(tmp_path, pristine) -> RunDirectory:
    shutil.copytree(pristine.path, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def test_the_contract_of_summary_json(run, traffic):
    summary = analyze(run)
    tree = json.loads(run.summary.read_text())
    assert {
        *("engine", "duration_s", "jain_index", "total_goodput_bps", "classes", "outcast_ratio"),
        *("windows", "drops", "capture", "wall_s"),
    } <= tree.keys()
    assert tree["engine"] == "realtime"
    assert tree["duration_s"] == 0.1
    assert tree["wall_s"] == {"setup": 1.5, "traffic": 0.5}
    assert list(tree["classes"]) == ["2", "3"]
    assert tree["classes"]["3"]["flows"] == 12
    assert tree["classes"]["3"]["timeouts"] == 24
    assert tree["classes"]["3"]["retransmits"] == sum(range(1, 13))
    assert tree["classes"]["2"]["retransmits"] == 0
    assert tree["classes"]["3"]["halted_s"] == tree["tcp"]["3"]["halted_s"]
    # Nothing was sampled, and the acknowledgements were not captured.
    assert tree["samples"] is tree["synchronisation"] is tree["classes"]["2"]["srtt_ms"] is None
    assert tree["classes"]["2"]["rtt_ms"] is None
    assert tree["warnings"] == []
    assert tree["convergence"] == [{"t_s": 0.0, "flows": 13, "fair_after_s": None}]
    packets = pl.read_parquet(run.path / "packets.parquet")
    begin = run.read_manifest().traffic.t_start_ns
    left = packets.filter((pl.col("t_out") >= begin) & (pl.col("t_out") < begin + 10**8))
    used = left["frame"].sum() * 8 / (0.1 * 10**9)
    assert tree["queue"]["s1-eth1"]["utilisation"] == pytest.approx(used)
    (fairness,) = tree["fairness"].values()
    assert 0 < fairness["min"] <= fairness["mean"] <= 1
    dropped = traffic.t_out < 0
    assert tree["capture"] == {
        "tcpdump_kernel_drops": 0,
        "inferred_drops": int(dropped.sum()),
        "qdisc_drops": int(dropped.sum()),
        "blackout_drops": 0,
        "link_down_drops": 0,
        "unmatched": 0,
        "in_flight": 0,
        "trusted": True,
        "reasons": [],
    }
    require_agreement(summary)
    for port in (0, 1):
        drops = tree["drops"][f"s1-eth{2 + port}"]
        assert drops["packets"] == int((traffic.port == port).sum())
        assert drops["dropped"] == int((dropped & (traffic.port == port)).sum())
        assert sum(int(k) * v for k, v in drops["chains"].items()) == drops["dropped"]
        assert drops["longest_chain"] == max(map(int, drops["chains"]))
        assert drops["hops"] == [2 + port]


def unique_bytes(traffic: model.Traffic, address: int, start: int, end: int) -> int:
    """Payload bytes of a sender that left in [start, end) for the first time, one by one."""
    seen: dict[int, int] = {}
    rows = np.flatnonzero((traffic.src == address) & (traffic.t_out >= 0))
    for row in rows[np.argsort(traffic.t_out[rows], kind="stable")]:
        for byte in range(int(traffic.seq[row]), int(traffic.seq[row] + traffic.payload[row])):
            seen.setdefault(byte % 2**32, int(traffic.t_out[row]))
    return sum(start <= at < end for at in seen.values())


def test_goodput_over_main_interval_and_windows(run, traffic):
    summary = analyze(run)
    begin = int(traffic.t_in[0])
    lone = int(traffic.src[traffic.port == 0][0])
    whole = unique_bytes(traffic, lone, begin, begin + DURATION_NS)
    assert summary.classes["2"].mean_goodput_bps == pytest.approx(whole * 8 / 0.1)
    half = unique_bytes(traffic, lone, begin, begin + DURATION_NS // 2)
    assert list(summary.windows) == ["50ms"]
    window = summary.windows["50ms"]
    assert window.classes["2"].mean_goodput_bps == pytest.approx(half * 8 / 0.05)
    assert summary.outcast_ratio == pytest.approx(
        summary.classes["3"].mean_goodput_bps / summary.classes["2"].mean_goodput_bps
    )
    flows = pl.read_parquet(run.path / "flows.parquet")
    assert flows["goodput_bps"].sum() == pytest.approx(summary.total_goodput_bps)
    assert flows["share"].sum() == pytest.approx(1)
    assert summary.classes["3"].min_goodput_bps == flows.filter(hops=3)["goodput_bps"].min()
    bins = pl.read_parquet(run.path / "throughput.parquet")
    assert bins.height == 13 * 100
    of_bins = bins.group_by("flow").agg(pl.col("goodput_bps").mean()).sort("flow")
    assert of_bins["goodput_bps"].to_list() == pytest.approx(flows["goodput_bps"].to_list())


def test_the_contract_of_the_tables(run, traffic):
    analyze(run)
    packets = pl.read_parquet(run.path / "packets.parquet")
    assert packets["t_in"].to_list() == traffic.t_in.tolist()
    assert packets["seq"].to_list() == traffic.seq.tolist()
    assert packets["ip_id"].to_list() == traffic.ip_id.tolist()
    assert packets["payload"].to_list() == traffic.payload.tolist()
    assert packets["t_out"].to_list() == [at if at >= 0 else None for at in traffic.t_out.tolist()]
    assert packets["queue_bytes"].to_list() == traffic.found.tolist()
    assert packets["ingress"].cast(pl.String).to_list() == [
        f"s1-eth{2 + port}" for port in traffic.port.tolist()
    ]
    assert packets["verdict"].cast(pl.String).to_list() == [
        "forwarded" if at >= 0 else "dropped" for at in traffic.t_out.tolist()
    ]
    assert set(packets["dst"].cast(pl.String)) == {"10.0.0.1"}
    assert set(packets["dport"]) == {5001}
    manifest = run.read_manifest()
    by_flow = {flow.flow: (flow.src_ip, flow.sport) for flow in manifest.flows}
    seen = packets.select("flow", pl.col("src").cast(pl.String), "sport").unique().rows()
    assert {flow: (src, sport) for flow, src, sport in seen} == by_flow
    chains = pl.read_parquet(run.path / "blackouts.parquet")
    assert {"ingress", "t_start", "t_end", "drops", "flows", "others_through"} <= set(
        chains.columns
    )
    assert chains["drops"].sum() == int((traffic.t_out < 0).sum())
    queue = pl.read_parquet(run.path / "queue.parquet")
    assert queue.height == packets.height + packets["t_out"].count()


@pytest.mark.parametrize("qlen", [0, 3])
def test_what_an_empty_queue_did_not_send_was_dropped(qlen, tmp_path, traffic):
    t_out = traffic.t_out.copy()
    last = np.flatnonzero(t_out >= 0)[-3:]
    t_out[last] = -1  # Nothing leaves after these, which alone tells nothing.
    lasted_ns = int(traffic.t_in[-1] - traffic.t_in[0])
    run = write_run(tmp_path / "run", replace(traffic, t_out=t_out), lasted_ns)
    edit(run.counters, lambda tree: tree["ports"]["s1-eth1"]["after"].update(qlen=qlen))
    capture = analyze(run).capture
    assert (capture.in_flight >= 3) is (qlen == 3)
    assert capture.trusted is (qlen == 0)


def test_again_gives_the_same_bytes(run):
    analyze(run)
    first = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    analyze(run)
    for name, content in first.items():
        assert (run.path / name).read_bytes() == content, name
    assert not [path for path in run.path.iterdir() if path.name.endswith(".tmp")]


def test_wall_times_may_grow_between_computing_and_storing(run):
    computed = compute(run)
    assert not run.summary.exists()
    edit(run.manifest, lambda tree: tree["wall_s"].update(analysis=0.25))
    assert write(run, computed).wall_s["analysis"] == 0.25
    assert analyze(run).wall_s["analysis"] == 0.25


def test_staggered_flows_are_compared_while_all_are_active(run):
    def stagger(tree: Any) -> None:
        tree["flows"][0]["start_ns"] = 20_000_000
        tree["flows"][0]["duration_ns"] = 60_000_000

    edit(run.manifest, stagger)
    summary = analyze(run)
    assert (summary.interval, summary.start_s, summary.end_s) == ("all active", 0.02, 0.08)
    # A window counts from when all are active, and says where it lies.
    window = summary.windows["50ms"]
    assert (summary.windows_from, window.start_s, window.end_s) == ("all active", 0.02, 0.07)


@pytest.mark.parametrize(
    ("flows", "windows_from", "starts", "warning"),
    [
        ({1: {"start_ns": 30_000_000}}, "all active", [0.03], None),
        ({1: {"start_ns": 60_000_000}}, "all active", [], "50ms are left out, because all flows"),
        (
            {0: {"duration_ns": 40_000_000}},
            "all active",
            [0],
            "that end after 40ms are not of all flows",
        ),
        (
            {0: {"duration_ns": 20_000_000}, 1: {"start_ns": 30_000_000}},
            "start",
            [0],
            "because at no time all flows were active",
        ),
    ],
)
def test_windows_that_are_not_of_all_flows_are_named(run, flows, windows_from, starts, warning):
    def change(tree: Any) -> None:
        for flow, keys in flows.items():
            record = tree["flows"][flow] | keys
            if "duration_ns" not in keys:
                record["duration_ns"] = DURATION_NS - record["start_ns"]
            tree["flows"][flow] = record

    edit(run.manifest, change)
    summary = analyze(run)
    assert summary.windows_from == windows_from
    assert [window.start_s for window in summary.windows.values()] == starts
    told = [text for text in summary.warnings if text.startswith("windows")]
    assert len(told) == (warning is not None)
    assert warning is None or warning in told[0]


def test_a_flow_of_so_many_bytes_is_active_until_its_last_new_byte(run, traffic):
    def limit(tree: Any) -> None:
        tree["flows"][0].update(duration_ns=None, size_bytes=10**6)

    edit(run.manifest, limit)
    rows = traffic.port == 0
    last = int(traffic.t_out[rows & (traffic.payload > 0)].max() - traffic.t_in[0])
    end_s = analyze(run).end_s
    assert end_s == pytest.approx(last / 1e9, abs=0.002)


def test_a_host_with_flows_of_two_classes_has_no_class_counts(run):
    edit(run.manifest, lambda tree: tree["flows"][1].update(src=tree["flows"][0]["src"]))
    summary = analyze(run)
    assert summary.classes["2"].timeouts is None
    assert summary.classes["3"].retransmits is None


def test_two_bottlenecks(run, traffic):
    """The same captures again under the ports of another switch."""

    def double(tree: Any) -> None:
        for capture in list(tree["captures"]):
            port = capture["port"].replace("s1", "s2")
            file = capture["file"].replace("s1", "s2")
            shutil.copy(run.path / capture["file"], run.path / file)
            tree["captures"].append({**capture, "port": port, "file": file})
        first = tree["bottlenecks"][0]
        second = {**first, "switch": "s2", "egress": "s2-eth1", "ingress": ["s2-eth2", "s2-eth3"]}
        tree["bottlenecks"].append(second)

    once = analyze(run)
    edit(run.manifest, double)
    edit(run.counters, lambda tree: tree["ports"].update({"s2-eth1": tree["ports"]["s1-eth1"]}))
    twice = analyze(run)
    assert twice.capture.trusted
    assert twice.capture.inferred_drops == 2 * once.capture.inferred_drops
    assert twice.total_goodput_bps == pytest.approx(2 * once.total_goodput_bps)
    assert sorted(twice.drops) == ["s1-eth2", "s1-eth3", "s2-eth2", "s2-eth3"]
    assert sorted(twice.queue) == ["s1-eth1", "s2-eth1"]
    packets = pl.read_parquet(run.path / "packets.parquet").with_row_index("packet")
    queue = pl.read_parquet(run.path / "queue.parquet").with_columns(pl.col("packet").cast(int))
    assert packets.height == 2 * len(traffic)
    both = queue.join(packets.with_columns(pl.col("packet").cast(int)), on="packet")
    assert both.height == queue.height
    assert (both["egress"] == both["egress_right"]).all()


# --- trust


def without_its_first_packets(run: RunDirectory) -> None:
    path = run.captures / "s1-eth2.in.pcap"
    content = path.read_bytes()
    path.write_bytes(content[:24] + content[24 + 50 * model.RECORD.itemsize :])


def with_a_clock_that_went_back(run: RunDirectory) -> None:
    path = run.captures / "s1-eth2.in.pcap"
    content = path.read_bytes()
    records = np.frombuffer(content[24:], model.RECORD).copy()
    records[[100, 140]] = records[[140, 100]]
    path.write_bytes(content[:24] + records.tobytes())


def of(name: str, change: Callable[[Any], object]) -> Callable[[RunDirectory], None]:
    return lambda run: edit(run.path / f"{name}.json", change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            of("counters", lambda tree: tree["ports"]["s1-eth1"]["after"].update(drops=9)),
            "drops inferred, its queue counted",
        ),
        (of("counters", lambda tree: tree["ports"].clear()), "no counters of its queue"),
        (
            of("manifest", lambda tree: tree["captures"][0].update(dropped_by_kernel=2)),
            "tcpdump lost 2 packets",
        ),
        (of("manifest", lambda tree: tree["captures"][1].update(captured=9)), "tcpdump captured 9"),
        (without_its_first_packets, "left without having been seen coming in"),
        (with_a_clock_that_went_back, "s1-eth2.in.pcap: its clock went back"),
    ],
)
def test_what_is_not_trusted(run, change, said):
    change(run)
    summary = analyze(run)
    assert not summary.capture.trusted
    assert said in "; ".join(summary.capture.reasons)
    with pytest.raises(UntrustedError, match="captures and counters do not agree: "):
        require_agreement(summary)


# --- refusals


def held_link(tried_again: int) -> model.Traffic:
    """Flow 0 sends back to back for 90 ms. Some of five others send their first packet again."""
    frame_ns = 12_112
    rows = [(0, k * frame_ns, 0, k * 1448) for k in range(90_000_000 // frame_ns)]
    for other in range(1, 6):
        rows += [(1, 50_000 * other + 25_000 * k, other, 1448 * k) for k in (0, 1)]
        if other <= tried_again:
            rows.append((1, 80_000_000 + 50_000 * other, other, 0))
    port, t, flow, seq = np.array(sorted(rows, key=lambda row: row[1]), np.int64).T
    return model.drop_tail(
        model.Traffic(
            port=port,
            t_in=1_700_000_000_000_000_000 + t,
            src=(10 << 24) + 2 + flow,
            sport=20_001 + flow,
            ip_id=np.arange(len(t)) % 65_536,
            seq=seq,
            payload=np.full(len(t), 1448),
            tsval=t // 1000,
            flags=np.full(len(t), 0x10),
        ),
        16_384,
        10**9,
    )


@pytest.mark.parametrize("tried_again", [5, 4])
def test_a_flow_that_held_the_link_is_named(tmp_path, tried_again):
    directory = write_run(tmp_path / "run", held_link(tried_again), DURATION_NS)
    edit(directory.manifest, lambda tree: tree["effective"].update(min_rto_ns=2_000_000))
    of_flow = analyze(directory).warnings
    if tried_again < 5:
        assert of_flow == [], "one that had nothing to send did not lose to anybody"
    else:
        (warning,) = of_flow
        assert warning.startswith("flow 0 from h2 (2 hops) held the link: more than 90% of")
        assert "each of the 5 others ran into timeouts" in warning


def test_a_flow_is_halted_within_the_interval_only():
    """Idle times of 100, 400 and 50 ns. The second reaches 200 ns back beyond the beginning."""
    port: Any = SimpleNamespace(
        rows={7: np.arange(2, 4)},
        resent=SimpleNamespace(
            halted_ns=np.array([100, 0, 400, 50]),
            **dict.fromkeys(("retransmission", "spurious", "timeout"), np.zeros(4, np.bool_)),
        ),
        reached_ns=np.array([1_200, 1_300, 1_700, 1_900]),
    )
    manifest = SimpleNamespace(traffic=SimpleNamespace(t_start_ns=1_000))
    analysis: Any = SimpleNamespace(manifest=manifest, interval=Interval(500, 1_000), ports=[port])
    assert tcp_of_flow(analysis, 7).halted_s == (200 + 50) / 1e9
    assert tcp_of_flow(analysis, 8).halted_s == 0


def test_groups_by_hops_say_what_the_classes_say(run):
    summary = analyze(run)
    assert summary.group_by == "hops"
    assert list(summary.groups) == ["hops", "congestion_control", "port", "sender"]
    for hops, part in summary.classes.items():
        group = summary.groups["hops"][f"{hops}-hop"]
        assert {key: getattr(group, key) for key in type(part).model_fields} == part.model_dump()
        assert group.congestion_controls == ["cubic"]
        assert group.timeouts_seen == summary.tcp[hops].timeouts
        assert group.chains == summary.flow_chains[hops]
        assert group.times is None
    assert summary.compare.groups == ("3-hop", "2-hop")
    assert summary.compare.ratio == summary.outcast_ratio
    ports = summary.groups["port"]
    assert {port: (part.packets, part.dropped) for port, part in ports.items()} == {
        port: (part.packets, part.dropped) for port, part in summary.drops.items()
    }
    for name, window in summary.windows.items():
        assert window.compare.ratio == window.outcast_ratio, name
        assert window.groups["hops"]["3-hop"].timeouts is None


def planned_names(tree: Any) -> None:
    for record in tree["flows"]:
        record["name"] = "cubic" if record["flow"] == 0 else "bbr"


def named(tree: Any) -> None:
    planned_names(tree)
    for record in tree["flows"]:
        lone = record["flow"] == 0
        record["hops"] = 2
        record.update(congestion_control="cubic" if lone else "bbr")


def test_named_groups_are_what_the_headline_compares(run, capsys):
    before = analyze(run)
    edit(run.manifest, named)
    edit(run.plan, planned_names)
    run.config.write_text(
        run.config.read_text().replace("analysis: {", "analysis: {compare: [bbr, cubic], ")
    )
    summary = analyze(run)
    assert summary.group_by == "name"
    assert summary.outcast_ratio is None
    assert list(summary.groups["name"]) == ["cubic", "bbr"]
    assert summary.compare.by == "name"
    assert summary.compare.ratio == before.outcast_ratio
    assert summary.groups["name"]["bbr"].congestion_controls == ["bbr"]
    assert [part.compare and part.compare.ratio for part in summary.windows.values()] == [
        part.outcast_ratio for part in before.windows.values()
    ]
    flows = pl.read_parquet(run.path / "flows.parquet")
    assert flows["name"].to_list() == ["cubic"] + ["bbr"] * 12
    bins = pl.read_parquet(run.path / "throughput.parquet")
    assert bins.columns[-2:] == ["name", "congestion_control"]
    assert bins.filter(flow=3)["congestion_control"].cast(pl.String).unique().to_list() == ["bbr"]
    assert outcast(["analyze", str(run.path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"A bbr flow got \S+ (times|of) what the cubic flow got", text)


def test_sized_flows_have_completion_times(run):
    def size(tree: Any) -> None:
        tree["flows"][0].update(size_bytes=1000, duration_ns=None, name="small")
        tree["flows"][1].update(size_bytes=10**12, duration_ns=None, name="large")

    edit(run.manifest, size)
    groups = analyze(run).groups["name"]
    small, large = groups["small"].times, groups["large"].times
    assert (small.flows, small.finished, large.flows, large.finished) == (1, 1, 1, 0)
    assert small.mean_ms == small.max_ms
    assert 0 < small.mean_ms <= DURATION_NS / 1e6
    assert large.mean_ms is None
    assert groups["unnamed"].times is None
    flows = pl.read_parquet(run.path / "flows.parquet")
    assert flows["completion_ns"].drop_nulls().to_list() == [small.mean_ms * 1e6]
    assert flows["completion_ns"][1] is None


def test_a_flow_that_did_not_send_its_bytes_within_the_duration_is_named(run, capsys):
    """What leaves after the duration completes no flow."""

    def shortened(tree: Any) -> None:
        tree["flows"][0].update(size_bytes=sent, duration_ns=None, name="half")
        tree["traffic"].update(duration_ns=DURATION_NS // 2)

    sent = sum(left(run, 0))
    edit(run.manifest, shortened)
    summary = analyze(run)
    within = sum(left(run, 0, until_ns=DURATION_NS // 2))
    (line,) = [line for line in summary.warnings if line.startswith("flow half")]
    assert line == (
        f"flow half had sent {within:,} of {sent:,} bytes when the duration ended; what does not "
        "end has no completion time"
    )
    times = summary.groups["name"]["half"].times
    assert times.finished == 0
    flows = pl.read_parquet(run.path / "flows.parquet")
    assert flows["completion_ns"][0] is None
    assert 0 <= flows["t_first"].min() < flows["t_last"].max() < DURATION_NS // 2
    assert "flow half had sent" in report.make(Run(run))


def left(run: RunDirectory, flow: int, until_ns: int | None = None) -> list[int]:
    """The new bytes of each packet of a flow that left, in the order of leaving."""
    analysis = compute(run)
    (port,) = analysis.ports
    mine = np.array(port.numbers)[port.joined.departures.flow] == flow
    if until_ns is not None:
        at_ns = port.joined.departures.stamp_ns - analysis.manifest.traffic.t_start_ns
        mine &= at_ns < until_ns
    bytes_: list[int] = port.fresh[mine].tolist()
    return bytes_


def test_a_check_that_failed_after_the_traffic_keeps_the_run(run):
    reason = "flow 0 at h2: sack: requested on, the kernel shows off"
    edit(run.manifest, lambda tree: tree.update(distrust=[reason]))
    assert outcast(["analyze", str(run.path)]) == 4
    assert analyze(run).capture.reasons == [reason]
