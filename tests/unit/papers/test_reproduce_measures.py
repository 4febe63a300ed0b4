"""Recipes' measures on runs in which a flow got nothing, or did not finish."""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from outcast.analysis import Measure
from outcast.analysis.run_measures import measures
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.sweep.store import SweepDirectory
from outcast.uses.papers import claims, recipe, result
from outcast.uses.papers import conclusion as reproduce
from outcast.uses.papers.recipe import Mode, Point
from outcast.uses.papers.runs import PlannedRun
from outcast.uses.papers.state import MadeBy
from tests.golden.run_directory import analysed_run

DURATION_NS = 80_000_000
ONE_SEGMENT_BPS = 1448 * 8 / 0.08


@pytest.fixture(scope="module")
def analysed(tmp_path_factory) -> RunDirectory:
    return analysed_run(tmp_path_factory.mktemp("measures") / "run", DURATION_NS, 9, 6_000)


MADE_BY = MadeBy(outcast="0.1.0", commit=None, code="c0de")


def changed(analysed: RunDirectory, tmp_path: Path, bps: dict[int, float]) -> Run:
    """The run, changed so that the flows of these hop counts got this on average."""
    copy = tmp_path / "run"
    copy.mkdir()
    for file in analysed.path.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    tree: dict[str, Any] = json.loads(analysed.summary.read_text())
    for hops, mean in bps.items():
        for part in (tree, *tree["windows"].values()):
            part["classes"][str(hops)]["mean_goodput_bps"] = mean
            part["groups"]["hops"][f"{hops}-hop"]["mean_goodput_bps"] = mean
    (copy / "summary.json").write_text(json.dumps(tree))
    hops_of = dict(pl.read_parquet(copy / "flows.parquet").select("flow", "hops").iter_rows())
    for name in ("flows", "throughput"):
        table = pl.read_parquet(copy / f"{name}.parquet")
        for hops, mean in bps.items():
            mine = pl.col("flow").replace_strict(hops_of) == hops
            table = table.with_columns(
                goodput_bps=pl.when(mine).then(mean).otherwise("goodput_bps")
            )
        table.write_parquet(copy / f"{name}.parquet")
    return Run(copy)


def take(run: Run, kind: str, **more: Any) -> float:
    return measures.take(run, Measure(kind=kind, **more))


RATIOS = (
    ("outcast_ratio", {}),
    ("outcast_ratio", {"interval": "second_half"}),
    ("group_ratio", {"group": 0}),
    ("compared_groups", {"by": "hops", "label": "3-hop", "over": "2-hop"}),
)


@pytest.mark.parametrize(("kind", "more"), RATIOS)
@pytest.mark.parametrize(
    ("goodput", "starved"),
    [({2: 0.0, 3: 1e8}, 2), ({2: 1e8, 3: 0.0}, 3), ({2: 1e8, 3: 1e8}, None)],
)
def test_a_class_that_got_nothing_is_the_strongest_effect(
    analysed, tmp_path, kind, more, goodput, starved
):
    """The opposite is as far on the other side."""
    run = changed(analysed, tmp_path, goodput)
    floor_bps = (2 if "interval" in more else 1) * ONE_SEGMENT_BPS
    others = run.summary.classes["3"].flows
    expected = {2: 1e8 / floor_bps, 3: floor_bps / others / 1e8, None: 1}[starved]
    assert take(run, kind, **more) == pytest.approx(expected)


def test_the_share_of_a_starved_class_is_above_zero(analysed, tmp_path):
    run = changed(analysed, tmp_path, {2: 0.0})
    share = take(run, "class_share", hops=2)
    count = sum(each.flows for each in run.summary.classes.values())
    assert share == pytest.approx(ONE_SEGMENT_BPS * count / run.summary.total_goodput_bps)


def test_shares_of_all_classes_add_up_to_their_flows(analysed):
    run = Run(analysed.path)
    classes = run.summary.classes
    shares = {hops: take(run, "class_share", hops=int(hops)) for hops in classes}
    assert sum(shares[hops] * classes[hops].flows for hops in classes) == pytest.approx(
        sum(each.flows for each in classes.values())
    )


def rewrite(run: Run, **values: Any) -> Run:
    """The run with other values in its summary."""
    path = run.directory.summary
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return Run(run.directory.path)


