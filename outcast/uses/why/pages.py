"""Reads the pages of the kernel's ring buffer as columns.

A page has a header, as tracefs describes it in events/header_page: the time of its first event, and
how many bytes of it are used. Then events follow, each with a word of 32 bits: `type_len` in its
lowest 5 bits and `time_delta`, the nanoseconds since the event before, in the other 27:

| type_len | what it is |
|---|---|
| 1 to 28 | an event of this number of words of 4 bytes |
| 0 | an event whose length in bytes, the length's own 4 included, is the next word |
| 29 | padding: of the length in the next word, or up to the page's end if the delta is 0 |
| 30 | time extend: the next word has the delta's higher 32 bits |
| 31 | absolute time: the same for the lower 59 bits of the time itself |

Sources: enum ring_buffer_type in linux/ring_buffer.h; rb_event_length, rb_update_read_stamp and
ring_buffer_read_page in kernel/trace/ring_buffer.c. Pages are those of a little-endian kernel, as
the guest's is.

No maintained library reads pages into columns: libtraceevent has a call for each event, which takes
some hundred times as long from Python.

The file `format` of an event in tracefs has its layout (f_show in kernel/trace/trace_events.c).
Offsets count from the event's own beginning (Documentation/trace/events.rst, "Event formats"):

```
name: tcp_probe
ID: 1543
format:
        field:unsigned short common_type;	offset:0;	size:2;	signed:0;
        ...
        field:__u16 sport;	offset:64;	size:2;	signed:0;
        field:__data_loc char[] dev;	offset:66;	size:4;	signed:0;

print fmt: "...", REC->sport, ...
```
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from outcast.analysis import I64, U8, Array, Scalar, compiled
from outcast.errors import InputError
from outcast.records import Formats

Kind = Literal["number", "numbers", "text", "bytes"]

_COMMON = "common_"
_FIELD = re.compile(
    r"\tfield:(?P<declared>[^;\t]{1,300});\toffset:(?P<offset>\d{1,6});"
    r"\tsize:(?P<size>\d{1,6});\tsigned:(?P<signed>[01]);"
)
_DYNAMIC = re.compile(r"__(?P<place>data|rel)_loc (?P<of>.+?) ?\[\] ?(?P<name>\w+)")
_ARRAY = re.compile(r"(?P<of>.+?) ?(?P<name>\w+) ?\[(?P<count>.*)\]")
_SCALAR = re.compile(r"(?P<of>.+?)(?P<name>\w+)")
_SYMBOLS = re.compile(r"__print_symbolic\(REC->(\w+),")
_SYMBOL = re.compile(r'\s*\{\s*(-?(?:0x[0-9a-fA-F]{1,16}|\d{1,19})),\s*"([^"]{0,200})"\s*\},?')
_CHARACTERS = ("char", "const char", "unsigned char")
_ELEMENT_BYTES = {
    **dict.fromkeys(("short", "u16", "__u16", "s16", "__s16", "unsigned short"), 2),
    **dict.fromkeys(("int", "u32", "__u32", "s32", "__s32", "unsigned int"), 4),
    **dict.fromkeys(("long", "u64", "__u64", "s64", "__s64", "unsigned long"), 8),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event.

    Attributes:
        kind: a number, an array of numbers, text that a null may end, or plain bytes.
        size: its bytes in the event; of a dynamic field the 4 bytes that locate its content.
        element_bytes: bytes of a number; 1 for text and bytes.
        dynamic: where its content is: within the field itself (None), counted from the event's
            beginning (`data`) or from the field's end (`rel`).
        network: whether it is a number in network byte order, so an address.
        symbols: the kernel's name of each number, where it has names for them.
    """

    name: str
    kind: Kind
    offset: int
    size: int
    element_bytes: int
    signed: bool
    dynamic: Literal["data", "rel"] | None
    network: bool
    symbols: Mapping[int, str]

    @property
    def is_coded(self) -> bool:
        return self.dynamic is not None or self.kind in ("text", "bytes") or self.network

    @property
    def number_type(self) -> str:
        return f"<{'i' if self.signed else 'u'}{self.element_bytes}"


@dataclass(frozen=True, slots=True)
class Layout:
    """An event's layout: the kernel's number (`ID`), and the bytes of a record that fields need."""

    event: str
    number: int
    fields: tuple[Field, ...]
    bytes: int


def read_layout(event: str, text: str) -> Layout:
    """The layout that a file `format` describes. Raises InputError if it has no number."""
    number = re.search(r"^ID: (\d+)$", text, re.MULTILINE)
    if number is None:
        raise InputError(f"the format of {event} has no line `ID: NUMBER`")
    described, _, printed = text.partition("print fmt:")
    symbols = _symbols(printed)
    fields = tuple(
        field
        for match in _FIELD.finditer(described)
        if not (field := _field(match, symbols)).name.startswith(_COMMON)
    )
    ends = (field.offset + field.size for field in fields)
    return Layout(event, int(number[1]), fields, max(ends, default=2))


