"""Prepares what the blackout viewer shows: the bottleneck's packets and its chains of drops."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from outcast import uses
from outcast.analysis import selection
from outcast.analysis.machine_code import Array, Bool
from outcast.analysis.measure.segments import segments
from outcast.analysis.store import NOTES, VERDICTS
from outcast.experiment.engine import properties
from outcast.plan.addresses import with_port
from outcast.plan.grouping import controls, title
from outcast.records.run import Run
from outcast.view import palette, sender_series
from outcast.view.events import doubt_bytes, moments
from outcast.view.report.packed import Columns, pack
from outcast.view.report.page import Table

MOST_PACKETS = 2_000_000
"""The most packets in a page, besides dropped ones. A packet takes 3 to 7 bytes."""
MOST_POINTS = 400_000
"""The most points of all flows' series in a page, besides changes of a state or of ssthresh."""
_OF_QUEUE = ("limit_bytes", "rate_bps")
NEAR_PACKETS = 64
"""How many packets are kept before and after each dropped one."""


class Lanes(Protocol):
    """The viewer's lanes of the senders, from the kernel's events of a run."""

    def pairs(self) -> tuple[Array, Array]:
        """The rows in packets.parquet of dropped packets, and of their retransmissions."""

    def packed(
        self, flows: Sequence[int], place: Array, most: int
    ) -> tuple[dict[str, Any], dict[str, Columns]]:
        """A part of the header, and columns; `place` has each packet's row in the page, or -1."""


@dataclass(frozen=True)
class Timeline:
    """The viewer's data.

    Attributes:
        header: everything that is not packed, as JSON.
        payload: the packed columns, as base64 text.
        every: n, if every n-th packet away from drops is kept.
        points_every: n, if four of n consecutive points of a flow are kept; 1 if all are.
    """

    header: str
    payload: str
    packets: int
    kept: int
    every: int
    traced: bool
    points: int
    points_every: int


