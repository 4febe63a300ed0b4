"""Between which numbers the drops are, where the captures lack a few packets.

Captures that lack much are refused (`join/doubts.py`). Where one lacks less, what left without
having come in, and what seems dropped without a reason, show how much.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from outcast.analysis.capture.headers import TCP
from outcast.analysis.compiled import I8, I32, I64, U16, Bool, compiled
from outcast.analysis.join.directions import Directions
from outcast.analysis.join.doubts import MOST_SHARE
from outcast.analysis.join.findings import DropRange
from outcast.analysis.join.join import Joined, Note, Stray, Verdict
from outcast.analysis.join.pairs import numbered
from outcast.analysis.join.places import ELSEWHERE
from outcast.analysis.measure.queue import Queue
from outcast.analysis.measure.random_loss import NO_QUEUE
from outcast.analysis.measure.repairs import Repairs

LEAST_BY_ONE = 0.9
"""A flow's IP ids count one by one if this share of steps is one."""
LEAST_OF_HOST = 0.1
"""Flows with a smaller share of their host's packets are not compared with the others."""
FEW_UNSEEN = 8
"""So few missing packets count in any case."""
_SIGMAS = 3.0
"""The most that a capture lacks, in standard deviations above the estimate."""


def drop_ranges(
    joined: Joined, repaired: Repairs, queue: Queue, explained: Bool
) -> list[DropRange]:
    """The drops of each input and output whose captures lack packets; empty if none does.

    - Packets that left without having come in are missing in their input's capture. It lacks a like
      share of those that were dropped. So are packets that gaps of the senders' IP ids show, if
      they were not lost on the way; where a capture begins late, the ids of what left before do.
    - Packets that were never sent again, or that came in before the output's capture began, are
      missing in that. Then only those drops count as proven whose data were sent again. Drops
      that are `explained` need no such proof.
    """
    if joined.sources.directions is None:
        return []
    arrivals, departures = joined.arrivals, joined.departures
    dropped = joined.verdict == Verdict.DROPPED
    number = {name: index for index, name in enumerate(joined.inputs)}
    came_by = _came_by(joined, joined.sources.directions, number)
    lacking = (joined.stray == Stray.UNEXPLAINED) | _after_others(joined, came_by)
    unseen = missing_ids(joined)
    lacks_of_input = [
        max(int((lacking & (came_by == row)).sum()), int(unseen[row].sum()))
        for row in range(len(number))
    ]
    ranges = []
    for output, name in enumerate(joined.outputs):
        here = joined.egress == output
        alone = int((repaired.is_alone & here).sum())
        # What was sent again was lost, so the output's capture does not lack it.
        # Where nothing shows what the queue held, it may have been empty.
        is_shown = joined.shows_content(output)
        empty = dropped & here & ~repaired.is_proven & ~explained
        if is_shown:
            empty &= queue.found_packets == 0
        before = int((here & (joined.note == Note.BEFORE_OUTPUT)).sum())
        known_lacks = max(alone, before, lacks_of_input[number[name]] if name in number else 0)
        for row, ingress in enumerate(joined.inputs):
            mine: Bool = here & (arrivals.port == row)
            counted = int((dropped & mine).sum())
            least = most = counted
            found_empty = int((empty & mine).sum())
            if known_lacks or found_empty:
                least = int(((repaired.is_proven | explained) & dropped & mine).sum())
            lacks = int((lacking & (came_by == row) & (departures.port == output)).sum())
            through = int((mine & (joined.verdict == Verdict.FORWARDED)).sum())
            if lacks and counted:
                share = lacks / max(through, 1)
                most += int(counted * share + _SIGMAS * (counted * share + 1) ** 0.5)
            most = max(most, counted + int(unseen[row, output]))
            if least == most:
                continue
            whys = []
            if most > counted:
                whys.append(f"{ingress}'s capture lacks at least {lacks_of_input[row]:,} packets")
            if known_lacks > alone or (known_lacks and not sum(lacks_of_input)):
                whys.append(f"{name}'s capture lacks at least {known_lacks:,} packets")
            elif known_lacks:
                whys.append(
                    f"{alone:,} were never seen to be sent again, so {name}'s capture lacks them "
                    "or an input's their copies"
                )
            if found_empty:
                found, cause = "an empty queue", NO_QUEUE
                if not is_shown:
                    found, cause = "a queue whose content nothing shows", "something on the way"
                whys.append(
                    f"{found_empty:,} of these found {found}, and nobody sent their data again, as "
                    f"of UDP, so {cause} dropped them, or {name}'s capture lacks them"
                )
            # Nobody sends a datagram again, so nothing shows that the output's capture lacks it.
            is_sure = least == int((repaired.is_proven & dropped & mine).sum())
            whole = "" if is_sure else f", if {name}'s capture has all that left"
            text = (
                f"{ingress}: {counted:,} packets to {name} seem dropped, truly between {least:,} "
                f"and {most:,}{whole}: {'; '.join(whys)}"
            )
            ranges.append(DropRange(ingress, name, counted, least, most, text))
    return ranges


