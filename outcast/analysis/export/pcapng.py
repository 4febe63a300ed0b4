"""Writes pcapng (draft-ietf-opsawg-pcapng), with a comment for each packet.

The blocks of the section, the interfaces and the names are dpkt's. The block of a packet is ours:
dpkt's states the captured length as the length on the wire, and takes 16 us where this one takes 2.
scapy's writer has neither the resolution of times nor names, and computes times in floating point.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from dpkt import pcapng

COMMENT, END = pcapng.PCAPNG_OPT_COMMENT, pcapng.PCAPNG_OPT_ENDOFOPT
_NAMES_BLOCK = 4
_IPV4_NAME, _IPV6_NAME = 1, 2
"""The block of host names, and its records (section 4.5)."""

INBOUND, OUTBOUND, UNTOLD = 1, 2, 0
"""Directions in a packet's flags (section 4.3)."""

_MOST_TEXT = 60_000
"""The length of an option has 16 bits."""

_HEAD = struct.Struct("<IIIIIII")
_OPTION = struct.Struct("<HH")
_FLAGS = struct.Struct("<HHI")
_SIZE = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Interface:
    """Where packets were captured, which, and their link type (tcpdump.org/linktypes.html)."""

    name: str
    description: str
    link: int
    rate_bps: int | None = None


class Writer:
    """Writes one section. Times are nanoseconds since the epoch."""

    def __init__(
        self,
        stream: IO[bytes],
        application: str,
        comment: str,
        interfaces: Sequence[Interface],
        hosts: Mapping[str, str],
    ) -> None:
        """Writes everything that stands before the packets; `hosts` maps addresses to names."""
        self._write = stream.write
        options = [_text(COMMENT, comment), _text(pcapng.PCAPNG_OPT_SHB_USERAPPL, application)]
        self._write(bytes(pcapng.SectionHeaderBlockLE(opts=_ended(options))))
        for interface in interfaces:
            options = [
                _text(pcapng.PCAPNG_OPT_IF_NAME, interface.name),
                _text(pcapng.PCAPNG_OPT_IF_DESCRIPTION, interface.description),
                _option(pcapng.PCAPNG_OPT_IF_TSRESOL, b"\x09"),
            ]
            if interface.rate_bps is not None:
                speed = struct.pack("<Q", interface.rate_bps)
                options.append(_option(pcapng.PCAPNG_OPT_IF_SPEED, speed))
            block = pcapng.InterfaceDescriptionBlockLE(
                linktype=interface.link, snaplen=0, opts=_ended(options)
            )
            self._write(bytes(block))
        names = [
            _option(
                _IPV6_NAME if ":" in address else _IPV4_NAME,
                socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
                + name.encode()
                + b"\0",
            )
            for address, name in hosts.items()
        ]
        if names:
            # Its records are laid out as options are.
            self._write(bytes(pcapng.PcapngBlockLE(type=_NAMES_BLOCK, opts=_ended(names))))

    def packet(
        self,
        interface: int,
        stamp_ns: int,
        data: bytes,
        wire_bytes: int,
        direction: int,
        comment: str,
    ) -> None:
        """Writes a packet: the captured bytes, and the length that it had on the wire."""
        text = comment.encode()
        size = 32 + _padded(len(data)) + 4 + _padded(len(text)) + 8 + 4
        self._write(
            b"".join(
                (
                    _HEAD.pack(
                        pcapng.PCAPNG_BT_EPB,
                        size,
                        interface,
                        stamp_ns >> 32,
                        stamp_ns & 0xFFFFFFFF,
                        len(data),
                        wire_bytes,
                    ),
                    data,
                    bytes(-len(data) % 4),
                    _OPTION.pack(COMMENT, len(text)),
                    text,
                    bytes(-len(text) % 4),
                    _FLAGS.pack(2, 4, direction),
                    _OPTION.pack(END, 0),
                    _SIZE.pack(size),
                )
            )
        )


def _padded(length: int) -> int:
    return (length + 3) // 4 * 4


def _option(code: int, value: bytes) -> Any:
    return pcapng.PcapngOptionLE(code=code, data=value)


def _text(code: int, text: str) -> Any:
    return _option(code, text.encode()[:_MOST_TEXT])


def _ended(options: list[Any]) -> list[Any]:
    return [*options, _option(END, b"")]