def _field(match: re.Match[str], symbols: Mapping[str, Mapping[int, str]]) -> Field:
    declared, offset, size = match["declared"], int(match["offset"]), int(match["size"])
    signed = match["signed"] == "1"
    dynamic = _DYNAMIC.fullmatch(declared)
    if dynamic is not None:
        kind: Kind = "text" if dynamic["of"] in _CHARACTERS else "bytes"
        place: Literal["data", "rel"] = "data" if dynamic["place"] == "data" else "rel"
        return Field(dynamic["name"], kind, offset, size, 1, False, place, False, {})
    array = _ARRAY.fullmatch(declared)
    if array is not None:
        of = array["of"]
        width = _ELEMENT_BYTES.get(of, 1)
        kind = "text" if of in _CHARACTERS[:2] else "numbers" if width > 1 else "bytes"
        return Field(array["name"], kind, offset, size, width, signed, None, False, {})
    scalar = _SCALAR.fullmatch(declared)
    assert scalar is not None, declared
    name = scalar["name"]
    if size not in (1, 2, 4, 8):
        return Field(name, "bytes", offset, size, 1, False, None, False, {})
    network = scalar["of"].strip().startswith("__be")
    return Field(name, "number", offset, size, size, signed, None, network, symbols.get(name, {}))


def _symbols(printed: str) -> dict[str, dict[int, str]]:
    """The names of numbers in a print format, by field: what `__print_symbolic` chooses from."""
    fields: dict[str, dict[int, str]] = {}
    for match in _SYMBOLS.finditer(printed):
        names: dict[int, str] = {}
        at = match.end()
        while (pair := _SYMBOL.match(printed, at)) is not None:
            number = int(pair[1], 0) if "x" in pair[1] else int(pair[1])
            if -(1 << 63) <= number < 1 << 63:
                names.setdefault(number, pair[2])
            at = pair.end()
        # What is left over has numbers that only a C compiler could work out.
        if names and printed[at : at + 1] in (")", " "):
            fields[match[1]] = names
    return fields


BLOCK_BYTES = 16 << 20
"""The part of the file in memory at a time, in whole pages."""

_LEAST_EVENT_BYTES = 8
"""Of an event with its header, which bounds the number of events."""
_COMMIT_AT = 8
_MISSED, _STORED = 1 << 31, 1 << 30
"""RB_MISSED_EVENTS and RB_MISSED_STORED."""


@dataclass(frozen=True, slots=True)
class Coded:
    codes: I64
    values: tuple[bytes, ...]


Column: TypeAlias = Array | Coded
"""A column: numbers, with a second axis for arrays of numbers, or coded bytes."""


@dataclass(frozen=True, slots=True)
class Events:
    """Some events of one kind.

    Attributes:
        order: each event's place among all events of the file, counted from 0. Virtual time stands
            still while the kernel computes, so only this shows which of two events came first.
        time_ns: when each happened, by the ring buffer's clock.
    """

    layout: Layout
    order: I64
    time_ns: I64
    columns: Mapping[str, Column]