def _came_by(joined: Joined, told: Directions, number: Mapping[str, int]) -> I64:
    """For each departure the input that its flow comes by, or ELSEWHERE."""
    inputs = np.array([*(number.get(port, ELSEWHERE) for port in joined.sources.ports), ELSEWHERE])
    places = np.array([told.place(flow.src) for flow in joined.flows])
    came_by: I64 = inputs[places][joined.departures.flow]
    return came_by


def missing_ids(joined: Joined) -> I64:
    """For each input and output, how many packets the gaps of IP ids say are missing.

    Linux numbers the packets of a TCP socket one by one (include/net/ip.h, ip_select_ident_segs).
    Others number all of a host, so what its other flows sent meanwhile is not missing. Zero for
    flows of other numbers, and for inputs that lack more than MOST_SHARE of their packets and
    FEW_UNSEEN, because others were lost on the way to the switch.
    """
    arrivals = joined.arrivals
    of_tcp = np.array([flow.protocol == TCP for flow in joined.flows], np.bool_)
    outputs = len(joined.outputs) + 1
    steps, by_one, missing, place = _follow_ids(
        arrivals.flow, arrivals.ip_id, arrivals.port, joined.egress, of_tcp, outputs
    )
    counts = (by_one >= LEAST_BY_ONE * steps) & (steps > 0)
    (hosts,) = numbered([[flow.src for flow in joined.flows]])[1]
    packets = np.bincount(arrivals.flow, minlength=counts.size)
    of_host = np.bincount(hosts, packets)[hosts]
    # Of a counter of all of a host, flows with few packets do not count one by one.
    large = counts & (missing > 0) & (packets < of_host) & (packets >= LEAST_OF_HOST * of_host)
    from_host = hosts[arrivals.flow]
    order = np.argsort(from_host, kind="stable")
    from_host = from_host[order]
    for flow in np.flatnonzero(large):
        begin, end = np.searchsorted(from_host, (hosts[flow], hosts[flow] + 1))
        rows = order[begin:end]
        missing[flow] -= _sent_by_others(arrivals.ip_id[rows], arrivals.flow[rows] == flow)
    unseen = np.bincount(place[counts], missing[counts], len(joined.inputs) * outputs)
    unseen = unseen.astype(np.int64).reshape(len(joined.inputs), outputs).clip(min=0)
    packets = np.bincount(arrivals.port, minlength=len(joined.inputs))
    unseen[unseen.sum(axis=1) > np.maximum(MOST_SHARE * packets, FEW_UNSEEN)] = 0
    return unseen + _missing_before(joined, counts)


