"""What each packet found queued, for rows of a table of packets in their order.

A packet can reach its queue long after it came in, as behind a link's delay. A run's table of
queues tells when it did; a table of packets alone only how many it found then.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Row = dict[str, Any]
Found = Iterator[tuple[Row, tuple[Row, ...]]]


class Event(NamedTuple):
    """A row of a run's table of queues."""

    egress: str
    event: str
    packet: int | None
    queue_packets: int


def by_times(rows: Iterable[Row]) -> Found:
    """Gives each packet of a table alone, and what of it was queued when the packet came.

    Packets that came in before it and left later can also be on the way, before it reached the
    queue or after. Those that leave last count, as many as the table says.
    """
    held: dict[str, list[Row]] = {}
    for row in rows:
        queue: tuple[Row, ...] = ()
        if row["egress"] is not None:
            content = held.setdefault(row["egress"], [])
            # All are checked, because a queue that is no FIFO sends packets in another order.
            content[:] = [packet for packet in content if packet["t_out"] > row["t_in"]]
            queue = _by_departure(content)
            if (count := row.get("queue_packets")) is not None:
                queue = queue[max(0, len(queue) - count) :]
            if row["t_out"] is not None:
                content.append(row)
        yield row, queue


def by_events(rows: Iterable[Row], events: Iterable[Event]) -> Found:
    """Gives each packet of a run, and what was queued when it reached the queue.

    The queue is given only for rows to be shown.
    """
    walk = _Walk(rows, events)
    while walk.ahead or walk.read():
        row = walk.ahead[0]
        walk.reach(row)
        walk.ahead.popleft()
        yield row, walk.found.pop(row["packet"], ())


class _Walk:
    """Rows and events side by side; memory grows with what is queued or on the way to it.

    Attributes:
        ahead: rows that were read and not yet given.
        found: what packets found that are not yet given.
    """

    def __init__(self, rows: Iterable[Row], events: Iterable[Event]) -> None:
        self.ahead: deque[Row] = deque()
        self.found: dict[int, tuple[Row, ...]] = {}
        self._rows, self._events = iter(rows), iter(events)
        self._event = next(self._events, None)
        self._last = -1
        self._coming: dict[int, Row] = {}
        self._held: dict[str, dict[int, Row]] = {}
        self._counts: dict[str, int] = {}

    def read(self) -> bool:
        """Reads a row; false if there is none."""
        row = next(self._rows, None)
        if row is None:
            return False
        self._last = row["packet"]
        self._coming[self._last] = row
        self.ahead.append(row)
        return True

    def reach(self, row: Row) -> None:
        """Goes on until this packet has reached its queue."""
        number, egress, count = row["packet"], row["egress"], row["queue_packets"]
        if row["verdict"] in ("forwarded", "dropped") or row["note"] == "in flight":
            while number in self._coming and self._event is not None:
                self._pass(self._event)
        elif egress is not None and count is not None:
            # No event tells of it. It found the queue before the next packet that came there.
            while self._event is not None and self._event.event == "dequeue":
                if self._counts.get(egress, 0) <= count:
                    break
                self._pass(self._event)
            self.found[number] = _by_departure(self._held.get(egress, {}).values())
        self._coming.pop(number, None)

    def _pass(self, event: Event) -> None:
        self._event = next(self._events, None)
        self._counts[event.egress] = event.queue_packets
        content = self._held.setdefault(event.egress, {})
        number = event.packet
        # Where a link failed, a drop is the end of a packet that was queued.
        if number is None or content.pop(number, None) is not None or event.event == "dequeue":
            return
        # One that came in later can be there sooner.
        while self._last < number and self.read():
            pass
        row = self._coming.pop(number, None)
        if row is None:
            return
        if row["shown"]:
            self.found[number] = _by_departure(content.values())
        if event.event == "enqueue":
            content[number] = row


def _by_departure(packets: Iterable[Row]) -> tuple[Row, ...]:
    """Sorted so, because flows that are served in turn overtake one another."""
    return tuple(sorted(packets, key=lambda row: (row["t_out"] is None, row["t_out"] or 0)))
