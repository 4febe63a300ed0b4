"""The questions: their unit, the run each is read from, and what that run says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from outcast.assignment import tasks
from outcast.records.run import Run
from outcast.records.summary import PortDrops

Known = tuple[float, ...]
"""Every value that is right; several where the question does not tell them apart."""


@dataclass(frozen=True, slots=True)
class Question:
    """One number that a student reads from a run of theirs.

    Attributes:
        unit: that the answer is in; empty where it has none.
        asked: the question in a line.
        where: the file and key where the answer stands.
        known: the right values, from an analysed run; none where the run has no such number.
        relative, absolute: how far an answer may be from a right value; the wider counts.
    """

    key: str
    unit: str
    task: tasks.Task
    asked: str
    where: str
    known: Callable[[Run], Known]
    relative: float = 0.0
    absolute: float = 0.0

    def holds(self, answer: float, known: Known) -> bool:
        """Whether the answer is near enough to one of the right values."""
        return any(
            abs(answer - value) <= max(self.absolute, self.relative * abs(value)) for value in known
        )


@dataclass(frozen=True, slots=True)
class Essay:
    """A question answered in words, for the teacher to read."""

    key: str
    asked: str


LEAST_WORDS = 15
"""Of an answer in words; fewer explain nothing."""


def _goodput(hops: int) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        found = run.summary.classes.get(str(hops))
        return () if found is None else (found.mean_goodput_bps / 1e6,)

    return known


def _round_trip(hops: int) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        found = run.summary.classes.get(str(hops))
        return () if found is None or found.srtt_ms is None else (found.srtt_ms.p50,)

    return known


def _ratio(run: Run) -> Known:
    found = run.summary.outcast_ratio
    return () if found is None else (found,)


def _total(run: Run) -> Known:
    return (run.summary.total_goodput_bps / 1e6,)


def _by_sender(source: str) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        flows = run.table("flows")
        rates = flows.filter(pl.col("src") == source)["goodput_bps"].to_list()
        return (sum(rates) / len(rates) / 1e6,) if rates else ()

    return known


def _ports(run: Run, hops: int) -> list[tuple[str, PortDrops]]:
    return [each for each in run.summary.drops.items() if each[1].hops == [hops]]


def _lost_share(hops: int) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        return tuple(
            100 * port.dropped / port.packets for _, port in _ports(run, hops) if port.packets
        )

    return known


SHORT_NS = 1_000_000
"""Half the smallest RTO. A longer chain of a lone flow is one retransmission lost after another,
with a timeout between: a consequence of a blackout, and no sight of one."""


def _longest_blackouts(run: Run) -> pl.DataFrame:
    """The lone flow's short blackouts with the most drops; more than one where they tie."""
    names = [name for name, _ in _ports(run, 2)]
    found = run.table("blackouts").filter(
        pl.col("ingress").cast(pl.String).is_in(names)
        & (pl.col("others_through") > 0)
        & (pl.col("t_end") - pl.col("t_start") < SHORT_NS)
    )
    return found.filter(pl.col("drops") == pl.col("drops").max())


def _blackout(column: str) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        return tuple(float(value) for value in _longest_blackouts(run)[column].unique())

    return known


def _blackout_start(run: Run) -> Known:
    began = run.manifest.traffic.t_start_ns
    return tuple((value - began) / 1e6 for value in _longest_blackouts(run)["t_start"])


def _packet_time(run: Run) -> Known:
    return tuple(port.packet_time_us for port in run.summary.phase.values())


def _first_tenth(lost: bool) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        return tuple(
            100 * (port.during_lost if lost else port.during_others)[0]
            for port in run.summary.phase.values()
            if port.blackouts
        )

    return known


