"""Netlink attributes that pyroute2 has no decoder for (netlink(7), rtnetlink(7))."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

_HEADER_BYTES = 4
_TYPE_MASK = 0x3FFF
"""Without NLA_F_NESTED and NLA_F_NET_BYTEORDER."""


def raw_bytes(shown: Any) -> bytes:
    """An attribute as the kernel sent it.

    pyroute2 gives an attribute that it has no decoder for as text (`00:40:00:00`), and one that it
    decodes with the message it stands in.
    """
    if isinstance(shown, str):
        return bytes.fromhex(shown.replace(":", ""))
    payload = shown.offset + _HEADER_BYTES
    return bytes(shown.data[payload : shown.offset + shown.length])


def attributes(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The netlink attributes that stand one after another: type and value."""
    at = 0
    while at + _HEADER_BYTES <= len(raw):
        length, kind = struct.unpack_from("=HH", raw, at)
        yield kind & _TYPE_MASK, raw[at + _HEADER_BYTES : at + length]
        at += max(_HEADER_BYTES, (length + 3) & ~3)


def attribute(raw: bytes, wanted: int) -> bytes | None:
    """The value of the first attribute of a type among several; None where there is none."""
    return next((value for kind, value in attributes(raw) if kind == wanted), None)
