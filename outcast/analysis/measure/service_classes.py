"""What each class of service of a port sent, lost and waited, and what the kernel counted of it."""

from __future__ import annotations

import numpy as np

from outcast.analysis.compiled import U8
from outcast.analysis.join.join import Verdict
from outcast.analysis.measure.queue import queueing_ns
from outcast.analysis.measure.spreads import in_ms
from outcast.analysis.port_analysis import PortAnalysis
from outcast.analysis.run_analysis import Analysis
from outcast.records.effective import service_classes_of
from outcast.records.port_summaries import CountedOfClass, ServiceClassSummary


def service_classes(
    analysis: Analysis, port: PortAnalysis
) -> dict[str, ServiceClassSummary] | None:
    """A port's classes by name, in the order of the configuration; None without classes.

    A packet's class follows from its own DSCP, as by the port's filters.
    """
    points = service_classes_of(analysis.manifest.effective, port.record.egress)
    if not points:
        return None
    number_of = _numbers(list(points.values()))
    return {
        name: _of_class(analysis, port, number, of_class, number_of)
        for number, (name, of_class) in enumerate(points.items())
    }


def _numbers(points: list[tuple[int, ...] | None]) -> U8:
    """For each of the 64 code points, the place of its class among all."""
    numbers = np.full(64, points.index(None), np.uint8)
    for number, of_class in enumerate(points):
        numbers[list(of_class or ())] = number
    return numbers


def _of_class(
    analysis: Analysis,
    port: PortAnalysis,
    number: int,
    points: tuple[int, ...] | None,
    number_of: U8,
) -> ServiceClassSummary:
    joined = port.joined
    came = number_of[joined.arrivals.tos >> 2] == number
    departed = number_of[joined.departures.tos >> 2] == number
    rows = np.flatnonzero(came & analysis.counts(port.reached_ns))
    sent_bytes = joined.departures.frame_bytes[departed & analysis.counts(port.sent_ns)].sum()
    lost = joined.verdict == Verdict.DROPPED
    return ServiceClassSummary(
        dscp=None if points is None else list(points),
        packets=rows.size,
        dropped=int(lost[rows].sum()),
        rate_bps=8 * float(sent_bytes) / analysis.interval.seconds,
        queueing_ms=in_ms(queueing_ns(joined, port.sent_ns, rows, port.reached_ns)),
        captured=CountedOfClass(sent=int(departed.sum()), dropped=int((lost & came).sum())),
        counted=_counted(analysis, port.record.egress, number),
    )


def _counted(analysis: Analysis, egress: str, number: int) -> CountedOfClass | None:
    """What the kernel counted of a class in the whole run; None where it was not recorded."""
    counters = analysis.counters.ports.get(egress)
    if counters is None or f"class_{number + 1}_packets" not in counters.after.get("own", {}):
        return None
    sent, dropped = (counters.own_delta(f"class_{number + 1}_{of}") for of in ("packets", "drops"))
    return CountedOfClass(sent=sent, dropped=dropped)
