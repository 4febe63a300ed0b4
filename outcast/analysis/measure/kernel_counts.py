"""What the senders' kernels counted for flows in the summary's interval, and their windows then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from outcast.analysis.run_analysis import Analysis, Interval
from outcast.records.flows import FlowRecord
from outcast.records.socket_samples import while_active
from outcast.records.summary import SynchronisationSummary

_AT_HOSTS = {"timeouts": "TcpExtTCPTimeouts", "retransmits": "TcpRetransSegs"}
MOST_AWAY = 20
"""The share of an interval by which a sample may be away from its ends is one over this."""
_OF_SOCKETS = ("timeouts", "retransmits")


class KernelCounts:
    """Counts of any flows of a run.

    Hosts count for all their flows, at the duration's start and end. So over the whole duration
    their counts are taken. In a part of it samples of the flows' sockets count.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._sent_by = Counter(record.src for record in analysis.manifest.flows)
        sockets = analysis.sockets
        self._grown = {} if sockets is None else grown(sockets, analysis.interval)

    def of(self, records: Sequence[FlowRecord]) -> dict[str, Any]:
        """Their `timeouts` and `retransmits` together; None if not known."""
        sampled = {name: self._sampled(records, name) for name in _OF_SOCKETS}
        at_hosts = self._at_hosts(records) if self._analysis.is_whole else {}
        return sampled | at_hosts

    def _sampled(self, records: Sequence[FlowRecord], name: str) -> int | None:
        counts = [self._grown.get(record.flow, {}).get(name) for record in records]
        known = [count for count in counts if count is not None]
        return sum(known) if records and len(known) == len(counts) else None

    def _at_hosts(self, records: Sequence[FlowRecord]) -> dict[str, Any]:
        """The hosts' own counts; None if one also sends other flows."""
        hosts = {record.src for record in records}
        counters = self._analysis.counters.hosts
        alone = sum(self._sent_by[host] for host in hosts) == len(records)
        known = hosts <= counters.keys() and not hosts & {*self._analysis.manifest.generated_hosts}
        if not (alone and known):
            return dict.fromkeys(_AT_HOSTS)
        return {
            key: sum(counters[host].within(name) for host in hosts)
            for key, name in _AT_HOSTS.items()
        }


def grown(sockets: pl.DataFrame, interval: Interval) -> dict[int, dict[str, int | None]]:
    """How much each flow's counters grew between the samples nearest to an interval's ends.

    A counter is None if the kernel lacks it, or if samples are so sparse that none is nearer to an
    end than a twentieth of the interval. Sockets of one flow (Multipath TCP) add up.
    """
    most_ns = (interval.end_ns - interval.start_ns) / MOST_AWAY
    sides = []
    for at_ns in (interval.start_ns, interval.end_ns):
        away_ns = (pl.col("t") - at_ns).abs()
        # Before its first sample and after its last one a socket counts nothing.
        is_known = (
            (away_ns.min() <= most_ns) | (at_ns < pl.col("t").min()) | (at_ns > pl.col("t").max())
        )
        value = pl.col(_OF_SOCKETS).sort_by(away_ns).first().cast(pl.Int64)
        of_side = sockets.group_by("flow", "sport").agg(pl.when(is_known).then(value))
        sides.append(of_side.sort("flow", "sport"))
    first, last = sides
    growth = last.select("flow", *(last[name] - first[name] for name in _OF_SOCKETS))
    # A sum with a null in it is unknown, where polars leaves nulls out.
    summed = growth.group_by("flow").agg(
        pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()) for name in _OF_SOCKETS
    )
    return {row.pop("flow"): row for row in summed.iter_rows(named=True)}


LEAST_SAMPLES = 10


def counted(analysis: Analysis) -> pl.DataFrame:
    """The samples of the main interval, each while its flow was active; the run has samples."""
    assert analysis.sockets is not None
    samples = while_active(analysis.sockets, analysis.manifest.flows)
    return samples.filter(analysis.interval.has(samples["t"].to_numpy()))


def synchronisation(samples: pl.DataFrame) -> SynchronisationSummary | None:
    """Pearson's correlation of each two flows' windows, over the times at which all were sampled.

    It is 1 if windows grow and shrink together, and 0 if they are independent.

    Returns None if there are fewer than LEAST_SAMPLES such times, or if fewer than two flows'
    windows ever changed.
    """
    wide = samples.pivot("flow", index="t", values="cwnd").drop_nulls()
    if wide.height < LEAST_SAMPLES:
        return None
    windows = wide.drop("t").to_numpy().astype(float)
    windows = windows[:, windows.std(axis=0) > 0]
    if windows.shape[1] < 2:
        return None
    correlations = np.corrcoef(windows, rowvar=False)[np.triu_indices(windows.shape[1], 1)]
    return SynchronisationSummary(
        flows=windows.shape[1],
        samples=wide.height,
        mean=round(float(correlations.mean()), 6),
        min=round(float(correlations.min()), 6),
        max=round(float(correlations.max()), 6),
    )
