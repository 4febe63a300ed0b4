"""Qdiscs set up by rtnetlink(7), where tc(8) cannot say what the kernel can do."""

from __future__ import annotations

import os
import socket
import struct

from outcast.errors import RunError

ROOT = 0xFFFFFFFF
"""TC_H_ROOT: the parent of an interface's outermost qdisc."""
_RTM_NEWQDISC = 36
_REQUEST_ACK_CREATE_REPLACE = 0x1 | 0x4 | 0x400 | 0x100
_NLMSG_ERROR = 2
_TCA_KIND, _TCA_OPTIONS = 1, 2


def handle(major: int, minor: int = 0) -> int:
    """The number of `major:minor`, of which tc(8) writes both parts in hexadecimal."""
    return major << 16 | minor


def attribute(kind: int, value: bytes) -> bytes:
    """A netlink attribute, padded to whole words."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def replace_qdisc(interface: str, kind: str, *, parent: int, major: int, options: bytes) -> None:
    """Makes a qdisc of an interface of the calling thread's network namespace, or remakes it.

    Args:
        interface: its name.
        kind: the qdisc's name.
        parent: the handle of the class it goes into, or ROOT.
        major: the number of its own handle.
        options: what goes into TCA_OPTIONS.

    Raises:
        RunError: the kernel refused; with its reason.
    """
    body = struct.pack("=BxxxiIII", 0, socket.if_nametoindex(interface), handle(major), parent, 0)
    body += attribute(_TCA_KIND, kind.encode() + b"\0") + attribute(_TCA_OPTIONS, options)
    header = struct.pack("=IHHII", 16 + len(body), _RTM_NEWQDISC, _REQUEST_ACK_CREATE_REPLACE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(header + body)
        answer = netlink.recv(65536)
    (message,) = struct.unpack_from("=H", answer, 4)
    (error,) = struct.unpack_from("=i", answer, 16)
    if message != _NLMSG_ERROR or error:
        raise RunError(f"{interface}: qdisc {major}: {kind}: {os.strerror(-error)}")
