"""The rate and limit of joined captures' outputs, and a line on what the packets do not show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from outcast.analysis.capture.pcap import PortCapture
from outcast.analysis.join.clocks import Clocks
from outcast.analysis.join.directions import LEFT
from outcast.analysis.join.doubts import MOST_SHARE, late_text
from outcast.analysis.join.join import Joined, Verdict
from outcast.analysis.machine_code import Bool
from outcast.analysis.measure.blackout import Chains
from outcast.analysis.measure.drop_causes import (
    DropRange,
    drop_ranges,
    explained_drops,
    has_room,
)
from outcast.analysis.measure.latency import LEAST_BUSY, Latency, latency
from outcast.analysis.measure.queue import Queue, of_own, replay
from outcast.analysis.measure.queue_levels import Capacity, level_within
from outcast.analysis.measure.segments import Repairs, Silence
from outcast.errors import UntrustedError
from outcast.records.captures import ClockEstimate, JoinRequest, QueueEstimate

SLACK_NS = 1_000_000
"""A switch in software holds packets this long without a queue."""
FINE_NS = 10_000
"""Stamps of this unit or a finer one show what a packet found in a queue."""
CONGESTED = 3
"""ECN's two bits of a packet that met congestion (RFC 3168)."""
LEAST_NAMED = 0.005
"""A smaller share of an output's bytes is not worth a line."""
LEAST_EXPLAINED = 0.75
"""A level that explains fewer packets is no limit. Half is what chance explains."""
MOST_BLURRED = 0.05
"""This share of drops may seem to have found room, where latencies of inputs differ."""
ALL = 0.995
"""A level that explains fewer packets may not be the only cause of drops."""


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """The result of a join; `outcast.Join` documents the parts."""

    joined: Joined
    queue: Queue
    chains: Chains
    remarks: tuple[str, ...]
    clocks: tuple[ClockEstimate, ...]
    estimates: tuple[QueueEstimate, ...]


@dataclass(frozen=True, slots=True)
class Doubtful:
    """By how much stamps can be wrong, because of their unit or their clocks; None: unknown.

    Stamps of the capture `coarsest` have the largest unit. `hidden` has the outputs whose packets
    follow one another sooner than the error.
    """

    unit_ns: int
    coarsest: str
    clocks_ns: int | None
    hidden: frozenset[int] = frozenset()

    @classmethod
    def of(cls, units_ns: Mapping[str, int], clocks: Clocks | None, least: Latency) -> Doubtful:
        coarsest = max(units_ns, key=lambda port: units_ns[port])
        clocks_ns = clocks.shown_error_ns if clocks else 0
        error_ns = max(units_ns[coarsest], clocks_ns or 0)
        hidden = frozenset(
            output
            for output, sent in enumerate(least.busy)
            if sent.packets >= LEAST_BUSY
            and (clocks_ns is None or 2 * error_ns > sent.usual_gap_ns)
        )
        return cls(units_ns[coarsest], coarsest, clocks_ns, hidden)

    def remarks(self, joined: Joined, known: JoinRequest) -> Iterator[str]:
        names = ", ".join(joined.outputs[output] for output in sorted(self.hidden))
        if not names or not (known.rate_bps is None or known.limit_bytes is None):
            return
        why = f"all stamps of {self.coarsest} are multiples of {self.unit_ns / 1e6:.7g} ms"
        if self.clocks_ns is None:
            why = "nothing bounds the error of clocks"
        elif self.clocks_ns >= self.unit_ns:
            why = f"clocks are known to within {self.clocks_ns / 1e6:.3f} ms"
        yield f"{names}: no rate and limit are estimated: {why}, and packets leave closer together"


class Estimated(NamedTuple):
    """What the packets of a join show of its outputs' queues, and lines on what they do not."""

    queue: Queue
    estimates: tuple[QueueEstimate, ...]
    drop_ranges: tuple[DropRange, ...]
    remarks: tuple[str, ...]


