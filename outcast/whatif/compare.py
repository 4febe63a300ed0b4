"""Two runs, one of which had an intervention: where they part, and what differs after that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from outcast.errors import RunError, UntrustedError
from outcast.records.interventions import (
    Compared,
    ComparedFlows,
    Interventions,
    LostPacket,
    OtherFate,
    PacketFate,
    WhatIf,
)
from outcast.records.replay import Explanation
from outcast.records.run import Run
from outcast.units import format_time
from outcast.view.terminal.tables import main_ratio
from outcast.view.terminal.whatif import told
from outcast.whatif import elsewhere
from outcast.whatif.outcome import timeouts

NAMED = 10
"""So many packets with another fate are named."""
TABLE = "blast"
GOODPUT = "whatif"
_UNKNOWN = Compared(factual=None, counterfactual=None)
_SEGMENT = ["src", "sport", "dst", "dport", "seq", "payload", "egress"]


def blast(factual: Run, counterfactual: Run) -> pl.DataFrame:
    """The packets that have another fate in the other run, in the order of time.

    Packets are the same if they are the n-th transmission of the same segment at the same port. A
    datagram of UDP has no sequence number, so its IP identification tells it. Addresses and ports
    tell flows, because those of workloads and programs are numbered as they appear in each run.

    Returns:
        - `flow`, as the first run numbers it; after these come flows that it does not have
        - `egress`
        - `seq` (of UDP the IP identification), `payload`, `transmission` (from 0)
        - `factual`, `counterfactual`: the verdicts; null where the packet was not sent, and `lost`
          where somebody had it lost before it came to the port
        - `t_factual`, `t_counterfactual`: when it came in (ns after the traffic's start)
        - `t`: the earlier of the two
    """
    first, second = _packets(factual), _packets(counterfactual)
    lost = _lost(counterfactual, first, second)
    if lost.height:
        second = pl.concat([lost, second]).sort("t_in", maintain_order=True)
    second = _numbered(second, first, len(factual.manifest.flows))
    one, other = (
        frame.with_columns(pl.int_range(pl.len()).over(_SEGMENT).alias("transmission"))
        .rename({"flow": f"flow_{name}", "verdict": name, "t_in": f"t_{name}"})
        .drop("ip_id")
        for frame, name in ((first, "factual"), (second, "counterfactual"))
    )
    both = one.join(other, on=[*_SEGMENT, "transmission"], how="full", coalesce=True)
    return both.select(
        pl.coalesce("flow_factual", "flow_counterfactual").alias("flow"),
        *("seq", "payload", "transmission", "egress", "factual", "counterfactual"),
        *("t_factual", "t_counterfactual"),
        pl.min_horizontal("t_factual", "t_counterfactual").alias("t"),
        (~pl.col("factual").eq_missing(pl.col("counterfactual"))).alias("other"),
    ).sort("t", "flow", "seq", "payload", "transmission")


def _packets(run: Run) -> pl.DataFrame:
    # Each packet of TCP has a flag, and no datagram of UDP has one.
    is_datagram = pl.col("flags") == 0
    with run.reading():
        return run.table("packets").select(
            pl.col("flow").cast(pl.Int64),
            pl.when(is_datagram).then(pl.col("ip_id").cast(pl.UInt32))
            .otherwise(pl.col("seq")).cast(pl.Int64).alias("seq"),
            pl.col("payload").cast(pl.Int64),
            pl.col("src", "dst", "egress", "verdict").cast(pl.String),
            *("sport", "dport", "ip_id"),
            pl.col("t_in") - run.manifest.traffic.t_start_ns,
        )  # fmt: skip


def _lost(run: Run, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """The packets that were sent in both runs, and were lost before the port in the second one."""
    changes = run.directory.read_manifest().interventions or Interventions(of="")
    away: list[LostPacket | PacketFate] = [*changes.lost]
    away += [fate for fate in changes.fates if fate.fate == "drop"]
    chosen = [
        (pl.col("src") == str(packet.src)) & (pl.col("sport") == packet.sport)
        & (pl.col("dport") == packet.dport) & (pl.col("ip_id") == packet.ip_id)
        for packet in away
        if packet.ip_id
    ]  # fmt: skip
    asked_for = before.filter(pl.any_horizontal(chosen)) if chosen else before.clear()
    missing = asked_for.join(after, on=[*_SEGMENT, "ip_id"], how="anti")
    return missing.with_columns(verdict=pl.lit("lost"))


def _numbered(packets: pl.DataFrame, before: pl.DataFrame, planned: int) -> pl.DataFrame:
    """Packets of the second run with the flows' numbers of the first one."""
    ends = ["src", "sport", "dst", "dport"]
    known = before.group_by(ends).agg(pl.col("flow").first().alias("known"))
    joined = packets.join(known, on=ends, how="left", maintain_order="left")
    # Planned flows have their number in both runs.
    number = pl.coalesce("known", pl.when(pl.col("flow") < planned).then("flow"))
    new = joined.filter(number.is_null())["flow"].unique().sort().to_list()
    last = max([planned - 1, *before["flow"]], default=-1)
    others = pl.col("flow").replace_strict(
        new, range(last + 1, last + 1 + len(new)), default=None, return_dtype=pl.Int64
    )
    return joined.with_columns(pl.coalesce(number, others).alias("flow")).drop("known")


def goodput(factual: Run, counterfactual: Run) -> pl.DataFrame:
    """Goodput of every flow over time in both runs: `flow`, `t` (ns), and a column for each."""
    frames = [
        run.table("throughput").select("flow", "t", pl.col("goodput_bps").alias(name))
        for run, name in ((factual, "factual_bps"), (counterfactual, "counterfactual_bps"))
    ]
    both = frames[0].join(frames[1], on=["flow", "t"], how="full", coalesce=True)
    return both.fill_null(0).sort("flow", "t")


def of(
    factual: Run, counterfactual: Run, explanation: Explanation | None, changes: pl.DataFrame
) -> WhatIf:
    """The record of two runs for whatif.json.

    Args:
        factual: the run in which somebody intervened.
        counterfactual: the run with the intervention.
        explanation: where they part; None if that is not told.
        changes: what `blast` gave.
    """
    first = None if explanation is None else explanation.first
    other = changes.filter("other")
    only = [other.filter(pl.col(name).is_null()).height for name in ("counterfactual", "factual")]
    ratios = [main_ratio(run.summary) for run in (factual, counterfactual)]
    manifest = counterfactual.manifest
    groups = manifest.groups[counterfactual.summary.group_by]
    changed = counterfactual.directory.read_manifest().interventions or Interventions(of="")
    named = {f"flow {flow.flow} ({flow.src})": [flow.flow] for flow in manifest.flows}
    return WhatIf(
        of=changed.of,
        changes=[*told(changed)],
        parts_ns=None if first is None else first.since_start_ns,
        parts=_parts(explanation),
        flows=[
            *_compared(factual, counterfactual, named),
            *_transfers(factual, counterfactual),
            *_streams(factual, counterfactual),
        ],
        groups=_compared(
            factual,
            counterfactual,
            {label: [flow.flow for flow in flows] for label, flows in groups.items()},
        ),
        ratio=Compared(factual=ratios[0], counterfactual=ratios[1]),
        changed=other.height - sum(only),
        only_factual=only[0],
        only_counterfactual=only[1],
        packets=changes.height,
        by_flow=dict(other.group_by("flow").len().sort("flow").iter_rows()),
        first=[
            OtherFate(
                flow=row["flow"],
                seq=row["seq"],
                payload=row["payload"],
                transmission=row["transmission"],
                t_in_ns=row["t"],
                factual=row["factual"],
                counterfactual=row["counterfactual"],
            )
            for row in other.head(NAMED).iter_rows(named=True)
        ],
    )


def _parts(explanation: Explanation | None) -> list[str]:
    if explanation is None:
        return []
    first = explanation.first
    # That the manifests differ is no news here.
    equal = explanation.lines()[0].removesuffix(", although:")
    return [equal] if first is None else first.lines()


def _compared(
    factual: Run, counterfactual: Run, named: dict[str, list[int]]
) -> list[ComparedFlows]:
    tables = [run.table("flows") for run in (factual, counterfactual)]

    def compared(flows: list[int], value: pl.Expr) -> Compared:
        chosen = pl.col("flow").is_in(flows)
        one, other = (table.filter(chosen).select(value).item() for table in tables)
        return Compared(factual=one, counterfactual=other)

    return [
        ComparedFlows(
            name=name,
            flows=len(flows),
            goodput_bps=compared(flows, pl.col("goodput_bps").mean()),
            drops=compared(flows, pl.col("dropped").sum()),
            timeouts=compared(flows, timeouts()),
            completion_ns=compared(flows, pl.col("completion_ns").mean()),
        )
        for name, flows in named.items()
    ]


def _transfers(factual: Run, counterfactual: Run) -> Iterator[ComparedFlows]:
    """The TCP flows of each workload together. Drops are not told by workload."""
    summaries = [run.summary.completions or {} for run in (factual, counterfactual)]
    for number in sorted(summaries[0].keys() & summaries[1].keys()):
        one, other = (summary[number] for summary in summaries)
        if one.streams is None and "all" in one.times and "all" in other.times:
            means = [each.times["all"].mean_ms for each in (one, other)]
            mean_ns = [None if mean is None else mean * 1e6 for mean in means]
            yield ComparedFlows(
                name=f"workload {number} ({one.kind})",
                flows=one.flows,
                goodput_bps=Compared(factual=one.goodput_bps, counterfactual=other.goodput_bps),
                drops=_UNKNOWN,
                timeouts=Compared(factual=one.timeouts, counterfactual=other.timeouts),
                completion_ns=Compared(factual=mean_ns[0], counterfactual=mean_ns[1]),
            )


def _streams(factual: Run, counterfactual: Run) -> Iterator[ComparedFlows]:
    """The UDP flows of workloads, which addresses and ports tell in both runs."""
    keys = ["workload", "src", "sport", "dst"]
    if not all("streams" in run.tables for run in (factual, counterfactual)):
        return
    one, other = (
        run.table("streams").select(*keys, "received_bps", "dropped")
        for run in (factual, counterfactual)
    )
    both = one.join(other, on=keys, how="full", coalesce=True, suffix="_other").sort(keys)
    for row in both.iter_rows(named=True):
        goodput, drops = (
            Compared(factual=row[name], counterfactual=row[f"{name}_other"])
            for name in ("received_bps", "dropped")
        )
        yield ComparedFlows(
            name=f"UDP of workload {row['workload']} ({row['src']})",
            flows=1,
            goodput_bps=goodput,
            drops=drops,
            timeouts=_UNKNOWN,
            completion_ns=_UNKNOWN,
        )


def require_prefix(explanation: Explanation, since_ns: int, named: str) -> None:
    """Raises UntrustedError if two runs part before an instant after the traffic's start."""
    first = explanation.first
    if explanation.equal or (first is not None and first.since_start_ns >= since_ns):
        return
    when = "at an unknown time" if first is None else first.lines()[0]
    raise UntrustedError(
        f"{named}: the run made again is another one before the intervention at "
        f"{format_time(since_ns)}: {when}; outcast replay --explain says more"
    )


def require_fates(run: Run, fates: Sequence[PacketFate]) -> None:
    """Compares the packets' fates in the captures with what was asked for, and the counters.

    Raises:
        RunError: a packet has another fate.
    """
    with run.reading():
        packets = run.table("packets")
    measured = {record.egress for record in run.manifest.bottlenecks}
    for fate in fates:
        if fate.port not in measured:
            elsewhere.require_done(run, fate)
            continue
        rows = packets.filter(
            egress=fate.port,
            t_in=fate.t_in_ns + run.manifest.traffic.t_start_ns,
            src=str(fate.src),
            sport=fate.sport,
            dport=fate.dport,
            ip_id=fate.ip_id,
            **({"seq": fate.seq} if fate.seq else {}),
        )
        if rows.height != 1:
            raise RunError(f"{fate.name}: is {rows.height} times in the captures")
        verdict = rows["verdict"].cast(pl.String).item()
        wanted = {"drop": "dropped", "forward": "forwarded"}.get(fate.fate, verdict)
        if verdict not in (wanted, "unknown"):
            raise RunError(f"{fate.name}: was to be {wanted}, and is {verdict} in the captures")


def require_counted(run: Run) -> None:
    """Raises UntrustedError if captures and counters do not agree on the drops."""
    if not run.trusted:
        raise UntrustedError(f"{run.directory.path}: cannot be trusted: {run.reasons[0]}")