def lost_in_a_row(run: Run, hops: int, chains: list[int], packets: int = 100) -> None:
    """Gives a run packets of a flow of a class, with these chains, and as many of another flow."""
    flow = next(flow.flow for flow in run.manifest.compared_flows if flow.hops == hops)
    lost = [at < drops for drops in chains for at in range(drops + 1)]
    verdicts = [("dropped" if gone else "forwarded") for gone in lost]
    verdicts += ["forwarded"] * (packets - len(verdicts))
    pl.DataFrame(
        {
            # Packets of another flow come in between, and are no part of a chain.
            "flow": [number for _ in verdicts for number in (flow, 99)],
            "egress": ["s1-eth1"] * 2 * packets,
            "verdict": [verdict for mine in verdicts for verdict in (mine, "forwarded")],
            "in_interval": [True] * 2 * packets,
        }
    ).write_parquet(run.directory.path / "packets.parquet")


def test_chains_of_a_class(analysed, tmp_path):
    run = changed(analysed, tmp_path, {})
    lost_in_a_row(run, 3, [1] * 6 + [2] * 3 + [4])
    flows = run.summary.classes["3"].flows
    assert take(run, "chain_share", hops=3) == 0.6
    assert take(run, "chain_share", hops=3, length=2) == 0.3
    assert take(run, "chain_share", hops=3, length=3) == 0
    assert take(run, "long_chain_share", hops=3, length=2) == 0.4
    assert take(run, "long_chains_per_flow", hops=3, length=2) == pytest.approx(4 / flows)
    assert math.isnan(take(run, "chain_share", hops=2))
    assert take(run, "long_chains_per_flow", hops=2, length=1) == 0


def test_only_the_second_half_is_late(analysed, tmp_path):
    run = changed(analysed, tmp_path, {2: 1e8, 3: 1e8})
    path = run.directory.path / "throughput.parquet"
    early = pl.col("t") < DURATION_NS / 2
    pl.read_parquet(path).with_columns(
        goodput_bps=pl.when(early).then(pl.col("flow") * 1e9).otherwise("goodput_bps")
    ).write_parquet(path)
    assert take(run, "outcast_ratio", interval="second_half") == 1
    assert take(run, "outcast_ratio", interval="whole") == take(run, "outcast_ratio")


def test_the_closest_drops_and_the_mean_queue(analysed, tmp_path):
    run = changed(analysed, tmp_path, {})
    # Port a loses its first and fifth packet, port b its first and fourth.
    ports, lost = "aababaabb", (0, 2, 6, 8)
    verdict = ["dropped" if row in lost else "transmitted" for row in range(9)]
    pl.DataFrame(
        {
            "t_in": range(9),
            "ingress": list(ports),
            "verdict": verdict,
            "queue_bytes": [0, 1514, 3028] * 3,
            "in_interval": [True] * 9,
        },
        schema_overrides={"ingress": pl.Categorical, "verdict": pl.Categorical},
    ).write_parquet(run.directory.path / "packets.parquet")
    assert take(run, "closest_drops") == 2
    assert take(run, "mean_queue_bytes") == 1514


def test_the_longest_dense_blackout_and_its_queue(analysed, tmp_path):
    run = changed(analysed, tmp_path, {})
    by_hops = {port.hops[0]: name for name, port in run.summary.drops.items()}
    packet = run.frame_ns
    rows = [
        (by_hops[2], 0, 2, 3, 5),
        (by_hops[3], 100, 104, 4, 5),
        (by_hops[3], 200, 204, 4, 5),
        (by_hops[2], 300, 305, 6, 0),
        (by_hops[2], 400, 900_000, 7, 5),
    ]
    pl.DataFrame(
        {
            "ingress": [port for port, *_ in rows],
            "t_start": [begin * packet for _, begin, *_ in rows],
            "t_end": [end * packet for _, _, end, *_ in rows],
            "drops": [drops for *_, drops, _ in rows],
            "others_through": [through for *_, through in rows],
            "in_interval": [True] * len(rows),
        },
        schema_overrides={"ingress": pl.Categorical},
    ).write_parquet(run.directory.path / "blackouts.parquet")
    pl.DataFrame(
        {
            "t": [at * packet for at in (99, 100, 102, 104, 105, 201)],
            "queue_packets": [2, 11, 10, 12, 30, 50],
        }
    ).write_parquet(run.directory.path / "queue.parquet")
    assert take(run, "longest_chain") == max(
        port.longest_chain for port in run.summary.drops.values()
    )
    assert take(run, "longest_blackout") == 4
    assert take(run, "longest_blackout", hops=2) == 3
    assert take(run, "longest_blackout", hops=9) == 0
    assert take(run, "queue_span_in_longest_blackout") == 2


