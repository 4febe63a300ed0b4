"""Drops that no full queue explains, and how many there are where captures lack packets.

A queue drops what finds it full. A policer, a filter (ACL), a firewall or a bad cable drops
whatever the queue holds, and an AQM drops before it is full. A limit of length on the way drops all
long packets of a flow (a path MTU black hole). Captures that lack packets look alike, but nobody
sends that data again.

Captures that lack much are refused (`join/doubts.py`). Where one lacks less, what left without
having come in, and what seems dropped without a reason, show how much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

import numpy as np

from outcast.analysis.capture.headers import TCP
from outcast.analysis.compiled import I8, I32, I64, U16, Array, Bool, compiled
from outcast.analysis.join.directions import Directions
from outcast.analysis.join.doubts import MOST_SHARE, DropRange
from outcast.analysis.join.join import Joined, Note, Stray, Verdict
from outcast.analysis.join.packets import numbered
from outcast.analysis.join.places import ELSEWHERE
from outcast.analysis.measure.latency import Busy
from outcast.analysis.measure.queue import Queue
from outcast.analysis.measure.queue_levels import capacity
from outcast.analysis.measure.segments import Repairs
from outcast.plan.addresses import with_port

LEAST = 8
"""The fewest packets that have to have passed, and to have been lost."""
LEAST_DIFFERENT = 3
"""The fewest different segments that are lost, because one may be lost for its content. A packet
also has to pass after a loss this often; otherwise the path was down for a while."""
MOST_SHORT = 0.1
"""If more of the short ones are lost too, length alone does not decide."""


def lost_by_length(joined: Joined, queue: Queue) -> Iterator[tuple[str, Array]]:
    """A line on each output and limit of length that flows show, and the arrivals it explains."""
    arrivals = joined.arrivals
    room = has_room(joined, queue)
    dropped = joined.verdict == Verdict.DROPPED
    known = (arrivals.payload_bytes > 0) & (joined.verdict != Verdict.UNKNOWN)
    lost = np.bincount(arrivals.flow[known & dropped & room], minlength=len(joined.flows))
    rows = np.flatnonzero(known & (lost >= LEAST)[arrivals.flow])
    rows = rows[np.argsort(arrivals.flow[rows], kind="stable")]
    found: list[tuple[int, int, int, Array]] = []
    for mine in np.split(rows, np.flatnonzero(np.diff(arrivals.flow[rows])) + 1):
        if mine.size and (limits := _limits(joined, mine, room)) is not None:
            found.append(limits)
    for output, name in enumerate(joined.outputs):
        rest = sorted((one for one in found if one[0] == output), key=lambda one: -one[3].size)
        while rest:
            passed, least = rest[0][1:3]
            alike = []
            for one in rest:
                if max(passed, one[1]) < min(least, one[2]):
                    passed, least = max(passed, one[1]), min(least, one[2])
                    alike.append(one)
            rest = [one for one in rest if not any(one is other for other in alike)]
            longer = np.concatenate([one[3] for one in alike])
            flow = joined.flows[arrivals.flow[longer[0]]]
            ends = f"{with_port(flow.src, flow.sport)} to {with_port(flow.dst, flow.dport)}"
            more = f" and {len(alike) - 1:,} more flows" if alike[1:] else ""
            yield (
                f"{name}: of {ends}{more} frames of up to {passed:,} bytes passed, and all "
                f"{longer.size:,} of {least:,} bytes or more were lost. It is a limit of length on "
                "the way, or a filter by length (a path MTU black hole looks so; so does a policer "
                "or a small buffer that only short frames pass)",
                longer,
            )


def has_room(joined: Joined, queue: Queue, spare: int = 0) -> Bool:
    """Whether each arrival found its output's queue empty, or took it no higher than others did.

    With `spare` there was space for that many more packets, each as long as the longest.
    """
    level = queue.found_bytes.astype(np.int64) + joined.arrivals.frame_bytes
    longest = int(joined.arrivals.frame_bytes.max(initial=0))
    went = joined.left_as >= 0
    highest = np.zeros((2, len(joined.outputs) + 1), np.int64)
    for most, content in zip(highest, (level, queue.found_packets), strict=True):
        np.maximum.at(most, joined.egress[went], content[went])
    is_lower = (level + spare * longest <= highest[0][joined.egress]) & (
        queue.found_packets + spare <= highest[1][joined.egress]
    )
    return np.asarray((queue.found_packets == 0) | (is_lower & (queue.found_packets > 0)), np.bool_)


def _limits(joined: Joined, rows: Array, room: Bool) -> tuple[int, int, int, Array] | None:
    """A flow's output, its longest frame that passed, the shortest of the longer ones, their rows.

    None if length does not decide what of the flow is lost. `rows` are its data, in order.
    """
    arrivals = joined.arrivals
    length, went = arrivals.frame_bytes[rows], joined.left_as[rows] >= 0
    output = int(joined.egress[rows[0]])
    if output < 0 or (joined.egress[rows] != output).any() or int(went.sum()) < LEAST:
        return None
    passed = int(length[went].max())
    is_long = length > passed
    lost = is_long & room[rows]
    # A segment that is sent again has its old number; other protocols have those of IP alone.
    is_tcp = joined.flows[arrivals.flow[rows[0]]].protocol == TCP
    numbers = (arrivals.seq if is_tcp else arrivals.ip_id)[rows[lost]]
    segments = {*zip(length[lost].tolist(), numbers.tolist(), strict=True)}
    order = went[went | lost].astype(np.int8)
    if (
        int(lost.sum()) < LEAST
        or len(segments) < LEAST_DIFFERENT
        or int((np.diff(order) > 0).sum()) < LEAST_DIFFERENT
        or int((~went & ~is_long).sum()) > MOST_SHORT * int((~is_long).sum())
    ):
        return None
    return output, passed, int(length[is_long].min()), rows[is_long]


LEAST_SHARE = 0.5
"""This share of an output's drops has to have found its queue empty."""
LEAST_EVEN = 100
"""The fewest drops whose spread over the queue's contents is judged."""
SAMPLED = 10_000
UNEVEN = 0.2
"""Senders react to drops, so these may differ by this share too. A full queue drops four times as
many of the packets that find most."""
SIGMAS = 3.0
"""The most standard deviations by which an even spread differs from what is expected."""


