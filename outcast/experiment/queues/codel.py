"""CoDel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from outcast.experiment.parts import TimeNs, described
from outcast.experiment.queues import base

_UNIT_NS = 1024


class RunsCodel(base.ControlsDelay, base.CountsPackets):
    """A queue with the settings of CoDel (RFC 8289)."""

    target_ns: TimeNs = described("target sojourn time", default=5_000_000)
    interval_ns: TimeNs = described(
        "how long above the target before a drop; an RTT", default=100_000_000
    )
    ecn: bool = described("mark instead of dropping", default=False)

    @property
    def codel_words(self) -> str:
        """CoDel's own settings in the words of tc(8)."""
        return (
            f"target {self.target_ns // 1000}us interval {self.interval_ns // 1000}us "
            f"{base.ecn_word(self.ecn)}"
        )

    def check(self, *options: bytes) -> Iterator[base.Setting]:
        # fq_codel's first attributes have the same numbers.
        yield from base.numbered(
            options[0],
            limit_packets=(self.limit.packets, 2),
            target_us=(_shown_us(self.target_ns), 1),
            interval_us=(_shown_us(self.interval_ns), 3),
            ecn=(self.ecn, 4),
        )


class Codel(RunsCodel):
    """tc-codel(8): drops at the head while sojourn times exceed a target (RFC 8289); shaped."""

    drops = "later"
    probe = {"codel": ""}
    # Struct tc_codel_xstats.
    counters = {
        "codel": base.fields(at_limit=("=I", 20), marked=("=I", 24), marked_at_threshold=("=I", 32))
    }

    kind: Literal["codel"]

    def tc(self) -> tuple[base.Qdisc, ...]:
        return (base.Qdisc("codel", f"limit {self.limit.packets} {self.codel_words}"),)


def _shown_us(time_ns: int) -> int:
    """What the kernel shows of a time that it keeps in units of 1024 ns (net/codel.h)."""
    return time_ns // _UNIT_NS * _UNIT_NS // 1000