def test_the_least_of_the_far_flows_and_their_round_trips(analysed, tmp_path):
    run = rewrite(changed(analysed, tmp_path, {2: 1e3, 3: 4e6}), start_s=0.01, end_s=0.05)
    path = run.directory.path / "flows.parquet"
    flows = pl.read_parquet(path)
    far = flows.filter(pl.col("hops") == 3)["flow"]
    mine = pl.col("flow") == far[0]
    flows.with_columns(goodput_bps=pl.when(mine).then(1e6).otherwise("goodput_bps")).write_parquet(
        path
    )
    mean = (4e6 * (len(far) - 1) + 1e6) / len(far)
    assert take(run, "least_of_far") == pytest.approx(1e6 / mean)
    near = flows.filter(pl.col("hops") == 2)["flow"][0]
    ms = 1_000_000
    pl.DataFrame(
        {
            "flow": [far[0], far[0], far[1], far[0], near],
            "t": [9 * ms, 10 * ms, 50 * ms, 51 * ms, 20 * ms],
            "srtt_us": [9000, 1000, 2000, 9000, 500],
            "unacked": [1] * 5,
            "notsent_bytes": [0] * 5,
        },
        schema_overrides={"flow": pl.Int32},
    ).write_parquet(run.directory.path / "sockets.parquet")
    assert take(run, "median_rtt_ms", hops=3) == pytest.approx(1.5)
    assert take(run, "median_rtt_ms", hops=2) == pytest.approx(0.5)


def test_retransmissions_are_those_of_a_flow(analysed, tmp_path):
    run = changed(analysed, tmp_path, {})
    of_class = run.summary.classes["3"]
    run.summary.classes["3"] = of_class.model_copy(update={"retransmits": 6 * of_class.flows})
    assert take(run, "retransmits_per_flow", hops=3) == 6
    run.summary.classes["3"] = of_class.model_copy(update={"retransmits": None})
    assert math.isnan(take(run, "retransmits_per_flow", hops=3))


@pytest.mark.parametrize(
    ("lost", "expected"), [([2, 1], 2), ([0, 1], 0.5), ([2, 0], 4), ([0, 0], None)]
)
def test_a_port_that_lost_nothing_counts_with_half_a_packet(analysed, tmp_path, lost, expected):
    run = changed(analysed, tmp_path, {})
    hops = {port.hops[0]: name for name, port in run.summary.drops.items() if port.hops}
    table = run.table("packets").head(0)
    start_ns = run.manifest.traffic.t_start_ns
    rows = pl.DataFrame(
        [
            (port, "dropped" if number < count else "forwarded", start_ns, True)
            for port, count in zip((hops[2], hops[3]), lost, strict=True)
            for number in range(10)
        ],
        schema=["ingress", "verdict", "t_in", "in_interval"],
        orient="row",
    )
    rows.cast({name: table.schema[name] for name in rows.columns}).write_parquet(
        run.directory.path / "packets.parquet"
    )
    found = take(Run(run.directory.path), "loss_ratio")
    assert math.isnan(found) if expected is None else found == pytest.approx(expected)


def test_measures_that_a_run_does_not_have(analysed):
    run = Run(analysed.path)
    for kind in ("class_share", "timeouts_per_flow", "halted_s_per_flow"):
        assert math.isnan(take(run, kind, hops=9))
    assert math.isnan(take(run, "group_ratio", group=9))
    assert math.isnan(take(run, "workload_goodput_bps"))
    assert math.isnan(take(run, "window_correlation"))


def test_flows_that_did_not_finish_count_with_the_time_they_had(analysed, tmp_path):
    run = changed(analysed, tmp_path, {})
    ms = 1_000_000
    pl.DataFrame(
        [
            (5_000, 10 * ms, 0, 2 * ms),
            (5_000, 21 * ms, 1 * ms, None),
            (5_000, None, None, None),
            (200_000, 10 * ms, 0, None),
            (None, 10 * ms, 0, None),
        ],
        schema={"size_bytes": pl.Int64, "t_start": pl.Int64, "late": pl.Int64, "fct": pl.Int64},
        orient="row",
    ).write_parquet(run.directory.path / "completions.parquet")
    assert take(run, "completion_ms", below="100KB") == pytest.approx((2 + 60) / 2)
    assert take(run, "completion_ms", above="100KB") == pytest.approx(70)
    assert take(run, "completion_ms") == pytest.approx((2 + 60 + 70) / 3)


def test_an_order_of_two_measures(analysed, tmp_path):
    runs = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        runs.append(changed(analysed, tmp_path / str(number), {2: 1e6 * number, 3: 5e6}))
    lesser = Measure(kind="class_goodput_bps", hops=2)
    claim = claims.OrderClaim(
        text="more",
        family="size",
        measure=Measure(kind="class_goodput_bps", hops=3),
        greater="A",
        lesser="A",
        lesser_measure=lesser,
    )
    assert claim.points[1] == ("A", lesser)
    made = recipe_of(Point(label="A", config="none"), claim)
    point = reproduce._point(made, "quick", made.points[0], [*zip((1, 2), runs, strict=True)])
    (judged,) = result.evaluate(made, [point], "quick")
    assert judged.median == pytest.approx(3.5e6)
    assert judged.verdict is None