def thin(dropped: Array, resent: Array, lane: Array, most: int) -> tuple[Array, int]:
    """Chooses which packets to keep.

    Drops and packets whose data was sent twice are always kept. So are `NEAR_PACKETS` on either
    side of each drop, unless they alone exceed `most`. Of the others, each lane keeps every n-th.

    Returns:
        For each packet whether to keep it, and n.
    """
    if dropped.size <= most:
        return np.ones(dropped.size, bool), 1
    keep = dropped | resent
    edges = np.zeros(dropped.size + 1, np.int64)
    at = np.flatnonzero(dropped)
    np.add.at(edges, np.maximum(at - NEAR_PACKETS, 0), 1)
    np.add.at(edges, np.minimum(at + NEAR_PACKETS + 1, dropped.size), -1)
    near = np.cumsum(edges[:-1]) > 0
    if int((near | keep).sum()) <= most:
        keep |= near
    rest = np.flatnonzero(~keep)
    every = -(-rest.size // max(1, most - int(keep.sum())))
    for number in np.unique(lane):
        keep[rest[lane[rest] == number][::every]] = True
    return keep, every


def make(run: Run, most: int = MOST_PACKETS, most_points: int = MOST_POINTS) -> Timeline:
    """Packs the packets and chains of an analysed run."""
    packets = run.table("packets", whole=True)
    start_ns = run.manifest.traffic.t_start_ns
    first_ns = int(packets["t_in"][0]) if packets.height else start_ns
    inputs, outputs = _ports(run, packets)
    lane = _codes(packets["ingress"], inputs)
    dropped = (packets["verdict"] == "dropped").to_numpy()
    lanes: Lanes | None = None
    if sender_series.exact(run):
        lanes = uses.find(uses.LANES)(run, packets)
    following, known = _sent_again(packets, outputs, dropped, lanes)
    resent = following >= 0
    resent[following[resent]] = True
    keep, every = thin(dropped, resent, lane, most)
    rows = np.flatnonzero(keep)
    flows, flow, colours = _flows(run, packets)
    entered = _entered(run, packets)[rows]
    columns = _columns(packets[rows], entered, flow[rows], lane[rows], outputs, first_ns)
    if every > 1:
        columns["weight"] = ("plain", _weights(keep, dropped, lane)[rows])
        columns["row"] = ("delta", rows)
    place = np.where(keep, np.cumsum(keep) - 1, -1)
    numbers = [flow["flow"] for flow in flows]
    points, sender_columns = lanes.packed(numbers, place, most_points) if lanes else (None, {})
    chains, again = _chains(run, inputs, first_ns), _pairs(following, known, place)
    tables, text = pack({"packets": columns, "chains": chains, "again": again, **sender_columns})
    queues = {record.egress: record.queue for record in run.manifest.bottlenecks}
    doubts = {record.egress: doubt_bytes(run, record) for record in run.manifest.bottlenecks}
    header: dict[str, Any] = {
        "name": run.manifest.name,
        "first_ns": first_ns - start_ns,
        "start_epoch_ns": str(start_ns),
        "duration_ns": run.manifest.traffic.duration_ns,
        "packets": packets.height,
        "virtual": properties(run.summary.engine).own_kernel,
        "every": every,
        "events": _events(run),
        "inputs": [{"port": port, "label": run.port_label(port)} for port in inputs],
        "outputs": [
            {
                "port": port,
                **{name: getattr(queues.get(port), name, None) for name in _OF_QUEUE},
                "doubt_bytes": doubts.get(port),
            }
            for port in outputs
        ],
        "flows": flows,
        "palette": colours,
        "colours": {**palette.SENDER_STATES, **palette.SENT_AGAIN},
        "verdicts": list(VERDICTS),
        "notes": list(NOTES),
        "senders": points,
        "tables": tables,
    }
    return Timeline(
        # Escaped, the same JSON cannot end the element that holds it.
        header=json.dumps(header).replace("<", "\\u003c"),
        payload=text,
        packets=packets.height,
        kept=int(rows.size),
        every=every,
        traced=lanes is not None,
        points=points["points"] if points else 0,
        points_every=points["every"] if points else 1,
    )


def _ports(run: Run, packets: pl.DataFrame) -> tuple[list[str], list[str]]:
    """The input and output ports, each once: those of bottlenecks first, others by name."""
    records = run.manifest.bottlenecks
    ports = (
        dict.fromkeys(port for record in records for port in record.ingress),
        dict.fromkeys(record.egress for record in records),
    )
    every = []
    for known, side in zip(ports, ("ingress", "egress"), strict=True):
        seen = set(packets[side].drop_nulls().cast(pl.String).unique())
        every.append([*known, *sorted(seen - known.keys())])
    return every[0], every[1]


def _columns(
    packets: pl.DataFrame,
    entered: Array,
    flow: Array,
    lane: Array,
    outputs: list[str],
    first_ns: int,
) -> Columns:
    t_in = packets["t_in"].to_numpy()
    t_out, last = packets["t_out"].fill_null(-1).to_numpy(), np.iinfo(np.int64).max
    seq = packets["seq"].to_numpy().astype(np.int64)
    payload = packets["payload"].to_numpy().astype(np.int64)
    return {
        "t_in": ("delta", t_in - first_ns),
        "enters": ("signed", entered - t_in),
        "stays": ("plain", np.maximum(np.where(t_out >= 0, t_out - t_in + 1, 0), 0)),
        # Packets that never left come last.
        "order": ("delta", np.argsort(np.where(t_out < 0, last, t_out), kind="stable")),
        "flow": ("plain", flow),
        "lane": ("plain", lane),
        "output": ("plain", _codes(packets["egress"], outputs) + 1),
        "verdict": ("plain", _codes(packets["verdict"], VERDICTS)),
        "note": ("plain", _codes(packets["note"], NOTES)),
        "frame": ("plain", packets["frame"].to_numpy()),
        "payload": ("plain", payload),
        "seq": ("signed", _unforeseen(seq, payload, flow)),
        "flags": ("plain", packets["flags"].to_numpy()),
        "found": ("plain", packets["queue_bytes"].fill_null(-1).to_numpy() + 1),
    }


def _chains(run: Run, inputs: list[str], first_ns: int) -> Columns:
    chains = selection.blackouts(run)
    return {
        "t_start": ("delta", chains["t_start"].to_numpy() - first_ns),
        "lasts": ("plain", (chains["t_end"] - chains["t_start"]).to_numpy()),
        "gap": ("plain", chains["longest_gap_ns"].to_numpy()),
        "before_gap": ("plain", chains["before_gap"].to_numpy()),
        "lane": ("plain", _codes(chains["ingress"], inputs)),
        "drops": ("plain", chains["drops"].to_numpy()),
        "flows": ("plain", chains["flows"].to_numpy()),
        "through": ("plain", chains["others_through"].to_numpy()),
        "number": ("plain", chains["blackout"].to_numpy()),
    }


def _events(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "t_ns": round(moment.t_s * 1e9),
            "until_ns": moment.down_until_s and round(moment.down_until_s * 1e9),
            "text": moment.text,
        }
        for moment in moments(run)
    ]


def _codes(column: pl.Series, names: list[str] | tuple[str, ...]) -> Array:
    places = {name: place for place, name in enumerate(names)}
    codes = column.cast(pl.String).replace_strict(places, default=-1, return_dtype=pl.Int64)
    return codes.fill_null(-1).to_numpy()


