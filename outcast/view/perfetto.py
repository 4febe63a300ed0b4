"""Writes events of the kernel as a trace that ui.perfetto.dev opens (TrackEvent protobuf).

A process is a host or a switch. Below a host stand its flows: a track with a slice for each time
in another congestion state than open, one for each timer with a slice while it is armed, and
counters. Below a switch stand its ports: a counter of the queue, and a mark for each drop. Every
other event is a mark on the track of its flow, its port or its host.

Sources: protos/perfetto/trace/track_event in Perfetto, and docs/reference/synthetic-track-event.md
there. The package `perfetto` brings the messages.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from outcast import files
from outcast.analysis.trace.events import ARMED, FIRED, NO_THRESHOLD, OPEN
from outcast.analysis.trace.selected import Wanted, events_of, own_fields, rows
from outcast.records.run import Run
from outcast.records.sender_tables import STATES

_SEQUENCE = 1
_BEGIN, _END, _MARK, _COUNTER = 1, 2, 3, 4
"""Of TrackEvent.Type: slice begin, slice end, instant, counter."""


@dataclass(slots=True)
class _Track:
    uuid: int
    counter: int | None = None
    slice_open: bool = False


@dataclass
class _Writer:
    """Writes packets of a trace, and describes each track before its first event."""

    builder: Any
    to_trace_ns: int
    tracks: dict[tuple[str, ...], _Track] = field(default_factory=dict)
    events: int = 0

    def track(self, process: str, name: str = "", unit: str | None = None) -> _Track:
        """The track of a process, or one below it; a counter if it has a unit."""
        key = (process, name)
        if key in self.tracks:
            return self.tracks[key]
        parent = None if not name else self.track(process)
        track = self.tracks[key] = _Track(len(self.tracks) + 1)
        packet = self.builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        descriptor = packet.track_descriptor
        descriptor.uuid = track.uuid
        if parent is None:
            descriptor.process.pid = track.uuid
            descriptor.process.process_name = process
        else:
            descriptor.parent_uuid = parent.uuid
            descriptor.name = name
        if unit is not None:
            descriptor.counter.unit_name = unit
        self.builder.write_packet(packet)
        return track

    def begin(self, track: _Track, t_ns: int, name: str, about: Mapping[str, Any]) -> None:
        """Begins a slice, after the end of the one before."""
        self.end(track, t_ns)
        self.event(track, t_ns, _BEGIN, name, about)
        track.slice_open = True

    def end(self, track: _Track, t_ns: int) -> None:
        """Ends the slice that is open, if there is one."""
        if track.slice_open:
            self.event(track, t_ns, _END, "", {})
            track.slice_open = False

    def count(self, track: _Track, t_ns: int, value: int) -> None:
        """A counter's value from now on, if it is another one."""
        if track.counter == value:
            return
        track.counter = value
        packet = self._packet(track, t_ns, _COUNTER)
        packet.track_event.counter_value = value
        self.builder.write_packet(packet)

    def event(
        self, track: _Track, t_ns: int, kind: int, name: str, about: Mapping[str, Any]
    ) -> None:
        """An event on a track, with all that is known about it."""
        packet = self._packet(track, t_ns, kind)
        if name:
            packet.track_event.name = name
        for key, value in about.items():
            annotation = packet.track_event.debug_annotations.add()
            annotation.name = key
            if isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.string_value = str(value)
        self.builder.write_packet(packet)

    def _packet(self, track: _Track, t_ns: int, kind: int) -> Any:
        packet = self.builder.create_packet()
        packet.timestamp = max(t_ns + self.to_trace_ns, 0)
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track.uuid
        self.events += 1
        return packet


def write(run: Run, path: Path, wanted: Wanted) -> int:
    """Writes the events that are meant, by the guest's clock. Returns how many there are.

    Raises ConfigError and InputError as `rows`, and OSError if it cannot be written.
    """
    start_ns = run.manifest.traffic.t_start_ns - run.directory.read_trace_formats().to_captures_ns
    senders = {record.flow: record.src for record in run.manifest.flows}
    kinds = wanted.events or events_of(run)
    with files.writing(path) as stream:
        writer = _Writer(StreamingTraceProtoBuilder(stream), start_ns)
        last_ns = 0
        for event, row in rows(run, wanted):
            last_ns = row["t_ns"]
            _write(writer, event, row, senders, kinds)
        for track in list(writer.tracks.values()):
            writer.end(track, last_ns)
    return writer.events


def _write(
    writer: _Writer,
    event: str,
    row: Mapping[str, Any],
    senders: Mapping[int, str],
    kinds: tuple[str, ...],
) -> None:
    flow, host, t_ns = row["flow"], row["host"], row["t_ns"]
    is_sender = flow is not None and senders.get(flow) == host
    name = event.partition(":")[2]
    if is_sender and name in ("tcp_ack_done", "tcp_probe"):
        # Both tell of every acknowledgement, and the first one more.
        if name == "tcp_ack_done" or "tcp:tcp_ack_done" not in kinds:
            for what, unit, value in _counters(row):
                writer.count(writer.track(host, f"flow {flow}: {what}", unit), t_ns, value)
    elif is_sender and name == "tcp_cong_state_set":
        track = writer.track(host, f"flow {flow}: state")
        state = row["cong_state"]
        if state == OPEN:
            writer.end(track, t_ns)
        else:
            named = STATES[state] if state < len(STATES) else str(state)
            writer.begin(track, t_ns, named, _about(row, ("snd_cwnd", "ssthresh", "snd_una")))
    elif is_sender and name == "tcp_timer":
        _timer(writer, row)
    elif name in ("qdisc_enqueue", "qdisc_dequeue") and host is not None and "backlog" in row:
        # A dequeue that found nothing to send changes nothing.
        if row["port"] is not None and row.get("skbaddr") != 0:
            track = writer.track(host, f"{row['port']}: queue", "bytes")
            writer.count(track, t_ns, row["backlog"])
    else:
        of = row["port"] or (None if flow is None else f"flow {flow}")
        track = writer.track(host or "elsewhere", f"{of}: events" if of else "events")
        writer.event(
            track, t_ns, _MARK, name, {**_about(row, ("flow", "packet")), **own_fields(dict(row))}
        )


def _counters(row: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """The counters of a sender: name, unit and value."""
    yield "cwnd", "segments", row["snd_cwnd"]
    if row["ssthresh"] < NO_THRESHOLD:
        yield "ssthresh", "segments", row["ssthresh"]
    yield "srtt", "us", row["srtt_us"] if "srtt_us" in row else row["srtt"]
    if "packets_out" in row:
        # tcp_packets_in_flight of include/net/tcp.h
        sacked_or_lost = row["sacked_out"] + row["lost_out"]
        yield "in flight", "segments", row["packets_out"] - sacked_or_lost + row["retrans_out"]
        yield "rto", "us", row["rto_us"]


def _timer(writer: _Writer, row: Mapping[str, Any]) -> None:
    """A slice while a timer is armed, and a mark where it fires."""
    kind = row.get("kind_name") or f"timer {row['kind']}"
    track = writer.track(row["host"], f"flow {row['flow']}: {kind} timer")
    if row["action"] == ARMED:
        writer.begin(track, row["t_ns"], "armed", _about(row, ("rto_us", "snd_una", "snd_nxt")))
    else:
        writer.end(track, row["t_ns"])
        if row["action"] == FIRED:
            about = _about(row, ("rto_us", "backoff", "snd_una"))
            writer.event(track, row["t_ns"], _MARK, "fired", about)


def _about(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names if row.get(name) is not None}