NO_QUEUE = "a policer, a filter, a bad cable, an AQM or a queue that drops at its head"
"""What drops packets whatever they found in the queue."""
LEAST_LEVEL = 0.95
"""A level that explains this share of drops and passes is that of a queue that is often full."""


class Relation(Enum):
    FULL = "full"
    """They found it fuller than others did, or they are too few."""
    EMPTY = "empty"
    """Most found it empty."""
    NONE = "none"
    """They found as much as all others."""
    UNKNOWN = "unknown"
    """Nothing shows what they found."""


def random_losses(
    joined: Joined, repaired: Repairs, queue: Queue, related: Sequence[Relation], explained: Bool
) -> dict[int, str]:
    """For each output whose drops have no relation to its queue, a line with the evidence.

    Drops that are `explained` do not count, here and in `relations`.
    """
    lines = {}
    for output, name in enumerate(joined.outputs):
        mine, empty = _dropped_at(joined, queue, output, explained)
        count, at_empty = int(mine.sum()), int(empty.sum())
        which = "other packets" if (explained & (joined.egress == output)).any() else "packets"
        is_idle = related[output] is Relation.EMPTY
        if related[output] in (Relation.FULL, Relation.UNKNOWN) or at_empty < LEAST * is_idle:
            continue
        # Nobody sends an acknowledgement again, so only data can prove that packets were lost.
        of_data = (empty if is_idle else mine) & (joined.arrivals.payload_bytes > 0)
        again = int((of_data & repaired.is_proven).sum())
        if again < max(LEAST, LEAST_SHARE * int(of_data.sum())):
            continue
        of_inputs = (
            np.bincount(joined.arrivals.port[rows], minlength=len(joined.inputs)).tolist()
            for rows in (mine, joined.egress == output)
        )
        inputs = [
            f"{ingress} {lost:,} of {came:,}"
            for ingress, lost, came in zip(joined.inputs, *of_inputs, strict=True)
            if lost
        ]
        seen = f"the {count:,} {which} that were dropped found the queue as full as others did"
        if is_idle:
            seen = f"{at_empty:,} of the {count:,} {which} that were dropped found an empty queue"
        lines[output] = (
            f"{name}: {seen}, and the data of {again:,} of them were sent again. So no full queue "
            f"dropped what came, but {NO_QUEUE} ({', '.join(inputs)}). No limit is estimated"
        )
    return lines


def explained_drops(
    joined: Joined, queue: Queue, busy: Sequence[Busy], longer: Sequence[Array]
) -> Bool:
    """The arrivals that were lost for their length, or while their output stood still.

    The queue of an output that stands still may be full, too. The pause explains the other drops.
    """
    explained = np.zeros(len(joined.arrivals), np.bool_)
    for rows in longer:
        explained[rows] = True
    pauses = [(output, pause) for output, sent in enumerate(busy) for pause in sent.pauses]
    if pauses:
        lost = (joined.verdict == Verdict.DROPPED) & has_room(joined, queue)
        for output, pause in pauses:
            since_ns = joined.arrivals.stamp_ns - pause.since_ns
            here = lost & (joined.egress == output)
            explained |= here & (since_ns >= 0) & (since_ns < pause.time_ns)
    return explained


