"""Which ratios are bounds, because flows on one side of them got nothing."""

from __future__ import annotations

from outcast.records.run import Run
from outcast.reproduce import measures
from outcast.reproduce.claims import Measure
from outcast.reproduce.measures import MEASURES, SEGMENT_BYTES
from outcast.reproduce.model import ModelRun


def is_at_floor(run: Run, measure: Measure) -> bool:
    """Whether a side of a ratio got a segment at most, and so counts as if one had arrived.

    Such a value says that the ratio is at least, or at most, so much. It is no measured size.
    """
    if isinstance(run, ModelRun) or not MEASURES[measure.kind].has_floor:
        return False
    try:
        sides, seconds = _sides(run, measure)
    except measures.NoValueError:
        return False
    # Half a byte for what a float loses.
    most_bits = 8 * (SEGMENT_BYTES + 0.5)
    return any(flows and bps * flows * seconds <= most_bits for bps, flows in sides)


def _sides(run: Run, measure: Measure) -> tuple[list[tuple[float, int]], float]:
    """The mean goodput and the number of flows of each side of a ratio, and over how long."""
    if measure.kind == "group_ratio":
        goodput, seconds = measures.flow_goodput_bps(run, measure)
        sides = [[goodput[flow] for flow in side] for side in measures.sides(run, measure, goodput)]
        return [(sum(side) / len(side), len(side)) for side in sides if side], seconds
    whole = measures.window(run, measure)
    if measure.by is not None:
        grouped = whole.grouped(measure.by)
        parts = [grouped.get(label) for label in (measure.label, measure.over) if label]
        known = [(part.mean_goodput_bps, part.flows) for part in parts if part]
    else:
        classes = whole.classes
        furthest, nearest = (str(pick(map(int, classes), default=0)) for pick in (max, min))
        is_share = measure.kind == "class_share"
        names = [str(measure.hops)] if is_share else [furthest, nearest]
        known = [
            (classes[name].mean_goodput_bps, classes[name].flows)
            for name in names
            if name in classes
        ]
    return known, whole.end_s - whole.start_s
