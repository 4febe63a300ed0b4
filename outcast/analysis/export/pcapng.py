"""Writes pcapng (draft-ietf-opsawg-pcapng), with a comment for each packet.

scapy's writer has neither the resolution of times nor a direction, and dpkt's states the captured
length as the length on the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import IO

INBOUND, OUTBOUND, UNTOLD = 1, 2, 0
"""Directions in a packet's flags (section 4.3)."""

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6


class Writer:
    """Writes one section. Times are nanoseconds since the epoch."""

    def __init__(
        self, stream: IO[bytes], application: str, interfaces: Sequence[tuple[str, str, int]]
    ) -> None:
        """Writes what stands before the packets; an interface is name, description, link type."""
        self._stream = stream
        head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        self._block(_SECTION, head, [(4, application.encode())])
        for name, description, link in interfaces:
            options = [(2, name.encode()), (3, description.encode()), (9, b"\x09")]
            self._block(_INTERFACE, struct.pack("<HHI", link, 0, 0), options)

    def packet(
        self, interface: int, stamp_ns: int, data: bytes, wire_bytes: int, way: int, comment: str
    ) -> None:
        """Writes a packet: the captured bytes, the length that it had on the wire, a direction."""
        stamp = stamp_ns >> 32, stamp_ns & 0xFFFFFFFF
        head = struct.pack("<IIIII", interface, *stamp, len(data), wire_bytes)
        options = [(1, comment.encode()), (2, struct.pack("<I", way))]
        self._block(_PACKET, head + _padded(data), options)

    def _block(self, kind: int, body: bytes, options: Sequence[tuple[int, bytes]]) -> None:
        for code, value in (*options, (0, b"")):
            body += struct.pack("<HH", code, len(value)) + _padded(value)
        size = struct.pack("<I", len(body) + 12)
        self._stream.write(struct.pack("<I", kind) + size + body + size)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