def estimated(
    joined: Joined,
    request: JoinRequest,
    units_ns: Mapping[str, int],
    mixed: Collection[str],
    repaired: Repairs,
    silent: Sequence[Silence],
) -> Estimated:
    """Replays the queues, and estimates the rate and limit of each output.

    `units_ns` has the unit of each port's stamps. Outputs in `mixed` have packets that left by
    several interfaces, so several queues count as one. Raises UntrustedError if packets stay longer
    than the requested rate and limit allow.
    """
    full, clocks = joined.all_left, joined.sources.clocks
    least = latency(full, max(units_ns.values()) - 1)
    of_all = replay(full, least.delay_ns(full))
    queue = of_own(joined, of_all)
    explained = explained_drops(joined, queue, least.busy)
    ranges = drop_ranges(joined, repaired, queue, explained)
    for silence in silent:
        explained[silence.rows] = True
    of_all_explained = np.zeros(len(full.arrivals), np.bool_)
    of_all_explained[slice(None) if joined.whole is None else joined.whole.own] = explained
    doubtful = Doubtful.of(units_ns, clocks, least)
    alike = dict(_alike(joined))
    has_passed = (joined.verdict == Verdict.DROPPED) & has_room(joined, queue, spare=1) & ~explained
    estimates, passed = [], []
    for output, name in enumerate(joined.outputs):
        if name in mixed or output in alike or not joined.shows_service(output):
            estimates.append(QueueEstimate(port=name))
            continue
        found = None
        if joined.shows_content(output):
            found = level(full, of_all, output, doubtful, least, of_all_explained)
            if found and (line := _passed(joined, queue, output, found, explained, has_passed)):
                found = None
                passed.append(line)
        estimates.append(estimate(joined, output, doubtful, least, found))
    _require_possible(joined, estimates, request)
    remarks = (
        *_service_remarks(joined),
        *doubtful.remarks(joined, request),
        *_late_remarks(joined, request.max_sojourn_ns),
        *_latency_remarks(full, least, request, doubtful, one_clock=clocks is None),
        *_pause_remarks(full, least, doubtful, silent),
        *_rate_remarks(full, least, doubtful),
        *alike.values(),
        *passed,
        *_lost_on_several(joined),
        *_marked_remarks(joined),
        *(part.sentence for part in ranges),
    )
    return Estimated(queue, tuple(estimates), tuple(ranges), remarks)


def level(
    joined: Joined,
    replayed: Queue,
    output: int,
    doubtful: Doubtful,
    least: Latency,
    explained: Bool,
) -> Capacity | None:
    """The level from which on an output dropped most packets; None if nothing shows it.

    The least wait may include the time of the packet itself. Drops that are `explained` say nothing
    of the queue.
    """
    if output in doubtful.hidden or not least.is_known[output]:
        return None
    error_ns = max(doubtful.unit_ns - 1, doubtful.clocks_ns or 0)
    early, late = error_ns, error_ns
    of_output = (joined.egress == output)[joined.left_as >= 0].any()
    if of_output:
        taken = least.delays_ns[:, output]
        early += int(np.minimum(taken, least.busy[output].usual_gap_ns).max())
        late += int(np.where(taken > 0, 0, least.least_ns[:, output]).max())
    delay_ns = least.delay_ns(joined)
    return level_within(joined, replayed, output, delay_ns, early, late, explained)


def estimate(
    joined: Joined,
    output: int,
    doubtful: Doubtful,
    least: Latency,
    level: Capacity | None,
) -> QueueEstimate:
    """The rate and limit of an output as its packets show them, whatever the caller knows."""
    rate, known = least.rates[output], QueueEstimate(port=joined.outputs[output])
    if output not in doubtful.hidden and rate is not None and rate.is_steady:
        bounds = {"rate_low_bps": rate.low_bps, "rate_high_bps": rate.high_bps}
        known = known.model_copy(update={"rate_bps": rate.bps, **bounds})
    if level is None or level.confidence < LEAST_EXPLAINED:
        return known
    level = level.raised(joined, output)
    limit: dict[str, object] = {"limit_unit": level.unit, "limit_at_least": level.at_least}
    limit |= {"limit_below": level.below, "limit_explains": level.confidence}
    return known.model_copy(update=limit)