QUESTIONS = (
    Question(
        "lone_goodput_mbps",
        "Mbps",
        tasks.UNFAIR,
        "What does the 2-hop flow get?",
        "summary.json, classes.2.mean_goodput_bps",
        _goodput(2),
        relative=0.02,
    ),
    Question(
        "rival_goodput_mbps",
        "Mbps",
        tasks.UNFAIR,
        "What does a 6-hop flow get in the mean?",
        "summary.json, classes.6.mean_goodput_bps",
        _goodput(6),
        relative=0.02,
    ),
    Question(
        "outcast_ratio",
        "",
        tasks.UNFAIR,
        "How many times as much is the second as the first?",
        "summary.json, outcast_ratio",
        _ratio,
        relative=0.03,
    ),
    Question(
        "lone_rtt_ms",
        "ms",
        tasks.UNFAIR,
        "What is the median of the 2-hop sender's smoothed round trip?",
        "summary.json, classes.2.srtt_ms.p50",
        _round_trip(2),
        relative=0.02,
    ),
    Question(
        "rival_rtt_ms",
        "ms",
        tasks.UNFAIR,
        "And that of the 6-hop senders?",
        "summary.json, classes.6.srtt_ms.p50",
        _round_trip(6),
        relative=0.02,
    ),
    Question(
        "equal_rtt_lone_mbps",
        "Mbps",
        tasks.EQUAL_RTT,
        "At equal distance: what does the flow that is alone on its port get?",
        "flows.parquet, goodput_bps of src h0_1_2",
        _by_sender("h0_1_2"),
        relative=0.02,
    ),
    Question(
        "equal_rtt_rival_mbps",
        "Mbps",
        tasks.EQUAL_RTT,
        "And one of the twelve in the mean?",
        "flows.parquet, goodput_bps of src h0_1_3",
        _by_sender("h0_1_3"),
        relative=0.02,
    ),
    Question(
        "lone_port_lost_percent",
        "%",
        tasks.UNFAIR,
        "How many of the packets that came in by the 2-hop flow's port were dropped?",
        "summary.json, drops: dropped and packets of the port with hops [2]",
        _lost_share(2),
        relative=0.02,
        absolute=0.05,
    ),
    Question(
        "rival_port_lost_percent",
        "%",
        tasks.UNFAIR,
        "And by the 6-hop flows' port?",
        "summary.json, drops: the port with hops [6]",
        _lost_share(6),
        relative=0.02,
        absolute=0.05,
    ),
    Question(
        "blackout_drops",
        "packets",
        tasks.UNFAIR,
        "How many packets did the longest blackout of the 2-hop flow's port take, of those that "
        "lasted less than 1 ms?",
        "blackouts.parquet, drops (others_through above 0, t_end - t_start below 1000000)",
        _blackout("drops"),
    ),
    Question(
        "blackout_start_ms",
        "ms after the traffic's start",
        tasks.UNFAIR,
        "When did it begin? If several are as long, any of them.",
        "outcast inspect runs/unfair --verdict dropped, or blackouts.parquet, t_start",
        _blackout_start,
        absolute=0.05,
    ),
    Question(
        "blackout_others",
        "packets",
        tasks.UNFAIR,
        "How many packets of the other port got through while it lasted?",
        "outcast inspect runs/unfair --around ... --queue, or blackouts.parquet, others_through",
        _blackout("others_through"),
    ),
    Question(
        "packet_time_us",
        "us",
        tasks.UNFAIR,
        "How long does a full frame (1514 bytes) take on the receiver's link?",
        "work it out; summary.json, phase, packet_time_us has it too",
        _packet_time,
        relative=0.01,
    ),
    Question(
        "phase_lost_percent",
        "%",
        tasks.UNFAIR,
        "In blackouts, how many of the losing port's packets came in within the first tenth of a "
        "packet time after a departure?",
        "summary.json, phase, during_lost, the first of ten shares: 0.25 is 25 %",
        _first_tenth(True),
        absolute=1.0,
    ),
    Question(
        "phase_others_percent",
        "%",
        tasks.UNFAIR,
        "And of the other port's?",
        "summary.json, phase, during_others, the first of ten shares",
        _first_tenth(False),
        absolute=1.0,
    ),
    Question(
        "remedy_ratio",
        "",
        tasks.REMEDY,
        "With your remedy, how many times as much as the 2-hop flow does a 6-hop flow get?",
        "summary.json, outcast_ratio",
        _ratio,
        relative=0.03,
    ),
    Question(
        "remedy_total_mbps",
        "Mbps",
        tasks.REMEDY,
        "And what do all flows get together?",
        "summary.json, total_goodput_bps",
        _total,
        relative=0.02,
    ),
)

ESSAYS = (
    Essay("why_not_rtt", "Why can the round-trip time not be the reason? Use both runs."),
    Essay(
        "why_blackouts",
        "Why does one port lose several packets in a row, and why does that "
        "hurt the lone flow more than the twelve?",
    ),
    Essay("why_this_remedy", "Why should your remedy help, did it, and what does it cost?"),
)
