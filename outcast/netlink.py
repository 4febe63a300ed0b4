"""Netlink messages as bytes, and the one request that makes a qdisc (netlink(7), rtnetlink(7)).

Stands alone, because it also runs where the package is not: `netlink.py INTERFACE KIND HEX` gives
an interface of the present network namespace the root qdisc KIND with the bytes HEX as its
TCA_OPTIONS. Its exit status is 1 where the kernel refuses.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any

ROOT = 0xFFFFFFFF
"""TC_H_ROOT: the parent of an interface's outermost qdisc."""
_HEADER_BYTES = 4
_NESTED = 0x8000
_TYPE_MASK = 0x3FFF
"""Without NLA_F_NESTED and NLA_F_NET_BYTEORDER."""
_RTM_NEWQDISC = 36
_REQUEST_ACK_CREATE_REPLACE = 0x1 | 0x4 | 0x400 | 0x100
_NLMSG_ERROR = 2
_TCA_KIND, _TCA_OPTIONS = 1, 2


def encode(kind: int, value: bytes) -> bytes:
    """An attribute of this type, padded to whole words."""
    return struct.pack("=HH", _HEADER_BYTES + len(value), kind) + value + bytes(-len(value) % 4)


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


def numbers(raw: bytes) -> dict[int, int]:
    """Attributes that are one unsigned number each, by their types."""
    return {kind: int.from_bytes(value, "little") for kind, value in attributes(raw)}


def handle(major: int, minor: int = 0) -> int:
    """The number of `major:minor`, of which tc(8) writes both parts in hexadecimal."""
    return major << 16 | minor


def replace_qdisc(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
    """Makes a qdisc of an interface of the calling thread's network namespace, or remakes it.

    Args:
        interface: its name.
        kind: the qdisc's name.
        parent: the handle of the class it goes into, or ROOT.
        major: the number of its own handle.
        options: what goes into TCA_OPTIONS.

    Raises:
        OSError: the kernel refused, or there is no such interface.
    """
    body = struct.pack("=BxxxiIII", 0, socket.if_nametoindex(interface), handle(major), parent, 0)
    body += encode(_TCA_KIND, kind.encode() + b"\0")
    # Qdiscs since Linux 5.2 ask for the flag (nla_parse_nested in net/netlink.h); all others
    # ignore it.
    body += encode(_TCA_OPTIONS | _NESTED, options)
    header = struct.pack("=IHHII", 16 + len(body), _RTM_NEWQDISC, _REQUEST_ACK_CREATE_REPLACE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(header + body)
        answer = netlink.recv(65536)
    (message,) = struct.unpack_from("=H", answer, 4)
    (error,) = struct.unpack_from("=i", answer, 16)
    if message != _NLMSG_ERROR or error:
        raise OSError(-error, os.strerror(-error))


def main() -> int:
    """See the module."""
    interface, kind, options = sys.argv[1:]
    try:
        replace_qdisc(interface, kind, parent=ROOT, major=1, options=bytes.fromhex(options))
    except OSError as error:
        print(f"{interface}: qdisc {kind}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