def _require_possible(
    joined: Joined, estimates: Collection[QueueEstimate], known: JoinRequest
) -> None:
    """Raises UntrustedError if packets stay longer than a queue of the known limit needs to empty.

    Twice that time and SLACK_NS are allowed, because a switch in software stops now and then.
    """
    if known.limit_bytes is None:
        return
    for output, estimate in enumerate(estimates):
        rate_bps = known.rate_bps or estimate.rate_bps
        if not rate_bps:
            continue
        rows = np.flatnonzero((joined.left_as >= 0) & (joined.egress == output))
        stayed_ns = (
            joined.departures.stamp_ns[joined.left_as[rows]] - joined.arrivals.stamp_ns[rows]
        )
        empty_ns = 8e9 * known.limit_bytes / rate_bps
        longer = int((stayed_ns > 2 * empty_ns + SLACK_NS).sum())
        if longer > MOST_SHARE * rows.size:
            raise UntrustedError(
                f"{estimate.port}: {longer:,} of {rows.size:,} packets stayed for longer than "
                f"{(2 * empty_ns + SLACK_NS) / 1e6:.3f} ms, the median packet for "
                f"{float(np.median(stayed_ns)) / 1e6:.3f} ms, but {known.limit_bytes:,} bytes at "
                f"{rate_bps / 1e6:.3f} Mbps are empty after {empty_ns / 1e6:.3f} ms; probably "
                "--rate or --limit is wrong, or a clock"
            )


# --- remarks


def _alike(joined: Joined) -> Iterator[tuple[int, str]]:
    """Outputs of which nothing shows what they dropped, with a line on each."""
    dropped = joined.verdict == Verdict.DROPPED
    for output, name in enumerate(joined.outputs):
        mine = dropped & (joined.egress == output)
        count, total = int(mine[joined.sources.alike].sum()), int(mine.sum())
        if count > MOST_SHARE * total:
            yield (
                output,
                f"{name}: {count:,} of the {total:,} dropped packets are equal to one before them "
                "that left, so it is not sure which were dropped, and no rate and limit are "
                "estimated",
            )


def _passed(
    joined: Joined, queue: Queue, output: int, found: Capacity, explained: Bool, has_passed: Bool
) -> str:
    """A line if no level explains an output's drops, though it had space for two packets."""
    here = joined.egress == output
    contents = queue.found_bytes[has_passed & here]
    dropped = int((joined.verdict[here & ~explained] == Verdict.DROPPED).sum())
    is_explained = found.confidence >= ALL or contents.size <= MOST_BLURRED * dropped
    # What came in unseen may have filled it.
    if is_explained or joined.unknown_share(output) or not contents.any():
        return ""
    return (
        f"{joined.outputs[output]}: {contents.size:,} packets were dropped at contents from "
        f"{contents.min():,} to {contents.max():,} bytes that others passed, so no limit is "
        "estimated (an AQM, a policer, a filter, several queues, random loss, or packets that the "
        "capture lacks)"
    )


def _service_remarks(joined: Joined) -> Iterator[str]:
    """A line on each output by which much left that takes no part."""
    whole = joined.whole
    for output, name in enumerate(joined.outputs if whole else ()):
        assert whole is not None
        if not (joined.departures.port == output).any():
            continue
        apart = f"{name}: {whole.bytes_share[output]:.0%} of what left takes no part"
        unseen = f"for {100 * joined.unknown_share(output):.2g}% no capture shows when they came in"
        nothing = "no limit and no content of the queue is stated"
        if not joined.shows_service(output):
            share = whole.untold_share[output]
            yield f"{name}: {share:.0%} of the bytes may have come in or left; no rate, {nothing}"
        elif not joined.shows_content(output):
            yield f"{apart}, and {unseen}; {nothing}"
        elif joined.unknown_share(output):
            yield f"{apart}; rate, queue and blackouts count it, but {unseen}: contents are too low"
        elif whole.bytes_share[output] >= LEAST_NAMED:
            yield f"{apart}; its rate, its queue and blackouts count it"


def _pause_remarks(
    joined: Joined, least: Latency, doubtful: Doubtful, silent: Sequence[Silence]
) -> Iterator[str]:
    """A line on each output that stood still while packets waited, and later sent them."""
    for output, (name, sent) in enumerate(zip(joined.outputs, least.busy, strict=True)):
        lacking = [one for one in silent if one.output == output]
        pauses = [
            pause
            for pause in sent.pauses
            if not any(one.since_ns <= pause.since_ns < one.until_ns for one in lacking)
        ]
        if doubtful.clocks_ns is None or not pauses:
            continue
        longest = max(pauses, key=lambda pause: pause.time_ns)
        after_s = (longest.since_ns - int(joined.arrivals.stamp_ns[0])) / 1e9
        more = f", the longest of {len(pauses):,} such pauses" if pauses[1:] else ""
        yield (
            f"{name}: nothing left for {longest.time_ns / 1e9:.3f} s while {longest.packets:,} "
            f"packets waited, {after_s:.3f} s after the first packet{more}; a rate leaves that out"
        )