def relations(joined: Joined, queue: Queue, explained: Bool) -> list[Relation]:
    return [_relation(joined, queue, output, explained) for output in range(len(joined.outputs))]


def _relation(joined: Joined, queue: Queue, output: int, explained: Bool) -> Relation:
    mine, empty = _dropped_at(joined, queue, output, explained)
    count = int(mine.sum())
    if not joined.shows_content(output):
        return Relation.UNKNOWN
    if count and int(empty.sum()) >= LEAST_SHARE * count:
        return Relation.EMPTY
    if count >= LEAST_EVEN and _is_even(
        queue.found_bytes[joined.egress == output], queue.found_bytes[mine]
    ):
        level = capacity(joined, queue, output, explained)
        if level is None or level.confidence < LEAST_LEVEL:
            return Relation.NONE
    return Relation.FULL


def _is_even(found: I32, dropped: I32) -> bool:
    """Whether drops are as frequent among packets that found little as among those that found much.

    The contents that packets found are cut into quarters. By chance each quarter has a binomial
    number of the drops.
    """
    edges = np.quantile(found[:: 1 + found.size // SAMPLED], (0.25, 0.5, 0.75))
    shares = np.bincount(np.searchsorted(edges, found), minlength=4) / found.size
    drops = np.bincount(np.searchsorted(edges, dropped), minlength=4)
    expected = dropped.size * shares
    most = np.maximum(SIGMAS * (expected * (1 - shares)) ** 0.5, UNEVEN * expected)
    # Bursts that begin at an empty queue lose their first packets more often, so only many drops
    # of those that found much show a full queue.
    return bool((drops - expected <= most)[2:].all())


def _dropped_at(joined: Joined, queue: Queue, output: int, explained: Bool) -> tuple[Bool, Bool]:
    """The arrivals that an output dropped, and those of them that found its queue empty."""
    mine: Bool = (joined.verdict == Verdict.DROPPED) & (joined.egress == output) & ~explained
    return mine, mine & (queue.found_packets == 0)


LEAST_BY_ONE = 0.9
"""A flow's IP ids count one by one if this share of steps is one."""
LEAST_OF_HOST = 0.1
"""Flows with a smaller share of their host's packets are not compared with the others."""
FEW_UNSEEN = 8
"""This many missing packets count in any case."""
_SIGMAS = 3.0
"""The most that a capture lacks, in standard deviations above the estimate."""


def drop_ranges(
    joined: Joined, repaired: Repairs, queue: Queue, explained: Bool
) -> list[DropRange]:
    """The drops of each input and output whose captures lack packets; empty if none does.

    - Packets that left without having come in are missing in their input's capture. It lacks an
      equal share of the dropped packets. Gaps of the senders' IP ids show missing packets too.
    - Packets that were never sent again, or that came in before the output's capture began, are
      missing in that capture. Then only drops whose data were sent again count as proven. Drops
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
            if known_lacks:
                whys.append(f"{name}'s capture seems to lack at least {known_lacks:,}")
            if found_empty:
                found = "an empty queue" if is_shown else "a queue whose content nothing shows"
                whys.append(
                    f"{found_empty:,} of these found {found}, and were not sent again (UDP never "
                    f"is): something else dropped them, or {name}'s capture lacks them"
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


def _came_by(joined: Joined, directions: Directions, number: Mapping[str, int]) -> I64:
    """For each departure the input that its flow comes by, or ELSEWHERE."""
    inputs = np.array([*(number.get(port, ELSEWHERE) for port in joined.sources.ports), ELSEWHERE])
    places = np.array([directions.place(flow.src) for flow in joined.flows])
    came_by: I64 = inputs[places][joined.departures.flow]
    return came_by


def missing_ids(joined: Joined) -> I64:
    """For each input and output, how many packets the gaps of IP ids say are missing.

    Linux numbers the packets of a TCP socket one by one (include/net/ip.h, ip_select_ident_segs).
    Other systems number all packets of a host, so what its other flows sent meanwhile is not
    missing. Zero for flows of other numbers. Zero for inputs that lack more than MOST_SHARE of
    their packets and FEW_UNSEEN, because packets were lost on the way to the switch.
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

    The output's capture then has packets that left before. The IP ids from the first of them to the
    flow's first packet that was seen to come in belong to packets that left or were dropped.
    `counts` says which flows count their packets one by one.
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
    forwarded = joined.left_as >= 0
    came_ns = joined.arrivals.stamp_ns[forwarded]
    return int((joined.departures.stamp_ns[joined.left_as[forwarded]] - came_ns).max())


def _sent_by_others(ip_id: U16, mine: Bool) -> int:
    """How many packets of a host's other flows have an id between two packets of this flow."""
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