def recipe_of(point: Point, claim: claims.Claim) -> recipe.Recipe:
    return recipe.Recipe(
        id="X",
        title="",
        source="",
        reported="",
        interval="all_active",
        points=(point,),
        without={"queue.kind": "sfq"},
        quick=Mode(repetitions=6),
        full=Mode(repetitions=6),
        claims=(claim,),
        picture=recipe.Picture(kind="window_bars"),
    )


def test_runs_without_a_value_and_without_trust_are_listed(analysed, tmp_path):
    store = SweepDirectory(tmp_path)
    store.runs.mkdir()
    point = Point(label="A", config="none")
    three = [PlannedRun(point, seed, f"run-{seed}", None) for seed in (1, 2, 3)]
    for each in three:
        changed(analysed, store.runs, {2: 1e7, 3: 1e8}).directory.path.rename(
            store.runs / each.name
        )
        # Other times, because runs that are equal packet for packet are no repetitions.
        table = store.runs / each.name / "packets.parquet"
        pl.read_parquet(table).with_columns(pl.col("t_in") + each.seed).write_parquet(table)
    doubtful = store.run("run-2").summary
    tree = json.loads(doubtful.read_text())
    tree["capture"] |= {"trusted": False, "reasons": ["packets are missing"]}
    doubtful.write_text(json.dumps(tree))
    alone = store.run("run-3").summary
    tree = json.loads(alone.read_text())
    tree["classes"].pop("3")
    alone.write_text(json.dumps(tree))
    assert len(Run(store.run("run-3")).summary.classes) == 1
    claim = claims.SizeClaim(
        text="7 times",
        family="size",
        measure=Measure(kind="outcast_ratio"),
        at="A",
        reported=7,
        none=1,
    )
    made = recipe_of(point, claim)
    wanted = [*three, PlannedRun(point, 4, "run-4", None)]
    found = reproduce.conclude(made, "quick", wanted, store, {}, MADE_BY)
    assert [(each.seed, each.reason) for each in found.failures] == [
        (2, "captures and counters do not agree: packets are missing"),
        (4, "not run"),
        (3, "has no outcast ratio"),
    ]
    assert found.points[0].values == {"outcast ratio": [10.0, None]}
    assert found.claims[0].verdict is None
    copy = PlannedRun(point, 9, "run-1", None)
    repeated = reproduce.conclude(made, "quick", [three[0], copy], store, {}, MADE_BY)
    (left_out,) = repeated.failures
    assert left_out.reason == "has the same packets as seed 1, so it is no repetition"
    assert repeated.claims[0].verdict is None
    assert reproduce.missing_runs(found)
    assert not reproduce.missing_runs(repeated)


def test_the_burst_ratio_compares_chains_with_chance(analysed, tmp_path):
    run = changed(analysed, tmp_path, {})
    # 30 drops in 20 chains, of 100 packets: by chance a chain has 1 / 0.7 drops.
    lost_in_a_row(run, 2, [1] * 10 + [2] * 10, packets=100)
    assert take(run, "burst_ratio", hops=2) == pytest.approx(1.5 * 0.7)
    assert math.isnan(take(run, "burst_ratio", hops=3))


def test_a_measure_can_name_a_group_of_any_kind(analysed):
    run = Run(analysed)
    window = next(iter(run.summary.windows))
    port = {"by": "port", "label": "s1-eth3"}
    whole = run.summary.groups["port"]["s1-eth3"].mean_goodput_bps
    assert take(run, "group_goodput_bps", **port) == whole
    part = run.summary.windows[window].groups["port"]["s1-eth3"].mean_goodput_bps
    assert take(run, "group_goodput_bps", **port, interval=("0s", window)) == part
    ratio = take(run, "compared_groups", **port, over="s1-eth2")
    assert ratio == pytest.approx(take(run, "outcast_ratio"))
    assert math.isnan(take(run, "group_goodput_bps", by="name", label="bbr"))
    assert math.isnan(take(run, "compared_groups", **port, over="s9-eth9"))
    described = result.describe(Measure(kind="compared_groups", **port, over="s1-eth2"))
    assert described == "compared groups of s1-eth3 over s1-eth2 by port"


@pytest.mark.parametrize("keys", [{"by": "name"}, {"label": "bbr"}, {"over": "bbr"}])
def test_a_measure_names_a_group_with_its_kind(keys):
    with pytest.raises(ValueError, match="by and label: allowed are both"):
        Measure(kind="group_goodput_bps", **keys)