def _rate_remarks(joined: Joined, least: Latency, doubtful: Doubtful) -> Iterator[str]:
    """A line on each output that sent at several rates while packets waited."""
    sides = zip(joined.outputs, least.busy, least.rates, strict=True)
    for output, (name, sent, rate) in enumerate(sides):
        if rate is None or rate.is_steady or output in doubtful.hidden:
            continue
        used = sent.bits > 0
        parts = sent.bits[used] / sent.time_ns[used] * 1e3
        yield (
            f"{name}: it sent at {parts.min():.3f} to {parts.max():.3f} Mbps while packets waited "
            f"(means of {parts.size} parts of the capture), so it has no single rate"
        )


def _late_remarks(joined: Joined, max_sojourn_ns: int) -> Iterator[str]:
    """A line if a few packets left later than `--max-sojourn` allows; more are a refusal."""
    if text := late_text(joined, max_sojourn_ns):
        yield f"{text}. They count as dropped; or a clock was set"


def _lost_on_several(joined: Joined) -> Iterator[str]:
    """A line on each address that lost packets on the way to one of several outputs."""
    lost = (joined.verdict == Verdict.DROPPED) & (joined.egress < 0)
    count = Counter(joined.flows[flow].dst for flow in joined.arrivals.flow[lost].tolist())
    for address, packets in sorted(count.items()):
        towards = np.array([flow.dst == address for flow in joined.flows])
        ports = np.unique(joined.departures.port[towards[joined.departures.flow]])
        if names := " and ".join(joined.outputs[output] for output in ports.tolist()):
            yield (
                f"{packets:,} packets to {address} were dropped on the way to one of {names}; no "
                "output's numbers have them"
            )


def _marked_remarks(joined: Joined) -> Iterator[str]:
    """A line on each output whose packets left with ECN marks and had come in without."""
    went = np.flatnonzero(joined.left_as >= 0)
    came, left = (
        joined.arrivals.tos[went] & CONGESTED,
        joined.departures.tos[joined.left_as[went]] & CONGESTED,
    )
    for output, name in enumerate(joined.outputs):
        mine = joined.egress[went] == output
        marked = int((mine & (left == CONGESTED) & (came != CONGESTED)).sum())
        if marked:
            able = int((mine & (came != CONGESTED) & (came != 0)).sum())
            yield (
                f"{name}: {marked:,} packets left with an ECN mark (CE) that they had not come in "
                f"with, of {able:,} that could be marked (ECT)"
            )


def left_out(joined: Joined, captures: Sequence[PortCapture]) -> Iterator[str]:
    """A line on each capture with packets that take no part."""
    directions = joined.sources.directions
    for index, capture in enumerate(captures if directions else ()):
        assert directions is not None
        left = joined.sources.left[index]
        if left is not None and directions.packets(index, LEFT) and not left.any():
            yield (
                f"{capture.port}: what left there takes no part, because it came in where only "
                "what left was captured"
            )
        if count := int(directions.counts[index][joined.sources.away(index)].sum()):
            yield (
                f"{capture.port}: {count:,} packets that came in there take no part, because no "
                "capture shows packets leave for their destinations"
            )


def _latency_remarks(
    joined: Joined, least: Latency, known: JoinRequest, doubtful: Doubtful, *, one_clock: bool
) -> Iterator[str]:
    """A line on each output whose packets all took long, or whose limit is unknown by that."""
    for output, name in enumerate(joined.outputs):
        dropped = (joined.egress == output) & (joined.verdict == Verdict.DROPPED)
        is_missed = known.limit_bytes is None and not least.is_known[output] and dropped.any()
        short_ns = max(SLACK_NS, 2 * least.busy[output].usual_gap_ns)
        times_ns = least.least_ns[:, output]
        if not is_missed and int(times_ns.max(initial=0)) <= short_ns:
            continue
        times = ", ".join(
            f"{time_ns / 1e6:.3f} ms from {ingress}"
            for ingress, time_ns in zip(joined.inputs, times_ns.tolist(), strict=True)
            if time_ns
        )
        line = f"{name}: the least wait is {times}: a latency"
        line += "" if one_clock else ", or two clocks that differ by it"
        if output not in doubtful.hidden and least.is_known[output]:
            line += "; the queue's content, rate and limit are without it"
        elif output not in doubtful.hidden:
            line += ", or a queue that never ran empty"
            line += "; no limit is estimated" if is_missed else ""
        yield line
