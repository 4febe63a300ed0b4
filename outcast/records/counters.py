"""The kernel's counters of a run in counters.json, and the rates of traces in rates.json."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from outcast import handed_in
from outcast.errors import InputError


class CaptureRecord(handed_in.Record):
    """One tcpdump and its three closing counters (tcpdump(1), "packets captured")."""

    port: str
    direction: Literal["in", "out"]
    file: handed_in.FileName
    captured: int
    received_by_filter: int
    dropped_by_kernel: int


def _growth(counter: str, before: object, after: object) -> int:
    """Returns a counter's growth. Raises InputError if it is no counter or went back."""
    if isinstance(before, int) and isinstance(after, int) and 0 <= before <= after:
        return after - before
    raise InputError(f"counters.json: {counter}: {before!r} before the flows, {after!r} after")


class PortCounters(handed_in.Record):
    """`tc -s qdisc show` of a port's shaper before the flows, at the duration's end and after them.

    Flows that have not sent all go on after the duration, until their buffers are empty.
    """

    before: dict[str, Any]
    at_end: dict[str, Any] | None = None
    after: dict[str, Any]

    def delta(self, counter: str) -> int:
        """Returns the growth of a counter of the root qdisc (`drops`, `packets`, `bytes`)."""
        return _growth(counter, self.before.get(counter), self.after.get(counter))

    def own_delta(self, counter: str) -> int:
        """Returns the growth of a counter of the queue below the root, as `class_1_drops`."""
        before, after = (counted.get("own", {}) for counted in (self.before, self.after))
        return _growth(f"own: {counter}", before.get(counter), after.get(counter))


class HostCounters(handed_in.Record):
    """nstat(8)'s absolute counters of a host's network namespace; see `PortCounters`."""

    before: dict[str, int]
    at_end: dict[str, int] | None = None
    after: dict[str, int]

    def delta(self, counter: str) -> int:
        """Returns the growth of a counter, as `TcpRetransSegs`. An absent counter is 0."""
        return _growth(counter, self.before.get(counter, 0), self.after.get(counter, 0))

    def within(self, counter: str) -> int:
        """The growth of a counter within the duration; until the flows' end if that was before."""
        last = self.after if self.at_end is None else self.at_end
        return _growth(counter, self.before.get(counter, 0), last.get(counter, 0))


Cause = Literal["queue", "delay", "link", "failure", "interface", "blackout", "host"]
"""The causes by which packets of one direction of a link are lost:

- `queue`: the sending port's queue dropped them.
- `delay`: they were more than the link's delay holds at a time.
- `link`: the link lost them by its own setting, after the port had sent them.
- `failure`: the link was down.
- `interface`: the sending interface dropped them (ip-link(8), `tx_dropped` and `tx_errors`).
- `blackout`: a synthetic blackout's switch dropped them at the far end.
- `host`: they reached the receiving host, and its sockets had no room for them.
"""


class LinkTotals(handed_in.Record):
    """The packets that an interface had sent up to some time. Bytes include Ethernet headers."""

    packets: int
    bytes: int
    lost: dict[Cause, int]
    """Packets lost up to then by cause, of the causes that the port itself counts."""


class LinkRecord(handed_in.Record):
    """One direction of a link: the flows planned to cross it, and the kernel's counters."""

    port: str
    """The interface that sends."""
    node: str
    neighbour: str
    """The node that it sends to."""
    rate_bps: int
    overhead_bytes: int = 0
    """What takes time with every frame besides its bytes."""
    flows: list[int]
    """Numbers of the flows whose data crosses it by plan."""
    acknowledged: list[int]
    """Numbers of the flows whose acknowledgements cross it by plan."""
    other: bool
    """Whether other traffic may cross it."""
    before: LinkTotals
    at_start: LinkTotals | None = None
    at_end: LinkTotals | None = None
    after: LinkTotals

    @property
    def within(self) -> LinkRecord:
        """The record within the duration; until the flows' end if that was before."""
        ends = {"before": self.at_start or self.before, "after": self.at_end or self.after}
        return self.model_copy(update=ends)

    @property
    def packets(self) -> int:
        return _growth(self.port, self.before.packets, self.after.packets)

    @property
    def bytes(self) -> int:
        return _growth(self.port, self.before.bytes, self.after.bytes)

    @property
    def lost(self) -> dict[Cause, int]:
        return {
            cause: _growth(f"{self.port}: lost, {cause}", self.before.lost.get(cause, 0), count)
            for cause, count in self.after.lost.items()
        }


class Counters(handed_in.Record):
    """counters.json: switch ports by name, hosts by name, the captures' counters, and links."""

    ports: dict[str, PortCounters]
    hosts: dict[str, HostCounters]
    captures: list[CaptureRecord]
    links: list[LinkRecord] = Field(default_factory=list)


NO_COUNTERS = Counters(ports={}, hosts={}, captures=[])
"""Those of joined captures, whose kernels' counters are not known."""


class PortRates(handed_in.Record):
    """The rates that a trace gave a port, as they were set and read back."""

    port: str
    trace: handed_in.FileName
    """The run's copy of the trace's file."""
    t_ns: list[int]
    """From when each rate was in force, after the traffic's start."""
    rate_bps: list[int]
    latest_ns: int
    """The longest time by which a rate was set late."""
    skipped: int
    """Rates that were over before they could be set."""


class Rates(handed_in.Versioned):
    """rates.json: what the traces of links set."""

    ports: list[PortRates] = Field(default_factory=list)
