"""How an event is laid out: the text of its file `format` in tracefs.

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

The kernel writes it in kernel/trace/trace_events.c (f_show). Offsets count from the event's own
beginning. Source: Documentation/trace/events.rst, "Event formats".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from outcast.errors import InputError

Kind = Literal["number", "numbers", "text", "bytes"]

MOST_FIELDS = 256
MOST_EVENT_BYTES = 1 << 16
"""More than a page of the ring buffer holds."""
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
        size: its bytes in the event. A dynamic field has there 4 bytes that say where its content
            is.
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
        """Whether its values are bytes, which are coded, and not numbers."""
        return self.dynamic is not None or self.kind in ("text", "bytes") or self.network

    @property
    def number_type(self) -> str:
        """The type of its numbers for numpy."""
        return f"<{'i' if self.signed else 'u'}{self.element_bytes}"


@dataclass(frozen=True, slots=True)
class Layout:
    """An event's layout: the kernel's number (`ID`), and the bytes of a record that fields need."""

    event: str
    number: int
    fields: tuple[Field, ...]
    bytes: int


def read_layout(event: str, text: str) -> Layout:
    """The layout that a file `format` describes. Raises InputError if no event can have it."""

    def refusal(what: str) -> InputError:
        return InputError(f"the format of {event}: {what}")

    number = re.search(r"^ID: (\d{1,5})$", text, re.MULTILINE)
    if number is None or int(number[1]) >= 1 << 16:
        raise refusal("has no line `ID: NUMBER`")
    described, _, printed = text.partition("print fmt:")
    symbols = _symbols(printed)
    fields: dict[str, Field] = {}
    first = None
    lines = [line for line in described.splitlines() if line.startswith("\tfield:")]
    if len(lines) > MOST_FIELDS:
        raise refusal(f"has more than {MOST_FIELDS} fields")
    for line in lines:
        field = _field(line, symbols)
        if field is None:
            raise refusal(f"cannot be read: {line.strip()[:80]!a}")
        if field.offset + field.size > MOST_EVENT_BYTES:
            raise refusal(f"{field.name} is beyond {MOST_EVENT_BYTES} bytes")
        if first is None:
            first = field
        elif field.name in fields:
            raise refusal(f"has {field.name} twice")
        if not field.name.startswith(_COMMON):
            fields[field.name] = field
    if first is None or (first.name, first.offset, first.size) != ("common_type", 0, 2):
        raise refusal("does not begin with common_type")
    ends = (field.offset + field.size for field in fields.values())
    return Layout(event, int(number[1]), tuple(fields.values()), max(ends, default=2))


def _field(line: str, symbols: Mapping[str, Mapping[int, str]]) -> Field | None:
    match = _FIELD.match(line)
    if match is None:
        return None
    declared, offset, size = match["declared"], int(match["offset"]), int(match["size"])
    signed = match["signed"] == "1"
    dynamic = _DYNAMIC.fullmatch(declared)
    if dynamic is not None:
        if size != 4:
            return None
        kind: Kind = "text" if dynamic["of"] in _CHARACTERS else "bytes"
        place: Literal["data", "rel"] = "data" if dynamic["place"] == "data" else "rel"
        return Field(dynamic["name"], kind, offset, size, 1, False, place, False, {})
    array = _ARRAY.fullmatch(declared)
    if array is not None:
        if not size:
            return None
        of = array["of"]
        width = _ELEMENT_BYTES.get(of, 1)
        kind = "text" if of in _CHARACTERS[:2] else "numbers" if width > 1 else "bytes"
        if size % width:
            return None
        return Field(array["name"], kind, offset, size, width, signed, None, False, {})
    scalar = _SCALAR.fullmatch(declared)
    if scalar is None or not size:
        return None
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
