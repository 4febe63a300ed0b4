"""Links in words, for tables and drawings: what all have, and what some have of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from outcast import units
from outcast.experiment import Experiment, Link
from outcast.experiment.queues.classes import HasClasses, TrafficClass
from outcast.plan import ports
from outcast.plan.links import Direction
from outcast.plan.model import Plan


def usual(links: Mapping[Direction, Link]) -> Link:
    """The settings that most directions have; of several, those with the fewest words."""
    counts = Counter(links.values())
    return max(counts, key=lambda link: (counts[link], -len(settings(link).split(","))))


def settings(link: Link, other_than: Link | None = None) -> str:
    """A direction's settings, as `100mbit, delay 10ms, loss 1%`.

    What `other_than` has too is left out.
    """

    def differs(name: str) -> bool:
        return other_than is None or getattr(link, name) != getattr(other_than, name)

    words = []
    if differs("rate_bps"):
        words.append(units.format_rate(link.rate_bps))
    if differs("delay_ns") and link.delay_ns is not None:
        words.append(f"delay {units.format_time(link.delay_ns)}")
    # The largest jitter is the default, and follows from the rate and the delay.
    varies = link.jitter_ns not in (None, link.greatest_noise_ns())
    if differs("jitter_ns") and varies and (link.jitter_ns or other_than is not None):
        words.append(f"jitter {units.format_time(link.jitter_ns or 0)}")
    if differs("loss") and (link.loss or other_than is not None):
        words.append(f"loss {100 * link.loss:.6g}%")
    if differs("burst_loss") and link.burst_loss is not None:
        words.append(f"burst loss p {link.burst_loss.p:g} r {link.burst_loss.r:g}")
    if differs("late") and link.late is not None:
        words.append(f"{100 * link.late.share:.6g}% late by {units.format_time(link.late.by_ns)}")
    if differs("duplicate") and link.duplicate:
        words.append(f"duplicate {100 * link.duplicate:.6g}%")
    if differs("policer") and link.policer is not None:
        words.append(f"policer {units.format_rate(link.policer.rate_bps)}")
    if differs("random_delay") and (drawn := link.random_delay) is not None:
        mean, spread = map(units.format_time, (drawn.mean_ns, drawn.spread_ns))
        words.append(f"{drawn.distribution} delay {mean} spread {spread}")
    if differs("mtu_bytes"):
        words.append(f"mtu {link.mtu_bytes}")
    if link.queue is not None and differs("queue"):
        limit = link.queue.model_dump(mode="json", by_alias=True).get("limit", "")
        words.append(f"queue {link.queue.kind} {limit}".rstrip())
    return ", ".join(words)


def own(links: Mapping[Direction, Link]) -> Callable[[str, str], str]:
    """What a link between two nodes has other than most links, in words.

    Returns a function of the two nodes, because what most links have is found once for all. Its
    text is empty where a link is as most are. Where the directions differ, each has its end: `to s1
    10mbit; to s2 100mbit`.
    """
    common = usual(links)

    def words_of(first: str, second: str) -> str:
        there, back = settings(links[first, second], common), settings(links[second, first], common)
        if there == back:
            return there
        ways = ((second, there), (first, back))
        return "; ".join(f"to {node} {words}" for node, words in ways if words)

    return words_of


def queue(port: ports.PortQueue) -> str:
    """A port's queue: its limit in size and time, its thresholds, its target."""
    kind = port.queue
    words = [kind.kind, *(f"{name} {limit}" for name, limit in kind.limits.items())]
    if port.limit_packets:
        words[1] += f" ({units.round_time(port.full_ns)} at {units.round_rate(port.rate_bps)})"
    if isinstance(kind, HasClasses):
        words[1] += " of each class"
        words.append(f"classes {', '.join(map(_of_class, kind.classes))}")
    if isinstance(thresholds := getattr(kind, "thresholds_packets", None), tuple):
        words.append("average from {} to {} packets".format(*thresholds))
    if target_ns := getattr(kind, "target_ns", None):
        words.append(f"target {units.format_time(target_ns)}")
    return ", ".join(words)


def _of_class(part: TrafficClass) -> str:
    given = part.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"name"})
    points = " ".join(map(str, given.pop("dscp", ())))
    words = [f"DSCP {points}" if points else "all others"]
    return f"{part.name} ({', '.join([*words, *(f'{key} {given[key]}' for key in given)])})"


def limits(experiment: Experiment, plan: Plan, at: Collection[str]) -> list[str]:
    """A line on each limit that is not in the kernel's unit, and what it came to.

    Switch ports that are alike share a line.
    """
    alike: dict[str, list[str]] = {}
    for port in at:
        settings = ports.switch_queue(experiment, plan, port)
        if settings.asked is None:
            continue
        direction = plan.ends[port]
        link = plan.links[direction]
        of = [f"{units.format_rate(link.rate_bps)}{' on average' * (direction in plan.traced)}"]
        if settings.asked.bdp is not None:
            of.append(f"a base RTT of {plan.base_rtts_ns[direction] / 1e6:.4g} ms")
        came_to = settings.queue.limits["limit"]
        wire_bytes = link.framing.wire_bytes(link.frame_bytes)
        words = (
            f"{settings.queue.kind}, limit {settings.asked}: {came_to}"
            f"{' of each class' * isinstance(settings.queue, HasClasses)}, from {', '.join(of)} "
            f"and frames of {link.frame_bytes} B, {wire_bytes} on the wire"
        )
        alike.setdefault(words, []).append(port)
    return [f"{', '.join(names)}: {words}" for words, names in alike.items()]
