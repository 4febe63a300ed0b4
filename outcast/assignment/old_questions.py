"""The questions: the unit of the answer, the run it comes from, and the right answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from outcast.assignment import old_tasks as tasks
from outcast.records.run import Run
from outcast.records.summary import PortDrops

Known = tuple[float, ...]
"""All right values of a question; several if the question does not tell them apart."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question for one number that students read from their own runs.

    Attributes:
        unit: the unit of the answer; empty if it has none.
        asked: the question in one line.
        where: the file and key that hold the answer.
        known: returns the right values from an analysed run; none if the run has no such number.
        relative, absolute: how far an answer may be from a right value. The wider one counts.
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
    """A question with an answer in words, which the teacher reads."""

    key: str
    asked: str


LEAST_WORDS = 15
"""The least length of an answer in words, because fewer words explain nothing."""


def _goodput(hops: int) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        of_class = run.summary.classes.get(str(hops))
        return () if of_class is None else (of_class.mean_goodput_bps / 1e6,)

    return known


def _round_trip(hops: int) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        of_class = run.summary.classes.get(str(hops))
        return () if of_class is None or of_class.srtt_ms is None else (of_class.srtt_ms.p50,)

    return known


def _ratio(run: Run) -> Known:
    ratio = run.summary.outcast_ratio
    return () if ratio is None else (ratio,)


def _total(run: Run) -> Known:
    return (run.summary.total_goodput_bps / 1e6,)


def _by_sender(source: str) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        flows = run.table("flows")
        rates = flows.filter(pl.col("src") == source)["goodput_bps"].to_list()
        return (sum(rates) / len(rates) / 1e6,) if rates else ()

    return known


def _ports(run: Run, hops: int) -> list[tuple[str, PortDrops]]:
    return [(name, port) for name, port in run.summary.drops.items() if port.hops == [hops]]


def _lost_share(hops: int) -> Callable[[Run], Known]:
    def known(run: Run) -> Known:
        return tuple(
            100 * port.dropped / port.packets for _, port in _ports(run, hops) if port.packets
        )

    return known


SHORT_NS = 1_000_000
"""Half the smallest RTO. In a longer chain of a lone flow, one retransmission after another was
lost, with a timeout between them. That is a consequence of a blackout, and not a blackout."""