def _missing_before(joined: Joined, counts: Bool) -> I64:
    """For each input and output, how many packets were dropped before the input's capture began.

    Where a capture begins late, the output's has packets that left before. The IP ids from the
    first of them to the flow's first packet that was seen to come in are those of the packets that
    left, and of those that were dropped. A share of the packets that left would not show it:
    slow start loses more. `counts` says which flows count their packets one by one.
    """
    arrivals, departures = joined.arrivals, joined.departures
    missing = np.zeros((len(joined.inputs), len(joined.outputs) + 1), np.int64)
    strays = np.flatnonzero((joined.stray == Stray.EARLY) | (joined.stray == Stray.UNEXPLAINED))
    if not strays.size or not (joined.left_as >= 0).any():
        return missing
    longest_ns = _longest_ns(joined)
    flows, first_rows = np.unique(arrivals.flow, return_index=True)
    taken = counts[flows] & np.isin(flows, departures.flow[strays])
    for flow, first in zip(flows[taken], first_rows[taken], strict=True):
        rows = strays[departures.flow[strays] == flow]
        rows = rows[departures.stamp_ns[rows] < arrivals.stamp_ns[first] + longest_ns]
        back = (int(arrivals.ip_id[first]) - departures.ip_id[rows].astype(np.int64)) & 0xFFFF
        is_before = (back > 0) & (back < 0x8000)
        rows, back = rows[is_before], back[is_before]
        if rows.size:
            place = arrivals.port[first], departures.port[rows[back.argmax()]]
            missing[place] += int(back.max()) - np.unique(back).size
    return missing


def _longest_ns(joined: Joined) -> int:
    """The longest time that a packet stayed in the switch."""
    forwarded = joined.left_as >= 0
    came_ns = joined.arrivals.stamp_ns[forwarded]
    return int((joined.departures.stamp_ns[joined.left_as[forwarded]] - came_ns).max())


def _sent_by_others(ip_id: U16, mine: Bool) -> int:
    """How many packets of a host's other flows have an id between those of its packets beside."""
    order = np.flatnonzero(mine)
    others = np.flatnonzero(~mine)
    after = np.searchsorted(order, others)
    inner = (after > 0) & (after < order.size)
    first, last = ip_id[order[after[inner] - 1]], ip_id[order[after[inner]]]
    place, width = ip_id[others[inner]] - first, last - first
    return int(((place > 0) & (place < width) & (width < 0x8000)).sum())


@compiled
def _follow_ids(
    flow: I32, ip_id: U16, port: I8, egress: I8, of_tcp: Bool, outputs: int
) -> tuple[I64, I64, I64, I64]:
    """Follows the IP ids of each flow; a packet that comes late fills a gap again.

    Returns for each flow how many steps there were, how many by one, how many packets are missing,
    and the input and output of its last packet.
    """
    last = np.full(of_tcp.size, -1, np.int64)
    steps, by_one = np.zeros(of_tcp.size, np.int64), np.zeros(of_tcp.size, np.int64)
    missing, place = np.zeros(of_tcp.size, np.int64), np.zeros(of_tcp.size, np.int64)
    for i in range(flow.size):
        f = flow[i]
        if not of_tcp[f]:
            continue
        number = np.int64(ip_id[i])
        if last[f] >= 0:
            step = (number - last[f]) & 0xFFFF
            steps[f] += 1
            by_one[f] += step == 1
            if step >= 0x8000:
                missing[f] -= 1
                continue
            if step > 0:
                missing[f] += step - 1
        last[f] = number
        place[f] = port[i] * outputs + egress[i]
        if egress[i] < 0:
            place[f] += outputs
    return steps, by_one, missing, place


def _after_others(joined: Joined, came_by: I64) -> Bool:
    """Departures before anything was seen to come in, from inputs whose capture begins late.

    What was queued when all captures began left within the longest sojourn time.
    """
    arrivals, departures = joined.arrivals, joined.departures
    early: Bool = joined.stray == Stray.EARLY
    forwarded = joined.left_as >= 0
    if not early.any() or not forwarded.any():
        return np.zeros_like(early)
    begins = int(arrivals.stamp_ns[0])
    return early & (departures.stamp_ns > begins + _longest_ns(joined)) & (came_by >= 0)
