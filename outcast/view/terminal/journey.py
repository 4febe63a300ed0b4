"""A segment's way through the captured ports, as text, CSV or JSON."""

from collections.abc import Iterator
from typing import Any

from outcast.analysis.follow import Journey, Sighting
from outcast.plan.addresses import with_port
from outcast.units import counted
from outcast.view.terminal import forms
from outcast.view.terminal.listing import flag_names, milliseconds

_WAYS = {"in": "in", "out": "out", "?": "in or out"}
_FIELDS = (
    *("transmission", "packet", "relative_seq", "payload", "ip_id", "flags", "result"),
    *("port", "way", "t_ms", "after_us", "ttl"),
)


def lines(journey: Journey, start_ns: int, form: str) -> Iterator[str]:
    """Gives the way as lines of text. Times count from `start_ns`."""
    if form == "table":
        yield from _text(journey, start_ns)
        return
    yield from forms.records([*_rows(journey, start_ns)], _FIELDS, form)


def _text(journey: Journey, start_ns: int) -> Iterator[str]:
    key = journey.key
    last = journey.relative_seq + max(journey.payload_bytes, 1) - 1
    what = f"bytes {journey.relative_seq} to {last}" if journey.payload_bytes else "no payload"
    ends = f"{with_port(key.src, key.sport)} to {with_port(key.dst, key.dport)}"
    yield f"flow {journey.flow}, {ends}, {what} (relative)"
    times = counted(len(journey.transmissions), "time")
    yield f"sent {times}, as {journey.ports} captures show"
    furthest = {
        part.sightings[-1].port for part in journey.transmissions if part.verdict != "dropped"
    }
    most = max(len(part.sightings) for part in journey.transmissions)
    before: int | None = None
    width = max(len(seen.port) for part in journey.transmissions for seen in part.sightings)
    for number, part in enumerate(journey.transmissions, 1):
        first = part.sightings[0]
        later = "" if before is None else f", {(first.t_ns - before) / 1e6:.6f} ms after the last"
        before = first.t_ns
        row = "not in the table" if part.packet is None else f"packet {part.packet}"
        yield ""
        yield (
            f"{number}: {row}{later}; relative seq {part.relative_seq}, {part.payload_bytes} bytes,"
            f" IP id {part.ip_id}, {flag_names(part.flags) or 'no flags'}"
        )
        for seen in part.sightings:
            yield (
                f"   {seen.port.ljust(width)}  {_WAYS[seen.way].ljust(9)}  "
                f"{milliseconds(seen.t_ns - start_ns).rjust(14)} ms  "
                f"+{(seen.t_ns - first.t_ns) / 1e3:.3f} us  TTL {seen.ttl}"
            )
        if part.verdict == "dropped":
            held = "" if part.queue_bytes is None else f", whose queue held {part.queue_bytes:,} B"
            yield f"   dropped at {part.egress or 'an unknown output'}{held}"
        elif part.sightings[-1].port not in furthest or len(part.sightings) < most:
            yield f"   no capture saw it after {_place(part.sightings[-1])}"
    yield ""
    acknowledged = journey.acknowledged
    if acknowledged is not None:
        at = milliseconds(acknowledged.t_ns - start_ns)
        yield f"all of it acknowledged at {at} ms, first seen at {_place(acknowledged)}"
    elif journey.payload_bytes:
        yield "no capture shows its acknowledgement"


def _place(seen: Sighting) -> str:
    return f"{seen.port} ({_WAYS[seen.way]})"


def _rows(journey: Journey, start_ns: int) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(journey.transmissions, 1):
        for seen in part.sightings:
            yield {
                "transmission": number,
                "packet": part.packet,
                "relative_seq": part.relative_seq,
                "payload": part.payload_bytes,
                "ip_id": part.ip_id,
                "flags": flag_names(part.flags),
                "result": part.verdict,
                "port": seen.port,
                "way": seen.way,
                "t_ms": float(milliseconds(seen.t_ns - start_ns)),
                "after_us": (seen.t_ns - part.sightings[0].t_ns) / 1e3,
                "ttl": seen.ttl,
            }