def _sent_again(
    packets: pl.DataFrame, outputs: list[str], dropped: Array, lanes: Lanes | None
) -> tuple[Array, Bool]:
    """For each packet the row of the next one with its first byte, or -1.

    The second array says whether this is known from the kernel's events. Otherwise it is inferred.
    """
    path = packets["flow"].to_numpy().astype(np.int64) * (len(outputs) + 1)
    path += _codes(packets["egress"], outputs) + 1
    fields = ("seq", "payload", "flags", "ip_id")
    seq, payload, flags, ip_id = (packets[name].to_numpy() for name in fields)
    following = segments(path, seq, payload, flags, dropped, ip_id).following
    known = np.zeros(following.size, np.bool_)
    if lanes is not None:
        earlier, later = lanes.pairs()
        following[earlier] = later
        known[earlier] = True
    return following, known


def _pairs(following: Array, known: Bool, place: Array) -> Columns:
    rows = np.flatnonzero(following >= 0)
    return {
        "row": ("delta", place[rows]),
        "after": ("plain", place[following[rows]] - place[rows]),
        "known": ("plain", known[rows]),
    }


def _weights(keep: Array, dropped: Array, lane: Array) -> Array:
    """For each packet kept, the number of packets of its lane since the one kept before it."""
    weight = dropped.astype(np.int64)
    for number in np.unique(lane):
        rows = np.flatnonzero((lane == number) & ~dropped)
        kept = np.flatnonzero(keep[rows])
        weight[rows[kept]] = np.diff(kept, prepend=-1)
    return weight


def _entered(run: Run, packets: pl.DataFrame) -> Array:
    """When each packet was queued or dropped, or came in if that is unknown."""
    entered = packets["t_in"].to_numpy().copy()
    arrived = run.scan("queue").filter(pl.col("event") != "dequeue", pl.col("packet").is_not_null())
    events = arrived.select("packet", "t").collect()
    entered[events["packet"].to_numpy()] = events["t"].to_numpy()
    return entered


def _unforeseen(seq: Array, payload: Array, flow: Array) -> Array:
    """Sequence numbers minus the expected one of their flow (signed, modulo 2^32)."""
    expected = np.zeros(seq.size, np.int64)
    order = np.argsort(flow, kind="stable")
    follows = (seq + payload)[order]
    same = flow[order][1:] == flow[order][:-1]
    expected[order[1:]] = np.where(same, follows[:-1], 0)
    return (seq - expected + (1 << 31)) % (1 << 32) - (1 << 31)


def _flows(run: Run, packets: pl.DataFrame) -> tuple[list[dict[str, Any]], Array, list[str]]:
    """A description of every flow with packets, each packet's place in these, and the colours."""
    known = {flow.flow: flow for flow in run.manifest.flows}
    planned = palette.shaded(run.group_of, palette.run_colours(run))
    ends_of = pl.col("src", "sport", "dst", "dport")
    seen = packets.lazy().group_by("flow").agg(ends_of.first()).sort("flow").collect()
    colours = list(dict.fromkeys((*planned.values(), *palette.SERIES)))
    described = []
    for place, (number, src, sport, dst, dport) in enumerate(seen.iter_rows()):
        flow = known.get(number)
        ends = with_port(src, sport), with_port(dst, dport)
        described.append(
            {
                "flow": number,
                "colour": colours.index(planned.get(number, palette.series_colour(place))),
                **{"from": ends[0], "to": ends[1]},
                # A receiver answers many from one port.
                "label": f"{flow.src} #{flow.flow}" if flow else " to ".join(ends),
                "group": title(run.group_of[flow.flow], controls([flow])) if flow else None,
            }
        )
    places = np.searchsorted(seen["flow"].to_numpy(), packets["flow"].to_numpy())
    return described, np.asarray(places, np.int64), colours


LISTED = 10
_HEAD = (
    *("came in at", "number", "port", "drops", "lasts (ms)", "longest gap (ms)"),
    *("drops before it", "flows", "others through"),
)


def values(run: Run, packed: Timeline) -> dict[str, object]:
    return {
        "packed": packed,
        "near_packets": NEAR_PACKETS,
        "can_trace": properties(run.summary.engine).own_kernel,
        "longest": _longest(run),
    }


def _longest(run: Run) -> Table:
    """The longest blackouts. A row's first cell is when it came in and its number, for a link."""
    chains = selection.blackouts(run)
    lasts = pl.col("t_end") - pl.col("t_start")
    chains = chains.sort("drops", lasts, "t_start", descending=[True, False, False]).head(LISTED)
    start_ns = run.manifest.traffic.t_start_ns
    rows = [
        (
            (f"{(row['t_start'] - start_ns) / 1e6:.4f} ms", row["blackout"]),
            row["blackout"],
            run.port_label(row["ingress"]),
            row["drops"],
            f"{(row['t_end'] - row['t_start']) / 1e6:,.4f}",
            f"{row['longest_gap_ns'] / 1e6:,.4f}",
            row["before_gap"],
            row["flows"],
            f"{row['others_through']:,}",
        )
        for row in chains.iter_rows(named=True)
    ]
    return Table("The longest blackouts, by drops", _HEAD, rows, 3)
