"""Netlink attributes as bytes, and the request that sets up a qdisc (netlink(7), rtnetlink(7)).

This module imports nothing of the package, because it also runs alone, where the package cannot be
imported: `netlink.py INTERFACE KIND HEX` makes KIND the root qdisc of an interface of the present
network namespace, with the bytes HEX as TCA_OPTIONS. The exit status is 1 if the kernel refuses.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

ROOT = 0xFFFFFFFF
"""TC_H_ROOT: the parent of an interface's outermost qdisc."""
_HEADER_BYTES = 4
NESTED = 0x8000
"""NLA_F_NESTED: the value of an attribute is a sequence of attributes."""
_TYPE_MASK = 0x3FFF
"""Masks NLA_F_NESTED and NLA_F_NET_BYTEORDER out of an attribute's type."""
_HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr (netlink(7)): length, type, flags, sequence number, port."""
RTM_NEWLINK, RTM_GETLINK = 16, 18
RTM_NEWADDR = 20
RTM_NEWROUTE, RTM_GETROUTE = 24, 26
RTM_NEWNEIGH, RTM_GETNEIGH = 28, 30
RTM_NEWQDISC, RTM_GETQDISC = 36, 38
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
RTM_NEWTFILTER, RTM_GETTFILTER = 44, 46
RTM_NEWACTION, RTM_GETACTION = 48, 50
RTM_GETSTATS = 94
REQUEST, ACK, ECHO, DUMP = 0x1, 0x4, 0x8, 0x300
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400
INTERRUPTED = 0x10
"""NLM_F_DUMP_INTR: what is dumped has changed meanwhile, so something may be missing."""
ERROR, DONE = 2, 3
"""The types of the messages that end an answer: struct nlmsgerr, or the last of a dump."""
TCA_KIND, TCA_OPTIONS = 1, 2
_TC_MESSAGE = struct.Struct("=BxxxiIII")
"""Struct tcmsg (rtnetlink(7)): family, interface, handle, parent, info."""
INGRESS_PARENT = 0xFFFFFFF1
"""TC_H_INGRESS."""
INGRESS = 0xFFFF0000
"""The handle of an ingress qdisc; filters of it have it as their parent."""
ETH_P_ALL = 3
TCA_MATCHALL_ACT = 2


def encode(kind: int, value: bytes) -> bytes:
    """An attribute of the type `kind`, padded to a multiple of 4 bytes."""
    return struct.pack("=HH", _HEADER_BYTES + len(value), kind) + value + bytes(-len(value) % 4)


def encode_number(kind: int, value: int, form: str = "I") -> bytes:
    """An attribute with a number, of 32 bits unless `form` says otherwise (struct)."""
    return encode(kind, struct.pack(f"={form}", value))


def encode_text(kind: int, text: str) -> bytes:
    return encode(kind, text.encode() + b"\0")


def nest(kind: int, *attributes: bytes) -> bytes:
    return encode(kind | NESTED, b"".join(attributes))


def raw_bytes(decoded: Any) -> bytes:
    """The payload of an attribute that pyroute2 has read, as the kernel sent it.

    pyroute2 gives text (`00:40:00:00`) for an attribute that it cannot decode. A decoded attribute
    has a reference to the whole message, from which the payload is taken.
    """
    if isinstance(decoded, str):
        return bytes.fromhex(decoded.replace(":", ""))
    payload = decoded.offset + _HEADER_BYTES
    return bytes(decoded.data[payload : decoded.offset + decoded.length])


def attributes(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The type and the value of each netlink attribute in a sequence of attributes."""
    at = 0
    while at + _HEADER_BYTES <= len(raw):
        length, kind = struct.unpack_from("=HH", raw, at)
        yield kind & _TYPE_MASK, raw[at + _HEADER_BYTES : at + length]
        at += max(_HEADER_BYTES, (length + 3) & ~3)


def attribute(raw: bytes, kind: int) -> bytes | None:
    return next((value for present, value in attributes(raw) if present == kind), None)


def numbers(raw: bytes) -> dict[int, int]:
    """From each attribute's type to its value as an unsigned number in little-endian order."""
    return {kind: int.from_bytes(value, "little") for kind, value in attributes(raw)}


def handle(major: int, minor: int = 0) -> int:
    """The number of the handle `major:minor`. tc(8) reads and writes both parts in hexadecimal."""
    return major << 16 | minor


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


class Answer(NamedTuple):
    """A netlink message from the kernel; `body` follows its header."""

    kind: int
    flags: int
    sequence: int
    body: bytes
    whole: bytes


def messages(received: bytes) -> Iterator[Answer]:
    """Each netlink message in what one read of a socket gave."""
    at = 0
    while at + _HEADER.size <= len(received):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(received, at)
        whole = received[at : at + length]
        yield Answer(kind, flags, sequence, whole[_HEADER.size :], whole)
        at += max(_HEADER.size, (length + 3) & ~3)


def refusal(answer: bytes) -> int | None:
    """The error number in an answer of the kernel, 0 if it agreed; None if the answer is data."""
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind != ERROR:
        return None
    return -int(struct.unpack_from("=i", answer, _HEADER.size)[0])


def traffic_control(interface: int, major: int, minor: int = 0, parent: int = 0) -> bytes:
    """The head of a request on a qdisc or class of an interface, by its handle."""
    return _TC_MESSAGE.pack(0, interface, handle(major, minor), parent, 0)


def replace_qdisc(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
    """Sets up a qdisc at an interface of the calling thread's network namespace.

    Args:
        interface: its name. A qdisc that stands there already is replaced.
        kind: the qdisc's name in the kernel.
        parent: the handle of the class that it goes into, or ROOT.
        major: of the qdisc's own handle.
        options: the value of TCA_OPTIONS; where it is empty, the qdisc has its defaults.

    Raises OSError: the kernel refused, or there is no such interface.
    """
    body = traffic_control(socket.if_nametoindex(interface), major, parent=parent)
    body += encode_text(TCA_KIND, kind)
    if options:
        # Qdiscs that are newer than Linux 5.2 require the flag (nla_parse_nested in
        # net/netlink.h). Older ones ignore it.
        body += nest(TCA_OPTIONS, options)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(message(RTM_NEWQDISC, REQUEST | ACK | CREATE | REPLACE, 1, body))
        answer = netlink.recv(65536)
    number = refusal(answer)
    if number != 0:
        raise OSError(number or 0, os.strerror(number or 0))


def matchall(interface: int, actions: Sequence[bytes]) -> bytes:
    """A filter of an ingress qdisc that does the same with each packet (tc-matchall(8))."""
    # A filter has its priority and its protocol in place of flags. Those of lost packets go first.
    every_protocol = 1 << 31 | socket.htons(ETH_P_ALL)
    listed = [nest(number, action) for number, action in enumerate(actions, 1)]
    body = _TC_MESSAGE.pack(0, interface, 0, INGRESS, every_protocol)
    body += encode_text(TCA_KIND, "matchall")
    return body + nest(TCA_OPTIONS, nest(TCA_MATCHALL_ACT, *listed))


def main() -> int:
    interface, kind, options = sys.argv[1:]
    try:
        replace_qdisc(interface, kind, parent=ROOT, major=1, options=bytes.fromhex(options))
    except OSError as error:
        print(f"{interface}: qdisc {kind}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
