"""Group messages with Netronome's extension of OpenFlow 1.5, which says how a switch chooses.

The extension is the property `selection method` of a group, described in
Documentation/group-selection-method-property.txt of Open vSwitch's source. No OpenFlow framework
has a class for it.
"""

from __future__ import annotations

import struct
from typing import Any

from controllers.entries import Group

_EXPERIMENTER_PROPERTY = 0xFFFF
_NETRONOME = 0x0000154D
_SELECTION_METHOD = 1
_HEADER = struct.Struct("!HHIIxxxx16sQ")

_OXM_CLASS = 0x8000
"""OpenFlow's own header fields (OFPXMC_OPENFLOW_BASIC)."""
_FIELDS = {
    "nw_proto": (10, 1),
    "ip_src": (11, 4),
    "ip_dst": (12, 4),
    "tcp_src": (13, 2),
    "tcp_dst": (14, 2),
    "udp_src": (15, 2),
    "udp_dst": (16, 2),
}
_FIELDS_IPV6 = {"ipv6_src": (26, 16), "ipv6_dst": (27, 16)}
"""From each of entries.HASH_FIELDS and HASH_FIELDS_IPV6 to its number in that class and its width
in bytes."""


class SelectionMethod:
    """The property that sets a group's method: `hash` over all bits of the fields, or `dp_hash`."""

    def __init__(self, group: Group) -> None:
        self._parameter = group.parameter
        self._method = b"dp_hash" if group.draws else b"hash"
        hashed = {**_FIELDS, **(_FIELDS_IPV6 if group.ipv6 else {})}
        self._fields = {} if group.draws else hashed

    def serialize(self) -> bytes:
        """The property's bytes in a message, padded to a multiple of 8."""
        fields = b"".join(
            struct.pack("!HBB", _OXM_CLASS, number << 1, width) + b"\xff" * width
            for number, width in self._fields.values()
        )
        length = _HEADER.size + len(fields)
        header = _HEADER.pack(
            _EXPERIMENTER_PROPERTY,
            length,
            _NETRONOME,
            _SELECTION_METHOD,
            self._method,
            self._parameter,
        )
        return header + fields + bytes(-length % 8)


def group_mod(datapath: Any, group: Group) -> Any:
    """The message that adds the group. `datapath` has to speak OpenFlow 1.5."""
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser
    buckets = [
        parser.OFPBucket(bucket_id=number, actions=[parser.OFPActionOutput(port)])
        for number, port in enumerate(group.ports)
    ]
    return parser.OFPGroupMod(
        datapath,
        command=ofproto.OFPGC_ADD,
        type_=ofproto.OFPGT_SELECT,
        group_id=group.number,
        buckets=buckets,
        properties=[SelectionMethod(group)],
    )
