"""Links in words, for tables and drawings: what all have, and what some have of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from outcast import units
from outcast.experiment import Link
from outcast.plan.links import Direction


def usual(links: Mapping[Direction, Link]) -> Link:
    """The settings that most directions have."""
    return Counter(links.values()).most_common(1)[0][0]


def settings(link: Link, other_than: Link | None = None) -> str:
    """A direction's settings, as `100mbit, delay 10ms, loss 1%`.

    Args:
        link: the settings.
        other_than: settings that are left out where the link has them too.
    """

    def differs(name: str) -> bool:
        return other_than is None or getattr(link, name) != getattr(other_than, name)

    words = []
    if differs("rate_bps"):
        words.append(units.format_rate(link.rate_bps))
    if differs("delay_ns") and link.delay_ns is not None:
        words.append(f"delay {units.format_time(link.delay_ns)}")
    # The largest jitter is the default, and follows from the rate and the delay.
    if differs("jitter_ns") and link.jitter_ns not in (None, link.greatest_noise_ns()):
        words.append(f"jitter {units.format_time(link.jitter_ns or 0)}")
    if differs("loss") and (link.loss or other_than is not None):
        words.append(f"loss {100 * link.loss:.6g}%")
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

    def words_of(one: str, other: str) -> str:
        there, back = settings(links[one, other], common), settings(links[other, one], common)
        if there == back:
            return there
        ways = ((other, there), (one, back))
        return "; ".join(f"to {node} {words}" for node, words in ways if words)

    return words_of
