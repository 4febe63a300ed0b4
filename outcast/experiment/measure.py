"""Says what is probed, captured, sampled and traced, and how the captures are summed up."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator

from outcast import units
from outcast.experiment.links import MOST_MTU_BYTES
from outcast.experiment.parts import (
    Dscp,
    Duration,
    OwnFamily,
    Part,
    SizeBytes,
    Start,
    TimeNs,
    as_text,
    described,
    optional,
)
from outcast.experiment.workloads import DATAGRAM_HEADERS_BYTES

LEAST_EVERY_NS = 10_000
MOST_PROBES = 1000


class Probe(Part):
    """A series of small packets, each of which is answered; the first has a random phase."""

    source: str = described("the host that asks", alias="from")
    to: str = described("the host that answers")
    every_ns: TimeNs = described(
        "time from one packet to the next", default=10_000_000, ge=LEAST_EVERY_NS
    )
    kind: Literal["icmp", "udp"] = described(
        "icmp: echo requests, which the kernel answers, as ping(8); udp: datagrams from and to a "
        "program of outcast",
        default="icmp",
    )
    size_bytes: SizeBytes = described(
        "payload bytes of a packet, as of ping -s; headers of IPv4 and of ICMP or UDP add 28, and "
        "those of IPv6 48",
        default=56,
        ge=4,
        le=MOST_MTU_BYTES - DATAGRAM_HEADERS_BYTES,
    )
    addressing: OwnFamily = None
    dscp: Dscp = described(
        "code point of its packets and of their answers, as `ef` or 46", default=0
    )
    start_ns: Start = 0
    duration_ns: Duration = None


GroupKind = Literal["name", "hops", "congestion_control", "port", "sender"]
"""The kinds of grouping that outcast/plan/grouping.py knows."""
SHORTEST_SAMPLES_NS = 10**6


class Capture(Part):
    """The ports at which tcpdump listens."""

    ports: Literal["bottleneck", "all"] | list[str] = described(
        "bottleneck: its output and all its inputs; all: every switch port in both directions; or "
        "a list of names as s1-eth2, in both directions, besides the bottleneck",
        default="bottleneck",
    )


class Samples(Part):
    """How often sockets and queues are read while flows run."""

    every_ns: TimeNs | None = optional(
        "time between samples; 0ms: none. Default: 10ms in the virtual engine, 100ms in the "
        "realtime one"
    )

    def _require(self) -> None:
        if self.every_ns is not None and 0 < self.every_ns < SHORTEST_SAMPLES_NS:
            raise ValueError("every: allowed is 1ms or more, or 0ms for no samples")


MOST_EVENTS = 2000
"""More kinds of events than the guest's kernel has."""

EVENT_PATTERN = r"^[A-Za-z0-9_-]{1,64}:[A-Za-z0-9_-]{1,128}$"
EventName = Annotated[str, Field(pattern=EVENT_PATTERN)]
"""A tracepoint as the kernel lists it in tracefs's available_events: `system:event`."""


class Trace(Part):
    """Tracepoints of the guest's kernel, whose events the run records."""

    events: tuple[EventName, ...] = described(
        "tracepoints, as tcp:tcp_probe; the captures stay the same to the byte",
        min_length=1,
        max_length=MOST_EVENTS,
    )

    @field_validator("events")
    @classmethod
    def _no_event_twice(cls, events: tuple[str, ...]) -> tuple[str, ...]:
        for name in events:
            if events.count(name) > 1:
                raise ValueError(f"{name} is there twice; allowed is each event once")
        return events


class Instant(Part):
    """An instant of a run: after the traffic's start, or after all flows are active."""

    # It is written as a text.
    model_config = ConfigDict(alias_generator=None)

    after_all_active: bool
    offset_ns: int

    def __str__(self) -> str:
        offset = units.format_time(self.offset_ns)
        if not self.after_all_active:
            return offset
        return f"all_active + {offset}" if self.offset_ns else "all_active"

    def at_ns(self, all_active_ns: int) -> int:
        """The time after the traffic's start; all flows are active from `all_active_ns` on."""
        return self.offset_ns + (all_active_ns if self.after_all_active else 0)


_INSTANT = re.compile(r"\s*(?:(all_active)\s*(?:\+|$))?\s*(.*?)\s*")


def _instant(value: object) -> Instant:
    if isinstance(value, Instant):
        return value
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    try:
        if match is None:
            raise ValueError
        after = match[1] is not None
        is_bare = after and not match[2] and "+" not in match[0]
        offset_ns = 0 if is_bare else units.parse_time_ns(match[2])
        return Instant(after_all_active=after, offset_ns=offset_ns)
    except ValueError:
        raise ValueError(
            f"{value!r} is not an instant; allowed is a time after the traffic's start as 1s, "
            "all_active, or all_active + 500ms"
        ) from None


RunInstant = Annotated[
    Instant,
    *as_text(_instant, examples=["1s", "all_active", "all_active + 500ms"]),
]


def cut_windows(windows_ns: tuple[int, ...], duration_ns: int) -> list[str]:
    """A line on those of `analysis.windows` that are longer than the run, and what is done."""
    longer = ", ".join(units.format_time(width) for width in windows_ns if width > duration_ns)
    end = f"the end of the duration, {units.format_time(duration_ns)}, because longer than it"
    return [f"analysis.windows: {longer}: cut to {end}"] if longer else []


class Analysis(Part):
    """How the captures are summed up."""

    windows_ns: tuple[Annotated[TimeNs, Field(gt=0)], ...] = described(
        "times from when all flows are active, for each of which goodput is summed up", default=()
    )
    since: RunInstant | None = optional(
        "what comes before counts neither in the summary nor in the tables of flows and groups; "
        "see docs/analysis.md. If left out, they are of the time when all flows are active",
        alias="from",
    )
    until: RunInstant | None = optional(
        "what comes from then on does not count either; if only `from` is given, the end of the "
        "duration",
        alias="to",
    )
    bin_ns: TimeNs = described(
        "width of a point of the curves over time; if left out, at most the duration",
        default=100_000_000,
        gt=0,
    )

    group_by: GroupKind | None = optional(
        "by what tables and figures group flows; if left out, by name where any flow has one, else "
        "by hops. See docs/groups.md"
    )
    compare: tuple[str, str] | None = optional(
        "two groups; the headline is the first one's mean goodput over the second's. If left out, "
        "the classes with the most and the fewest hops"
    )

    def _require(self) -> None:
        since, until = self.since, self.until
        if until is None:
            return
        alike = since is None or since.after_all_active == until.after_all_active
        if alike and until.offset_ns <= (0 if since is None else since.offset_ns):
            raise ValueError(f"to: {until} is not after from: {since or '0s'}; allowed is later")

    @field_validator("compare")
    @classmethod
    def _two_groups(cls, compare: tuple[str, str] | None) -> tuple[str, str] | None:
        if compare is not None and compare[0] == compare[1]:
            raise ValueError(f"{compare[0]!r} twice; allowed are two different groups")
        return compare

    def within(self, duration_ns: int) -> Analysis:
        """A copy whose default bin is at most the duration; a bin that was given is kept."""
        if "bin_ns" in self.model_fields_set or self.bin_ns <= duration_ns:
            return self
        return self.model_copy(update={"bin_ns": duration_ns})
