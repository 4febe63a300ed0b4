"""Two runs, one of which had an intervention: where they part, and what differs after that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from outcast.errors import RunError, UntrustedError
from outcast.records import Explanation, Interventions, PacketFate, Run, causes
from outcast.uses.whatif.compared import Compared, ComparedFlows, OtherFate, WhatIf
from outcast.uses.whatif.words import change_lines
from outcast.view import main_ratio

NAMED = 10
"""This number of packets with another fate is named."""
TABLE = "blast"
GOODPUT = "whatif"
_ENDS = ["src", "sport", "dst", "dport"]
_SEGMENT = [*_ENDS, "relative", "payload", "egress"]


def blast(factual: Run, counterfactual: Run) -> pl.DataFrame:
    """The packets that have another fate in the other run, in the order of time.

    Packets are the same if they are the n-th sending of the same segment of the same connection.
    A segment is known by its sequence number after the connection's first, and a datagram of UDP by
    its IP identification. A connection is known by addresses and ports. If only one run has these,
    it is the n-th such connection of the two hosts and the lower port, as clients draw the other.

    Returns:
        - `flow`, as the first run numbers it; after these come flows that it does not have
        - `egress`
        - `seq` (of UDP the IP identification), `payload`, `transmission` (from 0)
        - `factual`, `counterfactual`: the verdicts; null where the port did not see the packet, and
          `lost` where somebody had it lost before the port or behind it
        - `t_factual`, `t_counterfactual`: when it came in (ns after the traffic's start)
        - `t`: the earlier of the two
    """
    first = _packets(factual)
    second = _with_first_ports(_packets(counterfactual), first)
    missing = _removed_on_request(counterfactual, first).join(
        second, on=[*_SEGMENT, "ip_id"], how="anti"
    )
    if missing.height:
        missing = missing.with_columns(verdict=pl.lit("lost"))
        second = pl.concat([missing, second]).sort("t_in", maintain_order=True)
    second = _numbered(second, first, factual)
    actual, altered = (
        _with_sendings(frame)
        .rename({"verdict": name} | {key: f"{key}_{name}" for key in ("flow", "seq", "t_in")})
        .drop("ip_id", "is_datagram")
        for frame, name in ((first, "factual"), (second, "counterfactual"))
    )
    both = actual.join(altered, on=[*_SEGMENT, "transmission"], how="full", coalesce=True)
    both = both.rename({f"t_in_{name}": f"t_{name}" for name in ("factual", "counterfactual")})
    return both.select(
        pl.coalesce("flow_factual", "flow_counterfactual").alias("flow"),
        pl.coalesce("seq_factual", "seq_counterfactual").alias("seq"),
        *("payload", "transmission", "egress", "factual", "counterfactual"),
        *("t_factual", "t_counterfactual"),
        pl.min_horizontal("t_factual", "t_counterfactual").alias("t"),
        (~pl.col("factual").eq_missing(pl.col("counterfactual"))).alias("other"),
    ).sort("t", "flow", "seq", "payload", "transmission")


def _packets(run: Run) -> pl.DataFrame:
    """A run's packets, of which those that links lost on request have the verdict `lost`."""
    # Each packet of TCP has a flag, and no datagram of UDP has one.
    is_datagram = pl.col("flags") == 0
    first_seq = pl.col("seq").cast(pl.Int64).sort_by("t_in").first().over(_ENDS)
    relative = (pl.col("seq").cast(pl.Int64) - first_seq) % (1 << 32)
    ip_id = pl.col("ip_id").cast(pl.Int64)
    with run.reading():
        packets = run.table("packets", whole=True).select(
            # At a second studied queue, a flow that counts at the first has another number.
            pl.col("flow").cast(pl.Int64).min().over(_ENDS),
            pl.when(is_datagram).then(ip_id).otherwise("seq").cast(pl.Int64).alias("seq"),
            pl.when(is_datagram).then(ip_id).otherwise(relative).alias("relative"),
            pl.col("payload").cast(pl.Int64),
            pl.col("src", "dst", "egress", "verdict").cast(pl.String),
            *("sport", "dport", "ip_id"),
            pl.col("t_in") - run.manifest.traffic.t_start_ns,
            is_datagram.alias("is_datagram"),
        )
    return packets


def _with_sendings(packets: pl.DataFrame) -> pl.DataFrame:
    """Packets with `transmission`: how often their segment had been sent, as the port saw it.

    If later data was sent before what the port sees first of a segment, that is a retransmission.
    The IP identifications of a connection have the order of sending; without them it is that of
    arrival.
    """
    connection = [*_ENDS, "egress"]
    step = (pl.col("ip_id").cast(pl.Int64).diff() + (1 << 15)) % (1 << 16) - (1 << 15)
    reached = (pl.col("relative") + pl.col("payload")).cum_max().shift(1).over(connection)
    is_again = ~pl.col("is_datagram") & (pl.col("payload") > 0) & (reached > pl.col("relative"))
    return (
        packets.with_row_index("place")
        .with_columns(step.fill_null(0).cum_sum().over(connection).alias("sent"))
        .sort("sent", "place")
        .with_columns(is_again.fill_null(value=False).cast(pl.Int64).alias("again"))
        .sort("place")
        .with_columns(
            (pl.int_range(pl.len()) + pl.col("again").first()).over(_SEGMENT).alias("transmission")
        )
        .drop("place", "sent", "again")
    )


def _is(packet: PacketFate) -> pl.Expr:
    is_src = pl.col("src") == str(packet.src)
    ports = (pl.col("sport") == packet.sport) & (pl.col("dport") == packet.dport)
    return is_src & ports & (pl.col("ip_id") == packet.ip_id)


def _removed_on_request(run: Run, before: pl.DataFrame) -> pl.DataFrame:
    """The packets of the run before that this run had to drop."""
    changes = run.directory.read_manifest().interventions or Interventions(of="")
    away = [fate for fate in changes.fates if fate.fate == "drop" and fate.ip_id]
    return before.filter(pl.any_horizontal(pl.lit(value=False), *map(_is, away)))


def _with_first_ports(packets: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """Packets of the second run with the ports that their connections have in the first one."""
    first, second = (
        frame.group_by(_ENDS).agg(pl.col("t_in").min()).sort("t_in", *_ENDS)
        for frame in (before, packets)
    )
    kind = pl.struct(
        *("src", "dst"),
        pl.min_horizontal("sport", "dport").alias("lower"),
        (pl.col("sport") < pl.col("dport")).alias("serves"),
    )
    other, known = (
        mine.join(theirs, on=_ENDS, how="anti", maintain_order="left").select(
            *_ENDS, kind.alias("kind")
        )
        for mine, theirs in ((second, first), (first, second))
    )
    number = pl.int_range(pl.len()).over("kind").alias("number")
    known = known.with_columns(number).rename({"sport": "own_sport", "dport": "own_dport"})
    pairs = other.with_columns(number).join(known, on=["kind", "number"])
    joined = packets.join(
        pairs.select(*_ENDS, "own_sport", "own_dport"), on=_ENDS, how="left", maintain_order="left"
    )
    ports = (pl.coalesce(f"own_{port}", port).alias(port) for port in ("sport", "dport"))
    return joined.with_columns(*ports).drop("own_sport", "own_dport")


def flow_numbers(factual: Run, counterfactual: Run) -> dict[int, int]:
    """The numbers that flows of the second run have in the first one, or after its own."""
    first = _packets(factual)
    second = _packets(counterfactual).with_columns(pl.col("flow").alias("own"))
    both = _numbered(_with_first_ports(second, first), first, factual)
    return dict(both.group_by("own").agg(pl.col("flow").first()).iter_rows())


def _numbered(packets: pl.DataFrame, before: pl.DataFrame, factual: Run) -> pl.DataFrame:
    """Packets of the second run with the flows' numbers of the first one."""
    planned = len(factual.directory.read_plan().flows)
    known = before.group_by(_ENDS).agg(pl.col("flow").first().alias("known"))
    joined = packets.join(known, on=_ENDS, how="left", maintain_order="left")
    # Planned flows have their number in both runs.
    number = pl.coalesce("known", pl.when(pl.col("flow") < planned).then("flow"))
    new = joined.filter(number.is_null())["flow"].unique().sort().to_list()
    own = [flow.flow for flow in factual.manifest.flows]
    last = max([planned - 1, *own, *before["flow"].unique()])
    others = pl.col("flow").replace_strict(
        new, range(last + 1, last + 1 + len(new)), default=None, return_dtype=pl.Int64
    )
    return joined.with_columns(pl.coalesce(number, others).alias("flow")).drop("known")


def goodput(factual: Run, counterfactual: Run, numbers: dict[int, int]) -> pl.DataFrame:
    """Goodput of every flow over time in both runs: `flow`, `t` (ns), and a column for each."""
    first, second = (
        run.table("throughput").select("flow", "t", pl.col("goodput_bps").alias(name))
        for run, name in ((factual, "factual_bps"), (counterfactual, "counterfactual_bps"))
    )
    second = second.with_columns(pl.col("flow").replace(numbers))
    both = first.join(second, on=["flow", "t"], how="full", coalesce=True)
    return both.fill_null(0).sort("flow", "t")


def of(
    factual: Run,
    counterfactual: Run,
    explanation: Explanation | None,
    changes: pl.DataFrame,
    numbers: dict[int, int],
) -> WhatIf:
    """The record of two runs for whatif.json.

    `explanation` says where they part; None if nothing does. `changes` and `numbers` are what
    `blast` and `flow_numbers` gave.
    """
    first = None if explanation is None else explanation.first
    other = changes.filter("other")
    only = [other.filter(pl.col(name).is_null()).height for name in ("counterfactual", "factual")]
    ratios = [main_ratio(run.summary) for run in (factual, counterfactual)]
    changed = counterfactual.directory.read_manifest().interventions or Interventions(of="")
    tables = flow_tables(factual, counterfactual, numbers)
    flows, groups = _names(factual, {}), _groups(factual, {})
    flows |= _names(counterfactual, numbers)
    for label, own in _groups(counterfactual, numbers).items():
        groups[label] = sorted({*groups.get(label, []), *own})
    named = other.head(NAMED).rename({"t": "t_in_ns"}).select(*OtherFate.model_fields)
    return WhatIf(
        of=changed.of,
        changes=[*change_lines(changed)],
        parts_ns=None if first is None else first.since_start_ns,
        parts=_parts(explanation, _causes(factual, counterfactual)),
        flows=[
            *compared(tables, flows),
            *transfers(factual, counterfactual),
            *streams(factual, counterfactual),
        ],
        groups=compared(tables, groups),
        ratio=Compared(factual=ratios[0], counterfactual=ratios[1]),
        changed=other.height - sum(only),
        only_factual=only[0],
        only_counterfactual=only[1],
        packets=changes.height,
        by_flow=dict(other.group_by("flow").len().sort("flow").iter_rows()),
        first=[OtherFate(**row) for row in named.iter_rows(named=True)],
    )


def _causes(factual: Run, counterfactual: Run) -> Iterator[str]:
    manifests = (run.directory.read_manifest() for run in (factual, counterfactual))
    for words in causes(*manifests):
        yield f"other programs made them, which can decide packets too: {words}"


def _parts(explanation: Explanation | None, causes: Iterator[str]) -> list[str]:
    if explanation is None:
        return [*causes]
    first = explanation.first
    # The manifests of the two runs always differ.
    equal = explanation.lines()[0].removesuffix(", although:")
    return [equal] if first is None else [*first.lines(), *causes]


def _names(run: Run, numbers: dict[int, int]) -> dict[str, list[int]]:
    every = {numbers.get(flow.flow, flow.flow): flow.src for flow in run.manifest.flows}
    return {f"flow {flow} ({src})": [flow] for flow, src in sorted(every.items())}


def _groups(run: Run, numbers: dict[int, int]) -> dict[str, list[int]]:
    groups = run.manifest.groups[run.summary.group_by]
    return {
        label: [numbers.get(flow.flow, flow.flow) for flow in flows]
        for label, flows in groups.items()
    }


def require_fates(run: Run, fates: Sequence[PacketFate]) -> None:
    """Raises RunError if a packet has another fate in the captures than the requested one."""
    with run.reading():
        packets = run.table("packets", whole=True)
    for fate in fates:
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
        # Equal datagrams without an IP identification are matched in their order.
        if (fate.ip_id or fate.seq) and verdict not in (wanted, "unknown"):
            raise RunError(f"{fate.name}: was to be {wanted}, and is {verdict} in the captures")


def require_counted(run: Run) -> None:
    """Raises UntrustedError if captures and counters do not agree on the drops."""
    if not run.trusted:
        raise UntrustedError(
            f"{run.directory.path}: captures and counters do not agree: {run.reasons[0]}"
        )


_UNKNOWN = Compared(factual=None, counterfactual=None)


def flow_tables(
    factual: Run, counterfactual: Run, numbers: dict[int, int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both tables of flows, with the numbers of the first run and of its interval."""
    first, second = factual.table("flows"), counterfactual.table("flows")
    spans = {(run.summary.start_s, run.summary.end_s) for run in (factual, counterfactual)}
    if len(spans) > 1:
        second = _of_interval(counterfactual, second, factual)
        first = first.with_columns(timeouts=None, timeouts_seen=None)
    return first, second.with_columns(pl.col("flow").replace(numbers))


def _of_interval(run: Run, flows: pl.DataFrame, factual: Run) -> pl.DataFrame:
    """A table of flows with the goodput and drops of another run's interval.

    Timeouts, which sockets count, are not known of it.
    """
    summary, start_ns = factual.summary, run.manifest.traffic.t_start_ns
    from_ns, to_ns = (start_ns + round(at * 1e9) for at in (summary.start_s, summary.end_s))
    with run.reading():
        packets = run.table("packets", whole=True).filter(pl.col("payload") > 0)
    packets = packets.with_row_index()
    # A datagram has no sequence number, and is sent once.
    segment = pl.when(pl.col("flags") == 0).then("index").otherwise("seq")
    firsts = packets.group_by("flow", segment.alias("segment")).agg(
        pl.col("t_out").min(), pl.col("payload").max()
    )
    got = firsts.filter(pl.col("t_out").is_between(from_ns, to_ns)).group_by("flow").agg(
        pl.col("payload").sum()
    )  # fmt: skip
    lost = packets.filter(pl.col("t_in").is_between(from_ns, to_ns), verdict="dropped")
    bits = pl.col("payload").fill_null(0) * 8e9 / (to_ns - from_ns)
    return (
        flows.drop("dropped")
        .join(got, on="flow", how="left", maintain_order="left")
        .join(lost.group_by("flow").agg(pl.len().alias("dropped")), on="flow", how="left")
        .with_columns(
            pl.col("dropped").fill_null(0), goodput_bps=bits, timeouts=None, timeouts_seen=None
        )
    )


def compared(
    tables: tuple[pl.DataFrame, pl.DataFrame], named: dict[str, list[int]]
) -> list[ComparedFlows]:
    return [_of_flows(name, flows, tables) for name, flows in named.items()]


def _of_flows(
    name: str, flows: list[int], tables: tuple[pl.DataFrame, pl.DataFrame]
) -> ComparedFlows:
    first, second = (table.filter(pl.col("flow").is_in(flows)) for table in tables)

    def compared(value: pl.Expr) -> Compared:
        both = (rows.select(value).item() if rows.height else None for rows in (first, second))
        return Compared(**dict(zip(("factual", "counterfactual"), both, strict=True)))

    # The kernel's counts where it has each flow's in both runs, else those that captures show.
    kinds = ("timeouts", "timeouts_seen")
    known = [kind for kind in kinds if not first[kind].null_count() + second[kind].null_count()]
    return ComparedFlows(
        name=name,
        flows=len(flows),
        goodput_bps=compared(pl.col("goodput_bps").mean()),
        drops=compared(pl.col("dropped").sum()),
        timeouts=compared(pl.col(known[0]).sum()) if known else _UNKNOWN,
        completion_ns=compared(pl.col("completion_ns").mean()),
    )


def transfers(factual: Run, counterfactual: Run) -> Iterator[ComparedFlows]:
    """The TCP flows of each workload together. Drops are not known by workload."""
    summaries = [run.summary.completions or {} for run in (factual, counterfactual)]
    for number in sorted(summaries[0].keys() & summaries[1].keys()):
        first, second = (summary[number] for summary in summaries)
        if first.streams is None and "all" in first.times and "all" in second.times:
            means = [each.times["all"].mean_ms for each in (first, second)]
            mean_ns = [None if mean is None else mean * 1e6 for mean in means]
            yield ComparedFlows(
                name=f"workload {number} ({first.kind})",
                flows=first.flows,
                goodput_bps=Compared(factual=first.goodput_bps, counterfactual=second.goodput_bps),
                drops=_UNKNOWN,
                timeouts=Compared(factual=first.timeouts, counterfactual=second.timeouts),
                completion_ns=Compared(factual=mean_ns[0], counterfactual=mean_ns[1]),
            )


def streams(factual: Run, counterfactual: Run) -> Iterator[ComparedFlows]:
    """The UDP flows of workloads, which have the same addresses and ports in both runs."""
    keys = ["workload", "src", "sport", "dst"]
    if not all("streams" in run.tables for run in (factual, counterfactual)):
        return
    first, second = (
        run.table("streams").select(*keys, "received_bps", "dropped")
        for run in (factual, counterfactual)
    )
    both = first.join(second, on=keys, how="full", coalesce=True, suffix="_other").sort(keys)
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