def _longest_blackouts(run: Run) -> pl.DataFrame:
    """The lone flow's short blackouts with the most drops; several if they have equally many."""
    names = [name for name, _ in _ports(run, 2)]
    blackouts = run.table("blackouts").filter(
        pl.col("ingress").cast(pl.String).is_in(names)
        & (pl.col("others_through") > 0)
        & (pl.col("t_end") - pl.col("t_start") < SHORT_NS)
    )
    return blackouts.filter(pl.col("drops") == pl.col("drops").max())


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
        "What is the goodput of the 2-hop flow?",
        "summary.json, classes.2.mean_goodput_bps",
        _goodput(2),
        relative=0.02,
    ),
    Question(
        "rival_goodput_mbps",
        "Mbps",
        tasks.UNFAIR,
        "What is the mean goodput of a 6-hop flow?",
        "summary.json, classes.6.mean_goodput_bps",
        _goodput(6),
        relative=0.02,
    ),
    Question(
        "outcast_ratio",
        "",
        tasks.UNFAIR,
        "How many times the goodput of the 2-hop flow does a 6-hop flow get?",
        "summary.json, outcast_ratio",
        _ratio,
        relative=0.03,
    ),
    Question(
        "lone_rtt_ms",
        "ms",
        tasks.UNFAIR,
        "What is the median of the 2-hop sender's smoothed round-trip time?",
        "summary.json, classes.2.srtt_ms.p50",
        _round_trip(2),
        relative=0.02,
    ),
    Question(
        "rival_rtt_ms",
        "ms",
        tasks.UNFAIR,
        "What is the median of the 6-hop senders' smoothed round-trip time?",
        "summary.json, classes.6.srtt_ms.p50",
        _round_trip(6),
        relative=0.02,
    ),
    Question(
        "equal_rtt_lone_mbps",
        "Mbps",
        tasks.EQUAL_RTT,
        "At equal distance: what is the goodput of the flow that is alone on its port?",
        "flows.parquet, goodput_bps of src h0_1_2",
        _by_sender("h0_1_2"),
        relative=0.02,
    ),
    Question(
        "equal_rtt_rival_mbps",
        "Mbps",
        tasks.EQUAL_RTT,
        "At equal distance: what is the mean goodput of one of the twelve flows?",
        "flows.parquet, goodput_bps of src h0_1_3",
        _by_sender("h0_1_3"),
        relative=0.02,
    ),
    Question(
        "lone_port_lost_percent",
        "%",
        tasks.UNFAIR,
        "How many percent of the packets that came in by the 2-hop flow's port were dropped?",
        "summary.json, drops: dropped and packets of the port with hops [2]",
        _lost_share(2),
        relative=0.02,
        absolute=0.05,
    ),
    Question(
        "rival_port_lost_percent",
        "%",
        tasks.UNFAIR,
        "How many percent of the packets that came in by the 6-hop flows' port were dropped?",
        "summary.json, drops: the port with hops [6]",
        _lost_share(6),
        relative=0.02,
        absolute=0.05,
    ),
    Question(
        "blackout_drops",
        "packets",
        tasks.UNFAIR,
        "Look at the blackouts of the 2-hop flow's port that lasted less than 1 ms. How many "
        "packets did the longest one drop?",
        "blackouts.parquet, drops (others_through above 0, t_end - t_start below 1000000)",
        _blackout("drops"),
    ),
    Question(
        "blackout_start_ms",
        "ms after the traffic's start",
        tasks.UNFAIR,
        "When did this blackout begin? If several dropped equally many packets, take any of them.",
        "outcast inspect runs/unfair --verdict dropped, or blackouts.parquet, t_start",
        _blackout_start,
        absolute=0.05,
    ),
    Question(
        "blackout_others",
        "packets",
        tasks.UNFAIR,
        "How many packets of the other port got through during this blackout?",
        "outcast inspect runs/unfair --around ... --queue, or blackouts.parquet, others_through",
        _blackout("others_through"),
    ),
    Question(
        "packet_time_us",
        "us",
        tasks.UNFAIR,
        "How long does a full frame (1514 bytes) take on the receiver's link?",
        "calculate it; summary.json, phase, packet_time_us has it too",
        _packet_time,
        relative=0.01,
    ),
    Question(
        "phase_lost_percent",
        "%",
        tasks.UNFAIR,
        "In blackouts, how many percent of the losing port's packets came in within the first "
        "tenth of a packet time after a departure?",
        "summary.json, phase, during_lost, the first of ten shares: 0.25 is 25 %",
        _first_tenth(True),
        absolute=1.0,
    ),
    Question(
        "phase_others_percent",
        "%",
        tasks.UNFAIR,
        "In blackouts, how many percent of the other port's packets came in within that tenth?",
        "summary.json, phase, during_others, the first of ten shares",
        _first_tenth(False),
        absolute=1.0,
    ),
    Question(
        "remedy_ratio",
        "",
        tasks.REMEDY,
        "With your remedy, how many times the goodput of the 2-hop flow does a 6-hop flow get?",
        "summary.json, outcast_ratio",
        _ratio,
        relative=0.03,
    ),
    Question(
        "remedy_total_mbps",
        "Mbps",
        tasks.REMEDY,
        "With your remedy, what is the goodput of all flows together?",
        "summary.json, total_goodput_bps",
        _total,
        relative=0.02,
    ),
)

ESSAYS = (
    Essay("why_not_rtt", "Why is the round-trip time not the reason? Use both runs."),
    Essay(
        "why_blackouts",
        "Why does one port lose several packets in a row, and why does that "
        "hurt the lone flow more than the twelve?",
    ),
    Essay("why_this_remedy", "Why should your remedy help, did it, and what does it cost?"),
)
