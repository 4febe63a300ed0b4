"""Looks through tunnels of IP: GRE (RFC 2784, 2890), IP in IP (RFC 2003, 2473) and 6in4 (RFC 4213).

A hop at the end of a tunnel adds or takes away the outer header. What stays the same is the packet
inside. So packets of foreign captures are known by it, and only their length is that of the whole.
"""

from __future__ import annotations

import numpy as np

from outcast.analysis.capture.mirrors import gre
from outcast.analysis.compiled import I64, U8, Scalar, compiled, load16

TUNNELS = ("GRE", "IPv4 in IP", "IPv6 in IP")
"""What can carry an IP packet; codes are indices into it."""

_DEEPEST = 4
"""A tunnel in a tunnel is looked through, so many in all."""


@compiled
def inside(data: U8, at: Scalar, end: Scalar, kind: Scalar, tally: I64) -> tuple[Scalar, Scalar]:
    """The innermost IP packet; `at` is where that of EtherType `kind` begins. Counts in `tally`.

    Returns (its EtherType, where it begins). These are the given ones if there is no tunnel, if the
    outer packet is a fragment, or if the addresses of the packet inside were not captured.
    """
    for _ in range(_DEEPEST):
        code, inner_kind, inner_at = _carried(data, at, end, kind)
        if code < 0:
            break
        tally[code] += 1
        kind, at = inner_kind, inner_at
    return kind, at


@compiled
def _carried(data: U8, at: Scalar, end: Scalar, kind: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """The packet that an IP packet carries: (the tunnel's code or -1, EtherType, its begin)."""
    none = np.int64(-1), np.int64(0), np.int64(0)
    protocol: Scalar = np.int64(0)
    inner: Scalar = np.int64(0)
    code: Scalar = np.int64(0)
    if kind == 0x0800:
        if at + 20 > end or load16(data, at + 6) & 0x3FFF:
            return none
        protocol = np.int64(data[at + 9])
        at += (np.int64(data[at]) & 15) * 4
    elif kind == 0x86DD:
        if at + 48 > end:
            return none
        protocol = np.int64(data[at + 6])
        at += 40
        if protocol == 60:
            # Linux puts a limit on nested tunnels into destination options (RFC 2473, 4.1.1).
            protocol = np.int64(data[at])
            at += 8 + 8 * np.int64(data[at + 1])
    if protocol == 4:
        inner = np.int64(0x0800)
        code = np.int64(1)
    elif protocol == 41:
        inner = np.int64(0x86DD)
        code = np.int64(2)
    elif protocol == 47:
        code = np.int64(0)
        _, inner, at = gre(data, at, end)
    if inner == 0x0800 and at + 20 <= end and data[at] >> 4 == 4:
        return code, inner, at
    if inner == 0x86DD and at + 40 <= end and data[at] >> 4 == 6:
        return code, inner, at
    return none
