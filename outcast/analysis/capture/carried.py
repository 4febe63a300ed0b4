"""Whether frames in VXLAN or GRE were mirrored into it, or are in a tunnel of the link.

A link sends a tunnel's outer headers, so they count in a frame's length. A mirror adds its own to
frames that were on the link without them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outcast.analysis.capture.pcap import PortCapture

_HEADERS, _ENDS = np.uint64(32), np.uint64(16)


def take_off_mirrors(captures: Sequence[PortCapture]) -> None:
    """Takes the outer headers off the lengths of frames that were mirrored. Says it in remarks.

    A tunnel's outer addresses turn round with the direction of a flow, and a mirror's do not. A
    tunnel's outer headers are the same at another port, or missing there, and each mirrored copy
    has its own. Where nothing tells, it is a tunnel.
    """
    for capture in [capture for capture in captures if _is_mirrored(capture, captures)]:
        rows, headers = capture.around
        more = (headers & np.uint64(0xFFFF)).astype(np.uint16).view(np.int16)
        capture.columns.frame_bytes[rows] -= more.astype(np.int32)
        capture.remarks += (
            f"{capture.path}: {rows.size:,} of these packets were mirrored into their tunnel, "
            "because each copy has outer headers of its own. So their length is that of the packet "
            "inside",
        )


def _is_mirrored(capture: PortCapture, captures: Sequence[PortCapture]) -> bool:
    rows, headers = capture.around
    if not rows.size:
        return False
    flows, first = np.unique(capture.columns.flow[rows], return_index=True)
    ends = (headers[first] >> np.uint64(16)) & np.uint64(0xFFFF)
    of_flow = dict(zip([capture.flows[flow] for flow in flows], ends.tolist(), strict=True))
    turned = [
        end != of_flow[key.reversed] for key, end in of_flow.items() if key.reversed in of_flow
    ]
    if turned:
        return bool(2 * sum(turned) < len(turned))
    copies = others = 0
    for other in captures:
        if other is capture:
            continue
        around = np.zeros(other.columns.identity.size, np.uint64)
        around[other.around[0]] = other.around[1]
        _, mine, theirs = np.intersect1d(
            capture.columns.identity[rows], other.columns.identity, return_indices=True
        )
        there = around[theirs] >> np.uint64(32)
        is_copy = (there > 0) & (there != headers[mine] >> np.uint64(32))
        copies += int(is_copy.sum())
        others += int((~is_copy).sum())
    return bool(copies > others)