@dataclass(slots=True)
class EventFile:
    """A file of pages. Read `blocks` to its end before the counts.

    Attributes:
        lost: how many events were lost, where the pages say how many.
        lost_uncounted: pages before which events were lost without a number.
    """

    path: Path
    page_bytes: int
    layouts: Mapping[int, Layout]
    _data_at: int
    events: int = 0
    lost: int = 0
    lost_uncounted: int = 0

    def blocks(self) -> Iterator[list[Events]]:
        """The events of some pages at a time, by kind. Raises InputError if the file is cut off."""
        pages = max(1, BLOCK_BYTES // self.page_bytes)
        with self.path.open("rb") as stream:
            while part := stream.read(pages * self.page_bytes):
                yield self._block(np.frombuffer(part, np.uint8))

    def _block(self, data: U8) -> list[Events]:
        if data.size % self.page_bytes:
            raise InputError(f"{self.path}: cut off inside a page")
        most_events = data.size // _LEAST_EVENT_BYTES
        number, time_ns, at = np.empty((3, most_events), np.int64)
        count, lost, uncounted = _index(data, self.page_bytes, self._data_at, number, time_ns, at)
        self.lost += lost
        self.lost_uncounted += uncounted
        order = np.arange(self.events, self.events + count, dtype=np.int64)
        self.events += count
        groups = []
        for kind in np.flatnonzero(np.bincount(number[:count], minlength=1)).tolist():
            layout = self.layouts[kind]
            rows = np.flatnonzero(number[:count] == kind)
            columns = self._columns(layout, data, at[rows])
            groups.append(Events(layout, order[rows], time_ns[rows], columns))
        return groups

    def _columns(self, layout: Layout, data: U8, at: I64) -> dict[str, Column]:
        records = np.empty((at.size, layout.bytes), np.uint8)
        _pack(data, at, records)
        columns: dict[str, Column] = {}
        for event_field in layout.fields:
            raw = records[:, event_field.offset : event_field.offset + event_field.size]
            if event_field.dynamic is not None:
                column: Column = self._dynamic(event_field, data, at, raw)
            elif event_field.is_coded:
                column = coded(raw)
                column = _until_null(column) if event_field.kind == "text" else column
            else:
                values = np.ascontiguousarray(raw).view(event_field.number_type)
                column = values if event_field.kind == "numbers" else values[:, 0]
            columns[event_field.name] = column
        return columns

    def _dynamic(self, event_field: Field, data: U8, at: I64, raw: U8) -> Coded:
        place = np.ascontiguousarray(raw).view("<u4")[:, 0].astype(np.int64)
        begin, size = place & 0xFFFF, place >> 16
        if event_field.dynamic == "rel":
            begin = begin + event_field.offset + event_field.size
        values: list[bytes] = []
        codes = np.empty(at.size, np.int64)
        for width in np.unique(size).tolist():
            rows = np.flatnonzero(size == width)
            content = np.empty((rows.size, width), np.uint8)
            _pack(data, (at + begin)[rows], content)
            part = coded(content)
            codes[rows] = part.codes + len(values)
            values += part.values
        column = Coded(codes, tuple(values))
        return _until_null(column) if event_field.kind == "text" else column


def open_events(path: Path, formats: Formats) -> EventFile:
    """Opens a file of pages. Raises InputError if a format has no number."""
    layouts = {
        layout.number: layout
        for event, text in formats.events.items()
        for layout in [read_layout(event, text)]
    }
    data_at = re.search(r"field: \w+ data;\toffset:(\d+);", formats.header_page)
    assert data_at is not None, formats.header_page
    return EventFile(path, formats.page_bytes, layouts, int(data_at[1]))


def coded(rows: U8) -> Coded:
    if not rows.shape[1]:
        return Coded(np.zeros(rows.shape[0], np.int64), (b"",))
    rows = np.ascontiguousarray(rows)
    _, first, codes = np.unique(_hashes(rows), return_index=True, return_inverse=True)
    codes = codes.reshape(-1)
    return Coded(codes.astype(np.int64), tuple(rows[row].tobytes() for row in first.tolist()))


def _until_null(column: Coded) -> Coded:
    return Coded(column.codes, tuple(value.partition(b"\0")[0] for value in column.values))


@compiled
def _word(data: U8, at: Scalar) -> Scalar:
    return (
        np.int64(data[at])
        | np.int64(data[at + 1]) << 8
        | np.int64(data[at + 2]) << 16
        | np.int64(data[at + 3]) << 24
    )


@compiled
def _index(
    data: U8,
    page_bytes: int,
    data_at: int,
    number: I64,
    time_ns: I64,
    at: I64,
) -> tuple[int, int, int]:
    """Finds the events of whole pages: fills in the kernel's number, time and place of each.

    Returns how many there are, how many were lost, and before how many pages some were lost
    uncounted.
    """
    count = 0
    lost = 0
    uncounted = 0
    for page in range(data.size // page_bytes):
        begin = page * page_bytes
        now = _word(data, begin + 4) << 32 | _word(data, begin)
        commit = _word(data, begin + _COMMIT_AT)
        used = commit & (_STORED - 1)
        pos = begin + data_at
        end = pos + used
        if commit & _MISSED:
            # The kernel stores the number behind the events if there is room.
            if commit & _STORED:
                lost += _word(data, end)
            else:
                uncounted += 1
        while pos < end:
            head = _word(data, pos)
            kind, delta = head & 31, head >> 5
            if kind == 29 and delta == 0:
                break
            if 1 <= kind <= 28:
                place, size = pos + 4, 4 * kind
            else:
                word = _word(data, pos + 4)
                if kind == 30:
                    now += word << 27 | delta
                    pos += 8
                    continue
                if kind == 31:
                    # No run takes 2^59 ns, so the highest 5 bits are always 0.
                    now = word << 27 | delta
                    pos += 8
                    continue
                place, size = pos + 8, word - 4
            # A discarded event has a delta of 1 in place of 0 (rb_event_discard).
            if kind != 29 or delta != 1:
                now += delta
            if kind != 29:
                number[count] = np.int64(data[place]) | np.int64(data[place + 1]) << 8
                time_ns[count] = now
                at[count] = place
                count += 1
            pos = place + size
    return count, lost, uncounted


@compiled
def _pack(data: U8, at: I64, records: U8) -> None:
    """Copies the first bytes of each event into a row."""
    for row in range(at.size):
        for byte in range(records.shape[1]):
            records[row, byte] = data[at[row] + byte]


@compiled
def _hashes(rows: U8) -> Array:
    """A hash of 64 bits of each row (FNV-1a)."""
    hashes = np.empty(rows.shape[0], np.uint64)
    for row in range(rows.shape[0]):
        value = np.uint64(0xCBF29CE484222325)
        for byte in range(rows.shape[1]):
            value = (value ^ np.uint64(rows[row, byte])) * np.uint64(0x100000001B3)
        hashes[row] = value
    return hashes
