"""Writes pages of the kernel's ring buffer, as kernel/trace/ring_buffer.c does, for the tests."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from outcast.records.trace import Formats, Statistics

PAGE_BYTES = 4096
HEADER_BYTES = 16
MISSED, STORED = 1 << 31, 1 << 30
_EXTEND, _ABSOLUTE, _PADDING = 30, 31, 29


@dataclass(frozen=True)
class Record:
    """One event: its time by the ring buffer's clock, and its bytes from common_type on."""

    time_ns: int
    content: bytes


def header_page(page_bytes: int = PAGE_BYTES) -> str:
    """events/header_page of tracefs (ring_buffer_print_page_header)."""
    return (
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
        "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
        "\tfield: char overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
        f"\tfield: char data;\toffset:16;\tsize:{page_bytes - HEADER_BYTES};\tsigned:1;\n"
    )


def format_text(
    name: str, number: int, fields: Sequence[tuple[str, int, int, int]], printed: str = '""'
) -> str:
    """A file `format`: fields are declaration, offset, size and whether signed."""
    lines = [
        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;",
        "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;",
        "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;",
        "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;",
        "",
        *(
            f"\tfield:{declared};\toffset:{offset};\tsize:{size};\tsigned:{signed};"
            for declared, offset, size, signed in fields
        ),
    ]
    body = "\n".join(lines)
    return f"name: {name}\nID: {number}\nformat:\n{body}\n\nprint fmt: {printed}\n"


def formats(
    events: Mapping[str, str], page_bytes: int = PAGE_BYTES, lost: int = 0, count: int = 0
) -> Formats:
    """formats.json of these events, of which the kernel handed out `count`."""
    return Formats(
        clock="mono",
        to_captures_ns=0,
        page_bytes=page_bytes,
        header_page=header_page(page_bytes),
        events=dict(events),
        statistics=Statistics(entries=0, overrun=lost, dropped_events=0, read_events=count),
    )


def content(number: int, body: bytes) -> bytes:
    """An event's bytes: the fields that all events have, then its own, padded to whole words."""
    whole = struct.pack("<HBBi", number, 0, 0, 7) + body
    return whole + bytes(-len(whole) % 4)


def text_at(place: int, text: bytes) -> tuple[int, bytes]:
    """The word of a __data_loc field, and the text itself with its end, which stands at `place`."""
    whole = text + b"\0"
    return len(whole) << 16 | place, whole


def pages(
    records: Iterable[Record],
    page_bytes: int = PAGE_BYTES,
    *,
    absolute: bool = False,
    small: bool = True,
) -> bytes:
    """Lays events out in pages; a page begins with the time of its first event.

    Args:
        records: the events, whose times do not go back.
        page_bytes: the size of a page.
        absolute: whether a delta of more than 27 bits is written as an absolute time.
        small: whether lengths up to 112 bytes are written in type_len.
    """
    done: list[bytes] = []
    page = b""
    start = now = 0
    for record in records:
        head = _event(record.content, small)
        if not page:
            start = now = record.time_ns
        before = _time_between(now, record.time_ns, absolute)
        if len(page) + len(before) + len(head) > page_bytes - HEADER_BYTES:
            done.append(page_of(start, page, page_bytes))
            start = now = record.time_ns
            page, before = b"", b""
        delta = 0 if before else record.time_ns - now
        page += before + struct.pack("<I", delta << 5 | head[0]) + head[4:]
        now = record.time_ns
    if page:
        done.append(page_of(start, page, page_bytes))
    return b"".join(done)


def _time_between(now: int, then: int, absolute: bool) -> bytes:
    """What stands before an event whose delta has more than 27 bits."""
    delta = then - now
    if delta < 1 << 27:
        return b""
    whole, kind = (then, _ABSOLUTE) if absolute else (delta, _EXTEND)
    return struct.pack("<II", (whole & (1 << 27) - 1) << 5 | kind, whole >> 27)


def _event(content: bytes, small: bool) -> bytes:
    """An event whose first byte is its type_len; the delta comes later."""
    words = len(content) // 4
    if small and words <= 28:
        return struct.pack("<I", words) + content
    return struct.pack("<II", 0, len(content) + 4) + content


def page_of(
    start: int, used: bytes, page_bytes: int = PAGE_BYTES, missed: int | None = None
) -> bytes:
    """A page. `missed` events were lost before it; -1 if the kernel did not store how many."""
    commit = len(used)
    if missed is not None:
        commit |= MISSED
        if missed >= 0:
            commit |= STORED
            used += struct.pack("<Q", missed)
    page = struct.pack("<QQ", start, commit) + used
    assert len(page) <= page_bytes
    return page + bytes(page_bytes - len(page))


def padding(size: int, delta: int) -> bytes:
    """A discarded event of `size` bytes, its word included."""
    return struct.pack("<II", delta << 5 | _PADDING, size - 4) + bytes(size - 8)


def end_of_page() -> bytes:
    """The null event, behind which a page has nothing."""
    return struct.pack("<I", _PADDING)
